"""All comparisons of generated and real cells on one page."""

import warnings
from collections.abc import Sequence
from functools import partial
from typing import Literal, cast

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from anndata import AnnData
from matplotlib.axes import Axes

from scdiffgen import metrics
from scdiffgen._shared_docs import shared_docs
from scdiffgen.metrics._score_verdicts import relative_scores
from scdiffgen.metrics._summaries import gene_correlations, joint_embedding
from scdiffgen.pl import _evaluation_panels as panels
from scdiffgen.pl import _group_style as groups
from scdiffgen.pl._dispersion_panel import dispersion_axes, dispersion_inches, draw_dispersion, of_enough_cells
from scdiffgen.pl._embeddings import draw_embedding, group_names
from scdiffgen.pl._figure import Save, Show, finish
from scdiffgen.pl._heat_maps import draw_correlations, evaluation_scores, scores_inches

PANELS = {  # panels that need real and generated cells only
    "mean_variance": panels.evaluation_mean_variance,
    "mean_dropout": panels.evaluation_mean_dropout,
    "library_size": panels.evaluation_library_size,
}
BASES: tuple[Literal["umap", "pca"], ...] = ("umap", "pca")
CORRELATIONS = ("correlation_real", "correlation_generated")
ALONE = [[[*BASES, *CORRELATIONS]], [[*PANELS, "roc"]]]  # rows of panels, in blocks
IN_GROUPS = [[[basis, f"{basis}_real", f"{basis}_generated"] for basis in BASES], [[*PANELS]], [["roc", *CORRELATIONS]]]


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
    for name, panel in PANELS.items():
        panel(real, generated, layer=layer, ax=axes[name], show=False)
    if scores.folds:
        panels.draw_roc(axes["roc"], scores.folds)
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
    width = max(3.3 * len(blocks[0][0]) + groups.legend_inches(names), *(width for width, _ in below))
    figure = plt.figure(figsize=(width, sum(heights)), layout="constrained")
    *parts, wide, last = cast("np.ndarray", figure.subfigures(len(heights), 1, height_ratios=heights))
    axes: dict[str, Axes] = {}
    for part, rows in zip(parts, blocks, strict=True):
        axes |= part.subplot_mosaic(rows)
    if names:
        groups.add_legend(parts[0], names)
    axes |= dict(zip(("dispersion", "dispersion_groups"), dispersion_axes(wide, dispersion), strict=False))
    return axes | {"scores": last.subplots()}
