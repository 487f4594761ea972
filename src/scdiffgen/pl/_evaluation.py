"""Figures of generated and real cells: all comparisons on one page, and each panel."""

import warnings
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Literal, cast

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from anndata import AnnData
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.cm import ScalarMappable
from matplotlib.colors import LogNorm
from matplotlib.figure import FigureBase
from matplotlib.patches import Patch
from matplotlib.ticker import FixedLocator, Locator, LogLocator, NullLocator
from numpy.typing import NDArray
from scipy.spatial.distance import squareform

from scdiffgen import metrics
from scdiffgen._names import symbols_of
from scdiffgen._shared_docs import shared_docs
from scdiffgen.metrics._classifiers import CLASSIFIERS, FoldScores
from scdiffgen.metrics._evaluate import Evaluation, relative_scores
from scdiffgen.metrics._summaries import (
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
    figure_of,
    finish,
    group_colours,
    legend_inches,
    number_groups,
    numbered,
    panels,
    plain,
    shortened,
    unticked,
)

PANELS = ("mean_variance", "mean_dropout", "library_size")  # panels that need real and generated cells only
BASES: tuple[Literal["umap", "pca"], ...] = ("umap", "pca")
CORRELATIONS = ("correlation_real", "correlation_generated")
ALONE = [[[*BASES, *CORRELATIONS]], [[*PANELS, "roc"]]]  # rows of panels, in blocks
IN_GROUPS = [[[basis, f"{basis}_real", f"{basis}_generated"] for basis in BASES], [[*PANELS]], [["roc", *CORRELATIONS]]]

EMBEDDING_INCHES = (3.1, 3.0)

INCHES = (3.2, 3.0)
STYLES = dict(zip(CLASSIFIERS, ((BLUE, "--"), (VERMILION, "-"), (GREEN, ":")), strict=True))

SCORE_INCHES, LETTER_INCHES = (0.5, 0.24), 0.07
NO_PLACE = "#E8E8E8"
GREY_MEANS = "not scored: the metric\ndoes not distinguish\ncontrol and real cells,\nor too few cells"

TICKS, FAR_TICKS = (0.2, 0.3, 0.5, 0.7, 1, 1.5, 2, 3, 5), (0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1, 3, 10, 30)
WIDEST = 4.0  # variance ratio of the darkest colour
NEEDED = {"ratio", "low", "high", "other_real", "other_real_low", "other_real_high", "apart", "genes", "n"}


@shared_docs
def evaluation(
    real: AnnData,
    generated: AnnData,
    train: AnnData | None = None,
    groupby: str | None = None,
    *,
    scores: metrics.Evaluation | None = None,
    layer: str | None = None,
    gene_symbols: str | None = None,
    n_jobs: int = 1,
    seed: int = 0,
    show: Show = None,
    save: Save = None,
) -> dict[str, Axes]:
    """Draw all comparisons of generated and real cells on one page.

    The panels are embeddings; mean against variance and dropout of genes; library sizes; ROC curves of classifiers;
    gene correlations; variances along principal components; and scores by group. Each panel has its own function with
    more options: `evaluation_embedding`, `evaluation_mean_variance`, `evaluation_mean_dropout`,
    `evaluation_library_size`, `evaluation_roc`, `evaluation_gene_correlation`, `evaluation_dispersion`,
    `evaluation_scores`.

    Parameters
    ----------
    groupby
        Column of ``obs`` of all cells.
    scores
        Result of :func:`scdiffgen.metrics.evaluate`, whose classifiers and components are drawn. ``None`` computes the
        default scores with forests of 25 trees on at most 500 cells per group. Missing scores are shown as a dash.
    seed
        Random seed of all panels.

    Returns
    -------
    The axes by name: ``"umap"``, ``"pca"``, ``"mean_variance"``, ``"mean_dropout"``, ``"library_size"``,
    ``"roc"``, ``"correlation_real"``, ``"correlation_generated"``, ``"dispersion"``, ``"scores"``; with groups also
    ``"umap_real"``, ``"umap_generated"``, ``"pca_real"``, ``"pca_generated"``, ``"dispersion_groups"``.

    Examples
    --------
    >>> axes = evaluation(adata[::2], adata[1::2], layer="counts")
    """
    if scores is None:
        score = partial(metrics.evaluate, n_bootstrap=50, n_trees=25, max_cells=500, silent=True)
        score = partial(score, layer=layer, gene_symbols=gene_symbols, n_jobs=n_jobs, seed=seed)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", metrics.FewCellsWarning)  # shown in the figure
            scores = score(real, generated, train, groupby)
    if not isinstance(scores, metrics.Evaluation):
        raise TypeError("`scores` is not an `Evaluation`: pass the result of `metrics.evaluate`, not its `.frame`.")
    relative_scores(scores.frame)  # raises before drawing if the scores cannot be drawn
    places = {b: joint_embedding(real, generated, groupby, basis=b, layer=layer, seed=seed) for b in BASES}
    names = group_names(places["umap"])
    ratios = of_enough_cells(scores.dispersion)
    axes = _page(names, ratios, scores_inches(scores.frame))
    for basis in BASES:
        draw_embedding([axes[name] for name in axes if name.startswith(basis)], places[basis], names)
    correlations = gene_correlations(real, generated, n_genes=100, layer=layer)
    draw_correlations([axes[name] for name in CORRELATIONS], correlations)
    of_genes = evaluation_mean_variance, evaluation_mean_dropout, evaluation_library_size
    for name, panel in zip(PANELS, of_genes, strict=True):
        panel(real, generated, layer=layer, ax=axes[name], show=False)
    if scores.folds:
        draw_roc(axes["roc"], scores.folds)
    else:
        axes["roc"].set_title("no classifier in `scores`", fontsize=10)
    draw_dispersion([axes[name] for name in axes if name.startswith("dispersion")], ratios)
    evaluation_scores(scores, ax=axes["scores"], show=False)
    axes["scores"].set_title(scores.sentences()[0], fontsize=10)
    finish(list(axes.values()), "evaluation", show, save)
    return axes


