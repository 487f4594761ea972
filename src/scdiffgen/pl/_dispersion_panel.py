"""Variance ratios of generated and real cells along principal components."""

from collections.abc import Sequence

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.colors import LogNorm
from matplotlib.figure import FigureBase
from matplotlib.ticker import FixedLocator

from scdiffgen._shared_docs import shared_docs
from scdiffgen.pl._evaluation_panels import number_ticks
from scdiffgen.pl._figure import DIVERGING, GREY, ORANGE, Ax, Save, Show, colour_bar, finish, plain, shortened

TICKS, FAR_TICKS = (0.2, 0.3, 0.5, 0.7, 1, 1.5, 2, 3, 5), (0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1, 3, 10, 30)
WIDEST = 4.0  # variance ratio of the darkest colour
NEEDED = {"ratio", "low", "high", "other_real", "other_real_low", "other_real_high", "apart", "genes", "n"}


@shared_docs
def evaluation_dispersion(
    dispersion: pd.DataFrame, *, ax: Ax = None, show: Show = None, save: Save = None
) -> list[Axes]:
    """Draw variance ratios of generated to real cells along principal components.

    The upper panel shows ratios with 95 % intervals, within labels if there are labels. A point is filled if its
    interval excludes 1 and does not overlap the grey interval of other real cells (the ceiling). The worst components
    are named by their leading genes. The lower panel shows groups: blue is too little variance, red too much, faint an
    interval that includes 1; dots mark components that would be filled points. Small groups are left out.

    Parameters
    ----------
    dispersion
        Result of :func:`scdiffgen.metrics.dispersion` or :meth:`scdiffgen.model.TokenDiffusion.evaluate_held_out`.
    ax
        Axes for the upper panel; by default a new figure, with the groups below if there are any.

    Returns
    -------
    The axes of the components, and of the groups if they are drawn.

    Raises
    ------
    ValueError
        If ``dispersion`` is not such a table, or has no intervals.

    Examples
    --------
    >>> from scdiffgen.metrics import dispersion
    >>> axes = evaluation_dispersion(dispersion(adata[::2], adata[1::2], layer="counts"))
    """
    if dispersion.index.names != ["group", "component"] or not NEEDED <= set(dispersion):
        raise ValueError("`dispersion` lacks the index or columns of `metrics.dispersion`: pass its result unchanged.")
    table = of_enough_cells(dispersion)
    if table["low"].isna().all():
        raise ValueError(
            "`dispersion` has no intervals: call `metrics.dispersion` with `n_bootstrap` above 1 and at least ten "
            "cells per side."
        )
    axes = [ax] if ax else dispersion_axes(plt.figure(figsize=dispersion_inches(table), layout="constrained"), table)
    draw_dispersion(axes, table)
    return finish(axes, "evaluation_dispersion", show, save)


def of_enough_cells(dispersion: pd.DataFrame) -> pd.DataFrame:
    """Select rows over all cells, and rows of groups with intervals."""
    enough = dispersion[["low", "other_real_low"]].notna().all(axis=1).groupby("group").transform("any")
    return dispersion[enough | (dispersion.index.get_level_values("group") == "overall")]


def dispersion_inches(table: pd.DataFrame) -> tuple[float, float]:
    """Return the size of a separate figure."""
    return 3.5 + 0.26 * min(len(table.index.unique("component")), 60), sum(_heights(table))


def _heights(table: pd.DataFrame) -> list[float]:
    """Return the heights of the component panel, and of the group panel if there are groups."""
    n_rows = len(_rows(table))
    return [3.0, 0.3 + 0.19 * n_rows] if n_rows else [3.0]


def dispersion_axes(figure: FigureBase, table: pd.DataFrame) -> list[Axes]:
    """Create axes of the components, and of the groups if there are any."""
    heights = _heights(table)
    return list(figure.subplots(len(heights), 1, sharex=True, squeeze=False, height_ratios=heights)[:, 0])


