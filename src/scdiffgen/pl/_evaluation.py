"""Everything about generated cells on one page."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from typing import cast

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from anndata import AnnData
from matplotlib.axes import Axes

from scdiffgen.metrics import (
    EVALUATION_METRICS,
    FewCellsWarning,
    evaluate,
    gene_correlations,
    joint_embedding,
    relative_scores,
)
from scdiffgen.pl._evaluation_correlation import draw_correlations
from scdiffgen.pl._evaluation_embedding import draw_embedding, group_names, legend_inches, legend_options
from scdiffgen.pl._evaluation_genes import evaluation_mean_dropout, evaluation_mean_variance
from scdiffgen.pl._evaluation_library import evaluation_library_size
from scdiffgen.pl._evaluation_roc import evaluation_roc
from scdiffgen.pl._evaluation_scores import evaluation_scores, heatmap_inches
from scdiffgen.pl._figure import Save, finish

PANEL_INCHES = (3.3, 3.1)
SLOW = ("c2st_auc_forest_pcs", "c2st_auc_forest_genes", "c2st_auc_logistic_genes", "wasserstein")
SCORED_CELLS, RESAMPLES = 500, 50  # of each group, if the page computes the scores itself
N_GENES = 100

Rows = Sequence[Sequence[str]]  # names of panels
ALONE: Sequence[Rows] = (
    (("umap", "pca", "correlation_real", "correlation_generated"),),
    (("mean_variance", "mean_dropout", "library_size", "roc"),),
)
IN_GROUPS: Sequence[Rows] = (
    (("umap", "umap_real", "umap_generated"), ("pca", "pca_real", "pca_generated")),
    (("mean_variance", "mean_dropout", "library_size"),),
    (("roc", "correlation_real", "correlation_generated"),),
)


def evaluation(
    real: AnnData,
    generated: AnnData,
    train: AnnData | None = None,
    groupby: str | None = None,
    *,
    scores: pd.DataFrame | None = None,
    layer: str | None = None,
    n_jobs: int = 1,
    seed: int = 0,
    show: bool | None = None,
    save: Save = None,
) -> dict[str, Axes]:
    """Draw generated beside real cells on one page.

    The page has embeddings of both, by group if there are groups; mean and variance, and mean and zeros, of the genes;
    library sizes; how well classifiers tell generated cells; correlations of genes; and scores by group. Each is a
    function of its own, with more options: `evaluation_embedding`, `evaluation_mean_variance`,
    `evaluation_mean_dropout`, `evaluation_library_size`, `evaluation_roc`, `evaluation_gene_correlation`,
    `evaluation_scores`.

    Parameters
    ----------
    real
        Real cells that were held out of training.
    generated
        Generated cells, of the same groups; genes are aligned by name.
    train
        Cells that the generator was trained on, which spaces and classifiers are fitted on; by default half of the real
        ones.
    groupby
        Column of ``obs`` of all.
    scores
        From :func:`scdiffgen.metrics.evaluate`. ``None`` computes those that are fast, on at most 500 cells of each
        group; a dash stands for scores that need more cells than a group has.
    layer
        Layer of the counts, by default ``.X``; cells without layers, as generated ones are, are read from ``.X``.
    n_jobs
        Threads of the forests.
    seed
        Seed of everything.
    show
        Whether to show the figure; by default ``scanpy.settings.autoshow``.
    save
        ``True`` or text saves to ``scanpy.settings.figdir`` as scanpy does; a :class:`~pathlib.Path` to that file.

    Returns
    -------
    The axes by what they show: ``"umap"``, ``"pca"``, ``"mean_variance"``, ``"mean_dropout"``, ``"library_size"``,
    ``"roc"``, ``"correlation_real"``, ``"correlation_generated"``, ``"scores"``; with groups also ``"umap_real"``,
    ``"umap_generated"``, ``"pca_real"``, ``"pca_generated"``.

    Examples
    --------
    >>> axes = evaluation(adata[::2], adata[1::2], layer="counts")
    >>> axes["roc"].get_xlabel()
    'real cells taken for generated'
    """
    if scores is None:
        scores = _fast_scores(real, generated, train, groupby, layer, seed)
    relative_scores(scores)  # raises, before anything is drawn, if these are not scores that can be drawn
    umap, pca = (
        joint_embedding(real, generated, groupby, basis=basis, layer=layer, seed=seed) for basis in ("umap", "pca")
    )
    axes = _page(group_names(umap), heatmap_inches(scores))
    for name, places in (("umap", umap), ("pca", pca)):
        draw_embedding(_named(axes, name, f"{name}_real", f"{name}_generated"), places, group_names(places))
    draw_correlations(
        _named(axes, "correlation_real", "correlation_generated"),
        gene_correlations(real, generated, N_GENES, layer=layer),
        with_names=False,
    )
    evaluation_mean_variance(real, generated, layer=layer, ax=axes["mean_variance"], show=False)
    evaluation_mean_dropout(real, generated, layer=layer, ax=axes["mean_dropout"], show=False)
    evaluation_library_size(real, generated, layer=layer, ax=axes["library_size"], show=False)
    evaluation_roc(real, generated, train, groupby, layer=layer, n_jobs=n_jobs, seed=seed, ax=axes["roc"], show=False)
    evaluation_scores(scores, ax=axes["scores"], show=False)
    finish(list(axes.values()), "evaluation", show, save)
    return axes


def _fast_scores(
    real: AnnData, generated: AnnData, train: AnnData | None, groupby: str | None, layer: str | None, seed: int
) -> pd.DataFrame:
    fast = [name for name in EVALUATION_METRICS if name not in SLOW]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FewCellsWarning)  # the figure shows it
        return evaluate(
            real,
            generated,
            train,
            groupby,
            layer=layer,
            metrics=fast,
            max_cells=SCORED_CELLS,
            n_bootstrap=RESAMPLES,
            seed=seed,
        )


def _page(names: Sequence[str], heatmap: tuple[float, float]) -> dict[str, Axes]:
    """Empty axes by name, and the legend of the groups."""
    blocks = IN_GROUPS if names else ALONE
    heights = [PANEL_INCHES[1] * len(rows) for rows in blocks] + [heatmap[1]]
    width = max(PANEL_INCHES[0] * len(blocks[0][0]) + legend_inches(names), heatmap[0])
    figure = plt.figure(figsize=(width, sum(heights)), layout="constrained")
    *parts, last = cast("np.ndarray", figure.subfigures(len(heights), 1, height_ratios=heights))
    axes: dict[str, Axes] = {}
    for part, rows in zip(parts, blocks, strict=True):
        axes |= part.subplot_mosaic([list(row) for row in rows])
    if names:
        parts[0].legend(**legend_options(names), loc="outside right center")
    return axes | {"scores": last.subplots()}


def _named(axes: Mapping[str, Axes], *names: str) -> list[Axes]:
    return [axes[name] for name in names if name in axes]