def _page(names: Sequence[str], dispersion: pd.DataFrame, heatmap: tuple[float, float]) -> dict[str, Axes]:
    """Create axes by name, and draw the legend of the groups."""
    blocks = IN_GROUPS if names else ALONE
    below = [dispersion_inches(dispersion), heatmap]
    heights = [3.1 * len(rows) for rows in blocks] + [height for _, height in below]
    width = max(3.3 * len(blocks[0][0]) + legend_inches(names), *(width for width, _ in below))
    figure = plt.figure(figsize=(width, sum(heights)), layout="constrained")
    *parts, wide, last = cast("np.ndarray", figure.subfigures(len(heights), 1, height_ratios=heights))
    axes: dict[str, Axes] = {}
    for part, rows in zip(parts, blocks, strict=True):
        axes |= part.subplot_mosaic(rows)
    if names:
        add_legend(parts[0], names)
    axes |= dict(zip(("dispersion", "dispersion_groups"), dispersion_axes(wide, dispersion), strict=False))
    return axes | {"scores": last.subplots()}


@shared_docs
def evaluation_embedding(
    real: AnnData,
    generated: AnnData,
    groupby: str | None = None,
    *,
    basis: Literal["umap", "pca"] = "umap",
    layer: str | None = None,
    max_cells: int = 5000,
    seed: int = 0,
    ax: Ax = None,
    show: Show = None,
    save: Save = None,
) -> list[Axes]:
    """Draw real and generated cells in one UMAP, or on the first two principal components.

    The first panel shows all cells in random order. With groups, two further panels show real and generated cells
    separately, coloured by group; more than eight groups are also numbered. An embedding shows gross errors only; for
    scores use :func:`scdiffgen.metrics.evaluate`.

    Parameters
    ----------
    groupby
        Column of ``obs`` of real and generated cells.
    basis
        ``"umap"`` or ``"pca"``.
    seed
        Random seed of the subsampling and of the UMAP.

    Returns
    -------
    The axes: one for all cells, and with groups one for real and one for generated cells.

    Examples
    --------
    >>> axes = evaluation_embedding(adata[::2], adata[1::2], "cell_type", basis="pca", layer="counts")
    """
    places = joint_embedding(real, generated, groupby, basis=basis, layer=layer, max_cells=max_cells, seed=seed)
    names = group_names(places)
    axes = panels(3 if names else 1, 3, EMBEDDING_INCHES, ax)
    if names:
        figure = figure_of(axes)
        figure.set_size_inches(3 * EMBEDDING_INCHES[0] + legend_inches(names), EMBEDDING_INCHES[1])
        add_legend(figure, names)
    draw_embedding(axes, places, names)
    return finish(axes, f"evaluation_{basis}", show, save)


def group_names(places: pd.DataFrame) -> list[str]:
    """Return sorted groups of embedded cells; empty without groups."""
    return sorted(places["group"].unique()) if "group" in places else []


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


@shared_docs
def evaluation_mean_variance(
    real: AnnData, generated: AnnData, *, layer: str | None = None, ax: Ax = None, show: Show = None, save: Save = None
) -> Axes:
    """Draw the variance of each gene's counts against its mean, in real and generated cells.

    Lines are medians over genes of similar mean. The dashed line is the Poisson distribution; generated cells on this
    line lack the overdispersion of real cells.

    Examples
    --------
    >>> axis = evaluation_mean_variance(adata[::2], adata[1::2], layer="counts")
    """
    axis = _draw_genes(gene_summary(real, generated, layer=layer), "variance", lambda mean: mean, ax)
    axis.set_yscale("log")
    plain(axis, "mean count", "variance of the counts")
    return finish(axis, "evaluation_mean_variance", show, save)


