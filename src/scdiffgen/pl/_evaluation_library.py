"""Library sizes of real and generated cells."""

from __future__ import annotations

from anndata import AnnData
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator

from scdiffgen.metrics import library_size_quantiles
from scdiffgen.pl._figure import Save, finish, panels
from scdiffgen.pl._sources import GENERATED, REAL

INCHES = (3.2, 3.0)


def evaluation_library_size(
    real: AnnData,
    generated: AnnData,
    *,
    layer: str | None = None,
    ax: Axes | None = None,
    show: bool | None = None,
    save: Save = None,
) -> Axes:
    """Draw the quantiles of the library sizes of generated cells against those of real cells.

    Generated cells with the right library sizes lie on the diagonal. In the band lie 95 of 100 samples of the real
    population that have as many cells.

    Parameters
    ----------
    real
        Real cells.
    generated
        Generated cells; genes are aligned by name.
    layer
        Layer of the counts, by default ``.X``; cells without layers, as generated ones are, are read from ``.X``.
    ax
        Where to draw.
    show
        Whether to show the figure; by default ``scanpy.settings.autoshow``.
    save
        ``True`` or text saves to ``scanpy.settings.figdir`` as scanpy does; a :class:`~pathlib.Path` to that file.

    Returns
    -------
    The axes.

    Examples
    --------
    >>> axis = evaluation_library_size(adata[::2], adata[1::2], layer="counts")
    >>> axis.get_xlabel()
    'molecules of real cells'
    """
    quantiles = library_size_quantiles(real, generated, layer=layer)
    (axis,) = panels(1, 1, INCHES, ax)
    axis.fill_between(
        quantiles["real"], quantiles["low"], quantiles["high"], color=REAL, alpha=0.25, linewidth=0, label="real cells"
    )
    axis.plot(quantiles["real"], quantiles["real"], color=REAL, linewidth=1)
    axis.plot(quantiles["real"], quantiles["generated"], "o", color=GENERATED, markersize=3.5, label="generated cells")
    if (quantiles.drop(columns="share") > 0).to_numpy().all():
        axis.set(xscale="log", yscale="log")
        _plain_ticks(axis.xaxis, axis.yaxis)
    axis.set_xlabel("molecules of real cells", fontsize=9)
    axis.set_ylabel("molecules of generated cells", fontsize=9)
    axis.tick_params(labelsize=8)
    axis.legend(frameon=False, fontsize=8)
    axis.spines[["top", "right"]].set_visible(False)
    finish([axis], "evaluation_library_size", show, save)
    return axis


def _plain_ticks(*axes: Axis) -> None:
    """Plain numbers at 1, 2, 5, 10 and so on of logarithmic axes."""
    for axis in axes:
        axis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,g}"))
        axis.set_minor_locator(NullLocator())
