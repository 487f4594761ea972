"""Mean, variance and zeros of the genes of real and generated cells."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pandas as pd
from anndata import AnnData
from matplotlib.axes import Axes
from numpy.typing import NDArray

from scdiffgen.metrics import gene_summary
from scdiffgen.pl._figure import Save, finish, panels
from scdiffgen.pl._sources import REFERENCE, SOURCES

INCHES = (3.2, 3.0)
N_BINS, FEWEST_GENES = 25, 5  # of a line, and of a bin


def evaluation_mean_variance(
    real: AnnData,
    generated: AnnData,
    *,
    layer: str | None = None,
    ax: Axes | None = None,
    show: bool | None = None,
    save: Save = None,
) -> Axes:
    """Draw the variance of the counts of every gene against their mean, in real and in generated cells.

    Lines are medians over genes of about the same mean. Poisson counts lie on the dashed line: generated cells that
    follow it do not vary as real cells do.

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
    >>> axis = evaluation_mean_variance(adata[::2], adata[1::2], layer="counts")
    >>> axis.get_ylabel()
    'variance of the counts'
    """
    genes = gene_summary(real, generated, layer=layer)
    (axis,) = panels(1, 1, INCHES, ax)
    _draw(axis, genes, "variance", lambda mean: mean)
    axis.set_yscale("log")
    axis.set_ylabel("variance of the counts", fontsize=9)
    finish([axis], "evaluation_mean_variance", show, save)
    return axis


def evaluation_mean_dropout(
    real: AnnData,
    generated: AnnData,
    *,
    layer: str | None = None,
    ax: Axes | None = None,
    show: bool | None = None,
    save: Save = None,
) -> Axes:
    """Draw the fraction of cells without a gene against its mean count, in real and in generated cells.

    Lines are medians over genes of about the same mean. Poisson counts lie on the dashed line.

    Parameters
    ----------
    real, generated, layer, ax, show, save
        As in `evaluation_mean_variance`.

    Returns
    -------
    The axes.

    Examples
    --------
    >>> axis = evaluation_mean_dropout(adata[::2], adata[1::2], layer="counts")
    >>> axis.get_ylabel()
    'fraction of cells without the gene'
    """
    genes = gene_summary(real, generated, layer=layer)
    (axis,) = panels(1, 1, INCHES, ax)
    _draw(axis, genes, "zero_fraction", lambda mean: np.exp(-mean))
    axis.set_ylabel("fraction of cells without the gene", fontsize=9)
    finish([axis], "evaluation_mean_dropout", show, save)
    return axis


def _draw(axis: Axes, genes: pd.DataFrame, statistic: str, poisson: Callable[[NDArray], NDArray]) -> None:
    """Points and lines of both sides over the mean; a gene that a side lacks has no place on its logarithmic axis."""
    lines = []
    for source, colour in SOURCES.items():
        side = genes[source]
        side = side[side["mean"] > 0]
        axis.scatter(side["mean"], side[statistic], s=4, color=colour, alpha=0.35, linewidths=0, rasterized=True)
        lines += axis.plot(*_medians(side["mean"], side[statistic]), color=colour, linewidth=2, label=source, zorder=3)
    means = genes.xs("mean", axis=1, level="statistic").to_numpy()
    at = np.geomspace(means[means > 0].min(), means.max(), 200) if (means > 0).any() else np.ones(1)
    lines += axis.plot(at, poisson(at), "--", color=REFERENCE, linewidth=1, label="Poisson", zorder=2)
    axis.set_xscale("log")
    axis.set_xlabel("mean count", fontsize=9)
    axis.tick_params(labelsize=8)
    axis.legend(handles=lines, frameon=False, fontsize=8)
    axis.spines[["top", "right"]].set_visible(False)


def _medians(mean: pd.Series, values: pd.Series) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Medians of both in bins of equally many genes, in the order of the mean."""
    n_bins = min(N_BINS, max(1, len(mean) // FEWEST_GENES))
    bins = np.arange(len(mean)) * n_bins // max(len(mean), 1)
    table = pd.DataFrame({"mean": mean, "value": values}).sort_values("mean").groupby(bins).median()
    return table["mean"].to_numpy(), table["value"].to_numpy()
