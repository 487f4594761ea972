"""Panels of real and generated cells: gene means, variances and dropout, library sizes, and ROC curves."""

from collections.abc import Callable, Mapping

import numpy as np
import pandas as pd
from anndata import AnnData
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.ticker import Locator, LogLocator, NullLocator
from numpy.typing import NDArray

from scdiffgen._shared_docs import shared_docs
from scdiffgen.metrics._classifiers import CLASSIFIERS, FoldScores
from scdiffgen.metrics._evaluation import Evaluation
from scdiffgen.metrics._summaries import gene_summary, library_size_quantiles, roc_of_folds
from scdiffgen.pl._figure import BLUE, GREEN, GREY, ORANGE, VERMILION, Ax, Save, Show, finish, panels, plain
from scdiffgen.pl._group_style import SOURCES

INCHES = (3.2, 3.0)
STYLES = dict(zip(CLASSIFIERS, ((BLUE, "--"), (VERMILION, "-"), (GREEN, ":")), strict=True))


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
