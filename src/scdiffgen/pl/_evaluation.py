"""Figures of generated and real cells: all comparisons on one page, or chosen panels."""

import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any, Literal, NamedTuple, get_args

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from anndata import AnnData
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.cm import ScalarMappable
from matplotlib.colors import LogNorm
from matplotlib.patches import Patch
from matplotlib.ticker import FixedLocator, Locator, LogLocator, NullLocator
from numpy.typing import NDArray
from scipy.spatial.distance import squareform

from scdiffgen import metrics
from scdiffgen._arguments import check_choice
from scdiffgen._names import as_names, symbols_of
from scdiffgen._shared_docs import shared_docs
from scdiffgen.metrics._classifiers import CLASSIFIERS, FoldScores
from scdiffgen.metrics._comparison import OVERALL, WITHIN
from scdiffgen.metrics._evaluate import relative_scores
from scdiffgen.metrics._input import labels_of
from scdiffgen.metrics._summaries import (
    Basis,
    gene_correlations,
    gene_summary,
    joint_embedding,
    library_size_quantiles,
    roc_of_folds,
)
from scdiffgen.pl._figure import (
    BLUE,
    DIVERGING,
    GREEN,
    GREY,
    ORANGE,
    SLANTED,
    SOURCES,
    VERMILION,
    Ax,
    Colour,
    Names,
    Save,
    Show,
    add_legend,
    colour_bar,
    dots,
    finish,
    group_colours,
    legend_inches,
    number_groups,
    numbered,
    plain,
    shortened,
    unticked,
)

Panel = Literal[
    "umap", "pca", "mean_variance", "mean_dropout", "library_size", "roc", "gene_correlation", "dispersion", "scores"
]
PANELS: tuple[Panel, ...] = get_args(Panel)
BASES: tuple[Basis, ...] = ("umap", "pca")
OF_SCORES = {"roc", "dispersion", "scores"}  # panels that need no cells if scores are given
WIDE = ("dispersion", "scores")  # panels with a row of their own; all others are small
STYLES = dict(zip(CLASSIFIERS, ((BLUE, "--"), (VERMILION, "-"), (GREEN, ":")), strict=True))
SCORE_INCHES, LETTER_INCHES = (0.5, 0.24), 0.07
NO_PLACE = "#E8E8E8"
GREY_MEANS = "not scored: the metric\ndoes not distinguish\ncontrol and real cells,\nor too few cells"
TICKS, FAR_TICKS = (0.2, 0.3, 0.5, 0.7, 1, 1.5, 2, 3, 5), (0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1, 3, 10, 30)
WIDEST = 4.0  # variance ratio of the darkest colour