def draw_dispersion(axes: Sequence[Axes], table: pd.DataFrame) -> None:
    """Draw the components, and the groups if there are axes for them."""
    known = table.index.unique("group")
    group = next(name for name in ("within", "overall", *known) if name in known)
    _draw_components(axes[0], table.loc[group], group)
    at = np.arange(len(table.loc[group]))
    axes[-1].set_xticks(at, at + 1)
    axes[-1].set_xlim(-0.6, len(at) - 0.4)
    if len(axes) > 1:
        axes[0].tick_params(axis="x", labelbottom=False)
        _draw_groups(axes[1], table, _rows(table))
    plain(axes[-1], "principal component", axes[-1].get_ylabel())
    axes[-1].tick_params(axis="x", labelsize=7)


def _rows(table: pd.DataFrame) -> list[str]:
    """List the groups of the lower panel: none, or all cells and the labels."""
    known = [str(group) for group in table.index.unique("group") if group != "within"]
    return known if len(known) > 1 else []


def _draw_components(axis: Axes, rows: pd.DataFrame, group: str) -> None:
    """Draw ratios of a group over the band of other real cells, and name the genes of the worst components."""
    at, apart = np.arange(len(rows)), rows["apart"].to_numpy(dtype=bool)
    edges = np.repeat(at, 2) + np.tile([-0.5, 0.5], len(at))
    low, high = (np.repeat(rows[name].to_numpy(), 2) for name in ("other_real_low", "other_real_high"))
    axis.fill_between(edges, low, high, color="0.85", linewidth=0, label="other real cells")
    axis.axhline(1, color=GREY, linewidth=0.8)
    axis.vlines(at, rows["low"], rows["high"], color=ORANGE, linewidth=1.4, zorder=3)
    label = "generated cells" + (", within labels" if group == "within" else "")
    for chosen, fill, text in ((~apart, "white", label), (apart, ORANGE, "different from real cells")):
        axis.plot(at[chosen], rows["ratio"][chosen], "o", color=ORANGE, mfc=fill, markersize=5, zorder=4, label=text)
    off = np.log(rows["ratio"] / rows["other_real"]).abs().to_numpy()
    for i in [i for i in np.argsort(-np.nan_to_num(off)) if apart[i]][:4]:
        axis.axvline(i, color=GREY, linewidth=0.6, linestyle=":", zorder=1)
        name = axis.text(i - 0.2, 1.02, rows["genes"].iloc[i], transform=axis.get_xaxis_transform())
        name.set(rotation=30, ha="left", va="bottom", fontsize=7.5, fontstyle="italic")
    axis.set_yscale("log")
    axis.margins(y=0.12)
    lowest, highest = axis.get_ylim()
    number_ticks(axis.yaxis, FixedLocator(TICKS if highest < 8 * lowest else FAR_TICKS))
    plain(axis, "", "variance, generated / real")
    axis.legend(frameon=False, fontsize=8, loc="lower right", ncols=3, handlelength=1.2)


def _draw_groups(axis: Axes, table: pd.DataFrame, names: Sequence[str]) -> None:
    """Draw a heat map of groups by components, with dots where generated cells differ from other real cells."""
    order = table.index.unique("component")
    wide = table[["ratio", "low", "high", "apart", "n"]].unstack("component").loc[names]
    ratios, low, high, apart = (wide[name][order].to_numpy() for name in ("ratio", "low", "high", "apart"))
    norm, alpha = LogNorm(1 / WIDEST, WIDEST), np.where((low < 1) & (high > 1), 0.4, 1.0)
    axis.imshow(ratios.clip(1e-3), cmap=DIVERGING, norm=norm, alpha=alpha, aspect="auto", interpolation="nearest")
    row, column = np.nonzero(apart.astype(bool))
    dark = np.abs(np.log(ratios[row, column])) > np.log(WIDEST) / 2
    axis.scatter(column, row, s=6, c=np.where(dark, "white", "black"), linewidths=0)
    axis.set_yticks(range(len(names)), [f"{shortened(name)} ({n})" for name, n in wide["n"][order[0]].items()])
    plain(axis, "", "")
    axis.tick_params(length=0)
    axis.spines[:].set_visible(False)
    bar = colour_bar(ScalarMappable(norm, DIVERGING), axis, extend="both", aspect=8, shrink=1.0)
    number_ticks(bar.ax.yaxis, FixedLocator([1 / WIDEST, 1, WIDEST]))