@shared_docs
def evaluation_mean_dropout(
    real: AnnData, generated: AnnData, *, layer: str | None = None, ax: Ax = None, show: Show = None, save: Save = None
) -> Axes:
    """Draw the dropout rate of each gene (fraction of zeros) against its mean count, in real and generated cells.

    Lines are medians over genes of similar mean. The dashed line is the Poisson distribution.

    Examples
    --------
    >>> axis = evaluation_mean_dropout(adata[::2], adata[1::2], layer="counts")
    """
    axis = _draw_genes(gene_summary(real, generated, layer=layer), "zero_fraction", lambda mean: np.exp(-mean), ax)
    plain(axis, "mean count", "fraction of cells without the gene")
    return finish(axis, "evaluation_mean_dropout", show, save)


def _draw_genes(genes: pd.DataFrame, statistic: str, poisson: Callable[[NDArray], NDArray], ax: Ax) -> Axes:
    """Draw a statistic of genes over their mean; the logarithmic axis excludes undetected genes."""
    (axis,) = panels(1, 1, INCHES, ax)
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
    return axis


@shared_docs
def evaluation_library_size(
    real: AnnData, generated: AnnData, *, layer: str | None = None, ax: Ax = None, show: Show = None, save: Save = None
) -> Axes:
    """Draw a quantile-quantile plot of library sizes of generated against real cells.

    Generated cells with the right library sizes lie on the diagonal. The band holds 95 % of the samples of as many
    cells from the real population.

    Examples
    --------
    >>> axis = evaluation_library_size(adata[::2], adata[1::2], layer="counts")
    """
    quantiles = library_size_quantiles(real, generated, layer=layer)
    expected, low, high = (quantiles[name] for name in ("real", "low", "high"))
    (axis,) = panels(1, 1, INCHES, ax)
    axis.fill_between(expected, low, high, color=BLUE, alpha=0.25, linewidth=0, label="real cells")
    axis.plot(expected, expected, color=BLUE, linewidth=1)
    axis.plot(expected, quantiles["generated"], "o", color=ORANGE, markersize=3.5, label="generated cells")
    if (quantiles.drop(columns="share") > 0).to_numpy().all():
        axis.set(xscale="log", yscale="log")
        for side in (axis.xaxis, axis.yaxis):
            number_ticks(side, LogLocator(subs=(1, 2, 5)))
    plain(axis, "library size of real cells", "library size of generated cells")
    axis.legend(frameon=False, fontsize=8)
    return finish(axis, "evaluation_library_size", show, save)


def number_ticks(axis: Axis, locator: Locator) -> None:
    """Label a logarithmic axis with plain numbers."""
    axis.set_major_locator(locator)
    axis.set_major_formatter("{x:,g}")
    axis.set_minor_locator(NullLocator())


@shared_docs
def evaluation_roc(scores: Evaluation, *, ax: Ax = None, show: Show = None, save: Save = None) -> Axes:
    """Draw ROC curves of classifiers that distinguish generated from real cells.

    A line is the mean over five test folds, and its band their range. Generated cells are positives: a curve on the
    diagonal does not distinguish them from real cells, and a curve near the upper left corner does.

    Parameters
    ----------
    scores
        Result of :func:`scdiffgen.metrics.evaluate`.

    Raises
    ------
    ValueError
        If ``scores`` holds no classifier.

    Examples
    --------
    >>> from scdiffgen.metrics import evaluate
    >>> scores = evaluate(adata[::2], adata[1::2], layer="counts", n_trees=10, metrics="c2st_auc_forest_pcs")
    >>> axis = evaluation_roc(scores)
    """
    if not scores.folds:
        raise ValueError(f"`scores` holds no classifier: call `evaluate` with one or more of {list(CLASSIFIERS)}.")
    (axis,) = panels(1, 1, INCHES, ax)
    draw_roc(axis, scores.folds)
    return finish(axis, "evaluation_roc", show, save)


def draw_roc(axis: Axes, classifiers: Mapping[str, list[FoldScores]]) -> None:
    """Draw ROC curves of classifiers by the name of the metric."""
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