@shared_docs
def evaluation(
    real: AnnData | None = None,
    generated: AnnData | None = None,
    train: AnnData | None = None,
    groupby: str | None = None,
    *,
    scores: metrics.Evaluation | None = None,
    panels: Panel | Sequence[Panel] = PANELS,
    layer: str | None = None,
    gene_symbols: str | None = None,
    max_cells: int = 5000,
    n_jobs: int = 1,
    seed: int = 0,
    ax: Ax = None,
    show: Show = None,
    save: Save = None,
) -> dict[str, Axes]:
    """Draw comparisons of generated and real cells: all on one page, or chosen panels.

    - ``"umap"``, ``"pca"``: both sides in one embedding. With groups, two further axes show real and generated cells
      separately, coloured by group; more than eight groups are also numbered. An embedding shows gross errors only.
    - ``"mean_variance"``, ``"mean_dropout"``: variance, or fraction of zeros, of each gene against its mean count, and
      medians over genes of similar mean. Cells on the dashed Poisson line lack the overdispersion of real cells.
    - ``"library_size"``: quantiles of generated against real cells. The band holds 95 % of samples of real cells.
    - ``"roc"``: classifiers of generated (positive) against real cells, with the range over five test folds.
    - ``"gene_correlation"``: correlations of the genes with the largest variance in real cells, clustered. Blocks of
      real cells that generated cells lack are gene programs that were not learned. Alone, the 40 genes are named.
    - ``"dispersion"``: variance ratios along principal components with 95 % intervals, within labels if there are any.
      Points whose interval excludes 1 and does not overlap that of other real cells are filled, and the worst are named
      by their leading genes. With groups, a heat map of ratios (blue: too little variance) has dots for such points,
      and faint colours for intervals that include 1; small groups are left out.
    - ``"scores"``: scores by group. Colours place them between other real cells (light) and the worse negative control
      (dark); grey scores do not distinguish the two. Brackets hold the number of compared cells.

    Parameters
    ----------
    groupby
        Column of ``obs`` of all cells.
    scores
        Result of :func:`scdiffgen.metrics.evaluate`; the last three panels then need no cells. ``None`` computes the
        default scores with forests of 25 trees on at most 500 cells per group. Missing scores are shown as a dash.
    panels
        Panel or panels to draw; by default all.
    max_cells
        Maximum number of cells per side of an embedding.
    seed
        Random seed of all panels.
    ax
        Axes for a single panel, without groups; by default a new figure.

    Returns
    -------
    The axes by name: that of the panel; of ``"gene_correlation"``, ``"correlation_real"`` and
    ``"correlation_generated"``; with groups also ``"umap_real"``, ``"umap_generated"`` and so on, and
    ``"dispersion_groups"``.

    Raises
    ------
    ValueError
        If a panel is unknown, lacks the cells or scores that it needs, or has several axes although ``ax`` is given.
    TypeError
        If ``scores`` is not an `Evaluation`.

    Examples
    --------
    >>> axes = evaluation(adata[::2], adata[1::2], layer="counts")
    >>> list(evaluation(adata[::2], adata[1::2], groupby="cell_type", panels="pca", layer="counts"))
    ['pca', 'pca_real', 'pca_generated']
    """
    chosen = as_names(panels)
    for name in chosen:
        check_choice("panels", name, PANELS)
    cells = real is not None and generated is not None
    if needing := [name for name in chosen if not cells and (scores is None or name not in OF_SCORES)]:
        raise ValueError(f"`panels` has {needing}, which need cells: pass `real` and `generated`.")
    if scores is None and OF_SCORES & {*chosen}:
        options = {"layer": layer, "gene_symbols": gene_symbols, "n_jobs": n_jobs, "seed": seed}
        scores = _default_scores(real, generated, train, groupby, **options)
    if not (scores is None or isinstance(scores, metrics.Evaluation)):
        raise TypeError("`scores` is not an `Evaluation`: pass the result of `metrics.evaluate`, not its `.frame`.")
    scores = metrics.Evaluation(pd.DataFrame()) if scores is None else scores
    shown = Shown(real, generated, groupby, scores, layer, gene_symbols, max_cells, seed, len(chosen) == 1)
    drawn: list[str] = [name for name in PANELS if name in chosen]
    drawings = {name: DRAWINGS[name](shown) for name in drawn}  # raises before a figure is made
    axes = _axes(drawings, shown.groups if {*BASES} & {*chosen} else [], ax)
    for drawing in drawings.values():
        drawing.draw([axes[name] for name in drawing.axes])
    finish(list(axes.values()), f"evaluation_{drawn[0]}" if shown.alone else "evaluation", show, save)
    return axes


def _default_scores(*cells: AnnData | str | None, **options: Any) -> metrics.Evaluation:
    """Compute scores that are fast enough for a figure."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", metrics.FewCellsWarning)  # shown in the figure
        return metrics.evaluate(*cells, n_bootstrap=50, n_trees=25, max_cells=500, **options)


@dataclass(frozen=True)
class Shown:
    """Cells and scores of a figure, and how to read them."""

    real: AnnData
    generated: AnnData
    groupby: str | None
    scores: metrics.Evaluation
    layer: str | None
    gene_symbols: str | None
    max_cells: int
    seed: int
    alone: bool  # whether a single panel is drawn

    @cached_property
    def groups(self) -> list[str]:
        """List the groups of embedded cells; none without ``groupby``."""
        if self.groupby is None:
            return []
        sides = ((self.real, "real"), (self.generated, "generated"))
        return sorted({label for cells, name in sides for label in labels_of(cells, self.groupby, name)})

    @cached_property
    def genes(self) -> pd.DataFrame:
        """Compute moments of the genes."""
        return gene_summary(self.real, self.generated, layer=self.layer)


class Drawing(NamedTuple):
    """A panel that is ready to be drawn: names of its axes, how to draw them, and inches (of one axes if small)."""

    axes: Sequence[str]
    draw: Callable[[Sequence[Axes]], None]
    width: float = 3.3
    heights: Sequence[float] = (3.1,)


def _axes(drawings: Mapping[str, Drawing], groups: Sequence[str], ax: Ax) -> dict[str, Axes]:
    """Create axes by name: small panels in rows, then wide panels; and draw the legend of the groups."""
    names = [name for drawing in drawings.values() for name in drawing.axes]
    if ax is not None:
        if len(names) > 1:
            raise ValueError(f"`ax` is one panel, but there are {len(names)} to draw: choose one, or leave out `ax`.")
        return {names[0]: ax}
    wide = {name: drawings[name] for name in WIDE if name in drawings}
    small = {name: drawing for name, drawing in drawings.items() if name not in wide}
    n_columns = min(3 if groups else 4, sum(len(drawing.axes) for drawing in small.values()))
    column_width, row_height = max(((d.width, sum(d.heights)) for d in small.values()), default=(0.0, 0.0))
    embeddings = [name for name in small if name in BASES and groups]  # apart, beside their legend
    blocks = embeddings, [name for name in small if name not in embeddings]
    rows = [_rows([small[name] for name in block], n_columns) for block in blocks if block]
    heights = [row_height * len(block) for block in rows] + [sum(d.heights) for d in wide.values()]
    width = max([column_width * n_columns + legend_inches(groups), *(drawing.width for drawing in wide.values())])
    figure = plt.figure(figsize=(width, sum(heights)), layout="constrained")
    areas = list(figure.subfigures(len(heights), 1, squeeze=False, height_ratios=heights)[:, 0])
    axes: dict[str, Axes] = {}
    for area, block in zip(areas, rows, strict=False):
        axes |= area.subplot_mosaic(block)
    if groups:
        add_legend(areas[0], groups)
    for area, drawing in zip(areas[len(rows) :], wide.values(), strict=True):
        places = area.subplots(len(drawing.axes), sharex=True, squeeze=False, height_ratios=drawing.heights)
        axes |= dict(zip(drawing.axes, places[:, 0], strict=True))
    return axes


def _rows(drawings: Iterable[Drawing], n_columns: int) -> list[list[str]]:
    """Fill rows with the axes of panels, each panel in one row; ``"."`` is an empty place."""
    rows: list[list[str]] = [[]]
    for drawing in drawings:
        if len(rows[-1]) + len(drawing.axes) > n_columns:
            rows.append([])
        rows[-1].extend(drawing.axes)
    return [row + ["."] * (n_columns - len(row)) for row in rows]


def _embedding(shown: Shown, basis: Basis) -> Drawing:
    embed = partial(joint_embedding, basis=basis, layer=shown.layer, max_cells=shown.max_cells, seed=shown.seed)
    places = embed(shown.real, shown.generated, shown.groupby)
    names = [basis, f"{basis}_real", f"{basis}_generated"] if shown.groups else [basis]
    return Drawing(names, lambda axes: draw_embedding(axes, places, shown.groups))


def draw_embedding(axes: Sequence[Axes], places: pd.DataFrame, names: Sequence[str]) -> None:
    """Draw all cells on the first axes, and with groups real and generated cells on the second and third."""
    places = places.sample(frac=1, random_state=0)  # random order, so that no group covers another
    x, y = places.columns[-2:]
    _scatter(axes[0], places, [SOURCES[source] for source in places["source"]])
    axes[0].set_title("real and generated", fontsize=10)
    handles = dots(list(SOURCES.values()), list(SOURCES))
    axes[0].legend(handles=handles, frameon=False, fontsize=8, handletextpad=0.2, loc="best")
    colours = dict(zip(names, group_colours(len(names)), strict=True))
    for axis, source in zip(axes[1:], SOURCES, strict=False):
        shown = places[places["source"] == source]
        _scatter(axis, shown, [colours[group] for group in shown["group"]])
        axis.set_title(source, fontsize=10)
        axis.set(xlim=axes[0].get_xlim(), ylim=axes[0].get_ylim())
        if numbered(names):
            number_groups(axis, shown[[x, y]].to_numpy(), shown["group"].to_numpy(), names)
    explained = [f" ({share:.0%} of variance)" for share in places.attrs.get("explained", [])] or ["", ""]
    for axis in axes:
        unticked(axis, x + explained[0], y + explained[1])
        axis.spines[["top", "right"]].set_visible(False)


def _scatter(axis: Axes, places: pd.DataFrame, colours: Sequence[Colour]) -> None:
    x, y = places.iloc[:, -2:].to_numpy().T
    size = float(np.clip(6000 / max(len(x), 1), 2, 10))
    axis.scatter(x, y, c=colours, s=size, alpha=0.8, linewidths=0, rasterized=True)


def _gene_correlation(shown: Shown) -> Drawing:
    n_genes, inches = (40, 5.1) if shown.alone else (100, 3.3)
    correlations = gene_correlations(shown.real, shown.generated, n_genes, layer=shown.layer)
    symbols = pd.Series(symbols_of(shown.real, shown.gene_symbols, "real"), shown.real.var_names)
    names = symbols[correlations[0].index].tolist() if shown.alone else None
    axes = ["correlation_real", "correlation_generated"]
    return Drawing(axes, lambda axes: draw_correlations(axes, correlations, names), inches, [inches])


def draw_correlations(axes: Sequence[Axes], correlations: Sequence[pd.DataFrame], names: Names = None) -> None:
    """Draw both matrices in the order of the real one, on one scale up to the 98 % quantile of correlations."""
    order = _leaf_order(correlations[0].to_numpy())
    strengths = np.abs([matrix.to_numpy()[~np.eye(len(order), dtype=bool)] for matrix in correlations])
    limit = float(np.quantile(strengths, 0.98)) or 1.0
    for axis, title, matrix in zip(axes, ("real", "generated"), correlations, strict=True):
        drawn = matrix.to_numpy()[np.ix_(order, order)]
        image = axis.imshow(drawn, cmap=DIVERGING, vmin=-limit, vmax=limit, interpolation="nearest")
        axis.set_title(title, fontsize=10)
        axis.set(xticks=[], yticks=[])
    if names is not None:
        ordered = [names[i] for i in order]
        axes[0].set_yticks(range(len(order)), ordered, fontsize=6.5)
        for axis in axes:
            axis.set_xticks(range(len(order)), ordered, fontsize=6.5, rotation=90)
            axis.tick_params(length=0)
    colour_bar(image, list(axes), "correlation", shrink=0.7, aspect=15, extend="both")


def _leaf_order(correlations: np.ndarray) -> np.ndarray:
    """Order genes by the leaves of average-linkage clustering."""
    from scipy.cluster.hierarchy import leaves_list, linkage

    if len(correlations) < 3:
        return np.arange(len(correlations))
    distance = squareform(np.clip(1 - correlations, 0, None), checks=False)
    return leaves_list(linkage(distance, "average", optimal_ordering=True))


def _mean_variance(shown: Shown) -> Drawing:
    genes = shown.genes

    def draw(axes: Sequence[Axes]) -> None:
        draw_genes(axes[0], genes, "variance", lambda mean: mean)
        axes[0].set_yscale("log")
        plain(axes[0], "mean count", "variance of the counts")

    return Drawing(["mean_variance"], draw)


def _mean_dropout(shown: Shown) -> Drawing:
    genes = shown.genes

    def draw(axes: Sequence[Axes]) -> None:
        draw_genes(axes[0], genes, "zero_fraction", lambda mean: np.exp(-mean))
        plain(axes[0], "mean count", "fraction of cells without the gene")

    return Drawing(["mean_dropout"], draw)


def draw_genes(axis: Axes, genes: pd.DataFrame, statistic: str, poisson: Callable[[NDArray], NDArray]) -> None:
    """Draw a statistic of genes over their mean; the logarithmic axis excludes undetected genes."""
    for source, colour in SOURCES.items():
        side = genes[source].query("mean > 0")[["mean", statistic]]
        n_bins = min(25, max(1, len(side) // 5))
        medians = side.sort_values("mean").groupby(np.arange(len(side)) * n_bins // max(len(side), 1)).median()
        axis.scatter(side["mean"], side[statistic], s=4, color=colour, alpha=0.35, linewidths=0, rasterized=True)
        axis.plot(*medians.to_numpy().T, color=colour, linewidth=2, label=source, zorder=3)
    means = genes.xs("mean", axis=1, level="statistic").to_numpy()
    at = np.geomspace(means[means > 0].min(), means.max(), 200) if (means > 0).any() else np.ones(1)
    axis.plot(at, poisson(at), "--", color=GREY, linewidth=1, label="Poisson", zorder=2)
    axis.set_xscale("log")
    axis.legend(frameon=False, fontsize=8)


def _library_size(shown: Shown) -> Drawing:
    quantiles = library_size_quantiles(shown.real, shown.generated, layer=shown.layer)
    return Drawing(["library_size"], lambda axes: draw_library_sizes(axes[0], quantiles))


def draw_library_sizes(axis: Axes, quantiles: pd.DataFrame) -> None:
    """Draw quantiles of generated against real cells, with the band of samples of real cells."""
    expected, low, high = (quantiles[name] for name in ("real", "low", "high"))
    axis.fill_between(expected, low, high, color=BLUE, alpha=0.25, linewidth=0, label="real cells")
    axis.plot(expected, expected, color=BLUE, linewidth=1)
    axis.plot(expected, quantiles["generated"], "o", color=ORANGE, markersize=3.5, label="generated cells")
    if (quantiles.drop(columns="share") > 0).to_numpy().all():
        axis.set(xscale="log", yscale="log")
        for side in (axis.xaxis, axis.yaxis):
            number_ticks(side, LogLocator(subs=(1, 2, 5)))
    plain(axis, "library size of real cells", "library size of generated cells")
    axis.legend(frameon=False, fontsize=8)


def number_ticks(axis: Axis, locator: Locator) -> None:
    """Label a logarithmic axis with plain numbers."""
    axis.set_major_locator(locator)
    axis.set_major_formatter("{x:,g}")
    axis.set_minor_locator(NullLocator())


def _roc(shown: Shown) -> Drawing:
    if not shown.scores.folds and shown.alone:
        raise ValueError(f"`scores` holds no classifier: call `evaluate` with one or more of {list(CLASSIFIERS)}.")
    return Drawing(["roc"], lambda axes: draw_roc(axes[0], shown.scores.folds))


def draw_roc(axis: Axes, classifiers: Mapping[str, list[FoldScores]]) -> None:
    """Draw ROC curves of classifiers by the name of the metric."""
    if not classifiers:
        axis.set_title("no classifier in `scores`", fontsize=10)
        return
    axis.plot([0, 1], [0, 1], color=GREY, linewidth=1)
    for name, folds in classifiers.items():
        curve = roc_of_folds(folds)
        (colour, style), at, rates = STYLES[name], curve.false_positive, curve.true_positive
        axis.fill_between(at, rates.min(axis=0), rates.max(axis=0), color=colour, alpha=0.15, linewidth=0)
        label = f"{CLASSIFIERS[name][2]}: {curve.auc.mean():.2f}"
        axis.plot(at, rates.mean(axis=0), style, color=colour, linewidth=1.8, label=label)
    axis.set(xlim=(-0.01, 1.01), ylim=(-0.01, 1.01))
    plain(axis, "false positive rate", "true positive rate")
    legend = axis.legend(title="area under the curve", frameon=False, fontsize=8, loc="lower right")
    legend.get_title().set_fontsize(8)


def _dispersion(shown: Shown) -> Drawing:
    table = shown.scores.dispersion
    if table is None or table["low"].isna().all():
        raise ValueError(
            "`scores` has no intervals of variance ratios: call `evaluate` with `n_bootstrap` above 1, the source "
            "'other_real', and at least ten cells per side."
        )
    enough = table[["low", "other_real_low"]].notna().all(axis=1).groupby("group").transform("any")
    table = table[enough | (table.index.get_level_values("group") == OVERALL)]
    groups = [str(group) for group in table.index.unique("group") if group != WITHIN]
    names = ["dispersion", "dispersion_groups"] if len(groups) > 1 else ["dispersion"]
    heights = [3.0, 0.3 + 0.19 * len(groups)][: len(names)]
    width = 3.5 + 0.26 * min(len(table.index.unique("component")), 60)
    return Drawing(names, lambda axes: draw_dispersion(axes, table, groups), width, heights)


def draw_dispersion(axes: Sequence[Axes], table: pd.DataFrame, groups: Sequence[str]) -> None:
    """Draw the components, and the groups if there are axes for them."""
    known = table.index.unique("group")
    group = next(name for name in ("within", "overall", *known) if name in known)
    _draw_components(axes[0], table.loc[group], group)
    at = np.arange(len(table.loc[group]))
    axes[-1].set_xticks(at, at + 1)
    axes[-1].set_xlim(-0.6, len(at) - 0.4)
    if len(axes) > 1:
        axes[0].tick_params(axis="x", labelbottom=False)
        _draw_groups(axes[1], table, groups)
    plain(axes[-1], "principal component", axes[-1].get_ylabel())
    axes[-1].tick_params(axis="x", labelsize=7)


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
    axis.set_ylim(lowest * (lowest / highest) ** 0.18)  # so that the legend is below all points
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


def _scores(shown: Shown) -> Drawing:
    frame = shown.scores.frame
    relative_scores(frame)  # raises if the scores cannot be drawn
    title = "scores of generated cells" if shown.alone else f"overall: {shown.scores.verdict['verdict'].iloc[0]}"
    return Drawing(["scores"], lambda axes: draw_scores(axes[0], frame, title), *_scores_inches(frame))


def draw_scores(axis: Axes, scores: pd.DataFrame, title: str) -> None:
    """Draw a heat map of groups (rows) and metrics (columns), with the scores as numbers."""
    relative = relative_scores(scores)
    values = scores.xs("generated", level="source")[list(relative)]
    palette = colormaps["Oranges"].with_extremes(bad=NO_PLACE)
    image = axis.imshow(relative, cmap=palette, vmin=0, vmax=1, aspect="auto", interpolation="nearest")
    for row, column in np.ndindex(values.shape):
        score, colour = values.iloc[row, column], "white" if relative.iloc[row, column] > 0.75 else "black"
        text = "–" if np.isnan(score) else f"{score:.{3 if abs(score) < 0.1 else 2}f}"
        axis.text(column, row, text, color=colour, fontsize=6.5, ha="center", va="center")
    axis.set_xticks(range(len(values.columns)), _metric_labels(scores), **SLANTED)
    axis.set_yticks(range(len(values)), _group_labels(scores), fontsize=8)
    axis.set_title(title, fontsize=10)
    axis.set_xlabel("↓ lower, ↑ higher, → this value is best", fontsize=7)
    axis.tick_params(length=0)
    axis.spines[:].set_visible(False)
    bar = colour_bar(image, axis, extend="max", aspect=12, shrink=min(1.0, 8 / len(values)))
    bar.set_ticks([0, 1], labels=["other real\ncells", "negative\ncontrol"])
    grey = Patch(color=NO_PLACE, label=GREY_MEANS)
    bar.ax.legend(handles=[grey], loc="upper left", bbox_to_anchor=(-1, -0.15), fontsize=7, frameon=False)


def _scores_inches(scores: pd.DataFrame) -> tuple[float, list[float]]:
    """Compute the size of the heat map with its labels."""
    groups, names = _group_labels(scores), _metric_labels(scores)
    width = 1.2 + SCORE_INCHES[0] * len(names) + LETTER_INCHES * max(map(len, groups))
    return width, [1.0 + SCORE_INCHES[1] * len(groups) + LETTER_INCHES * max(map(len, names))]


def _group_labels(scores: pd.DataFrame) -> list[str]:
    """Label groups with the number of compared cells."""
    return [f"{group} ({n:.0f})" for group, n in scores["n"].xs("generated", level="source").items()]


def _metric_labels(scores: pd.DataFrame) -> list[str]:
    """Label metrics with the direction in which they are best."""
    best = {name: "real" if isinstance(ideal, str) else f"{ideal:g}" for name, ideal in scores.attrs["ideal"].items()}
    arrows = [{"lower": "↓", "higher": "↑"}.get(scores.attrs["direction"][name], f"→ {best[name]}") for name in best]
    return [f"{name} {arrow}" for name, arrow in zip(best, arrows, strict=True)]


DRAWINGS: Mapping[str, Callable[[Shown], Drawing]] = {
    "umap": partial(_embedding, basis="umap"),
    "pca": partial(_embedding, basis="pca"),
    "gene_correlation": _gene_correlation,
    "mean_variance": _mean_variance,
    "mean_dropout": _mean_dropout,
    "library_size": _library_size,
    "roc": _roc,
    "dispersion": _dispersion,
    "scores": _scores,
}