@shared_docs
def evaluation_scores(
    scores: Evaluation | pd.DataFrame, *, ax: Ax = None, show: Show = None, save: Save = None
) -> Axes:
    """Draw scores of generated cells as a heat map of groups (rows) and metrics (columns).

    Numbers are scores. Colours place them between other real cells (the ceiling, light) and the worse negative control
    (dark). A score is grey if the metric does not distinguish the negative control from real cells, often because there
    are too few cells. Arrows show where a metric is best, and brackets the number of compared cells.

    Parameters
    ----------
    scores
        Result of :func:`scdiffgen.metrics.evaluate`, or its ``.frame``.

    Raises
    ------
    ValueError
        If ``scores`` lacks the real-versus-real ceiling, a negative control or intervals.

    Examples
    --------
    >>> from scdiffgen.metrics import evaluate
    >>> scores = evaluate(adata[::2], adata[1::2], layer="counts", metrics=["mmd", "gene_correlation"])
    >>> axis = evaluation_scores(scores)
    """
    scores = scores.frame if isinstance(scores, Evaluation) else scores
    relative = relative_scores(scores)
    values = scores.xs("generated", level="source")[list(relative)]
    (axis,) = panels(1, 1, scores_inches(scores), ax)
    palette = colormaps["Oranges"].with_extremes(bad=NO_PLACE)
    image = axis.imshow(relative, cmap=palette, vmin=0, vmax=1, aspect="auto", interpolation="nearest")
    for row, column in np.ndindex(values.shape):
        score, colour = values.iloc[row, column], "white" if relative.iloc[row, column] > 0.75 else "black"
        text = "–" if np.isnan(score) else f"{score:.{3 if abs(score) < 0.1 else 2}f}"
        axis.text(column, row, text, color=colour, fontsize=6.5, ha="center", va="center")
    axis.set_xticks(range(len(values.columns)), _metric_labels(scores), **SLANTED)
    axis.set_yticks(range(len(values)), _group_labels(scores), fontsize=8)
    axis.set_title("scores of generated cells", fontsize=10)
    axis.set_xlabel("↓ lower, ↑ higher, → this value is best", fontsize=7)
    axis.tick_params(length=0)
    axis.spines[:].set_visible(False)
    bar = colour_bar(image, axis, extend="max", aspect=12, shrink=min(1.0, 8 / len(values)))
    bar.set_ticks([0, 1], labels=["other real\ncells", "negative\ncontrol"])
    grey = Patch(color=NO_PLACE, label=GREY_MEANS)
    bar.ax.legend(handles=[grey], loc="upper left", bbox_to_anchor=(-1, -0.15), fontsize=7, frameon=False)
    return finish(axis, "evaluation_scores", show, save)


def scores_inches(scores: pd.DataFrame) -> tuple[float, float]:
    """Compute the size of the heat map with its labels."""
    groups, names = _group_labels(scores), _metric_labels(scores)
    width = 1.2 + SCORE_INCHES[0] * len(names) + LETTER_INCHES * max(map(len, groups))
    return width, 1.0 + SCORE_INCHES[1] * len(groups) + LETTER_INCHES * max(map(len, names))


def _group_labels(scores: pd.DataFrame) -> list[str]:
    """Label groups with the number of compared cells."""
    return [f"{group} ({n:.0f})" for group, n in scores["n"].xs("generated", level="source").items()]


def _metric_labels(scores: pd.DataFrame) -> list[str]:
    """Label metrics with the direction in which they are best."""
    best = {name: "real" if isinstance(ideal, str) else f"{ideal:g}" for name, ideal in scores.attrs["ideal"].items()}
    arrows = [{"lower": "↓", "higher": "↑"}.get(scores.attrs["direction"][name], f"→ {best[name]}") for name in best]
    return [f"{name} {arrow}" for name, arrow in zip(best, arrows, strict=True)]


@shared_docs
def evaluation_gene_correlation(
    real: AnnData,
    generated: AnnData,
    n_genes: int = 40,
    *,
    gene_symbols: str | None = None,
    layer: str | None = None,
    show: Show = None,
    save: Save = None,
) -> list[Axes]:
    """Draw gene-gene correlations in real cells beside those in generated cells.

    Genes are those with the largest variance of log-normalised expression in real cells, ordered by hierarchical
    clustering of their correlations in real cells. Blocks on the left that are absent on the right are gene programs
    that were not learned.

    Parameters
    ----------
    n_genes
        Number of genes; at most 40 are named.
    gene_symbols
        Column of ``real.var`` with gene symbols, as in scanpy; by default ``.var_names``.

    Returns
    -------
    The axes of the real and of the generated cells.

    Examples
    --------
    >>> axes = evaluation_gene_correlation(adata[::2], adata[1::2], layer="counts")
    """
    correlations = gene_correlations(real, generated, n_genes, layer=layer)
    axes = panels(2, 2, (5.1, 5.1))
    symbols = pd.Series(symbols_of(real, gene_symbols, "real"), index=real.var_names)
    names = symbols[correlations[0].index].tolist() if len(correlations[0]) <= 40 else None
    draw_correlations(axes, correlations, names)
    return finish(axes, "evaluation_gene_correlation", show, save)


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
