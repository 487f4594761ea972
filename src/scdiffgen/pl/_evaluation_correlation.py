"""Correlations of genes in real and in generated cells."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from anndata import AnnData
from matplotlib.axes import Axes
from scipy.cluster.hierarchy import leaves_list, linkage
from scipy.spatial.distance import squareform

from scdiffgen.metrics import GeneCorrelations, gene_correlations
from scdiffgen.pl._figure import Save, figure_of, finish, panels

INCHES = (4.9, 4.5)
MOST_LABELS = 40


def evaluation_gene_correlation(
    real: AnnData,
    generated: AnnData,
    n_genes: int = 40,
    *,
    layer: str | None = None,
    show: bool | None = None,
    save: Save = None,
) -> list[Axes]:
    """Draw the correlations of genes in real cells beside those in generated cells.

    Genes are those of log-normalised expression that vary most in the real cells, in one order, which puts genes side
    by side that correlate in the real cells. Blocks that are there on the left and not on the right are programmes that
    were not learned.

    Parameters
    ----------
    real
        Real cells.
    generated
        Generated cells; genes are aligned by name.
    n_genes
        Number of genes; up to 40 are named.
    layer
        Layer of the counts, by default ``.X``; cells without layers, as generated ones are, are read from ``.X``.
    show
        Whether to show the figure; by default ``scanpy.settings.autoshow``.
    save
        ``True`` or text saves to ``scanpy.settings.figdir`` as scanpy does; a :class:`~pathlib.Path` to that file.

    Returns
    -------
    The axes of the real and of the generated cells.

    Examples
    --------
    >>> axes = evaluation_gene_correlation(adata[::2], adata[1::2], layer="counts")
    >>> [axis.get_title() for axis in axes]
    ['real', 'generated']
    """
    correlations = gene_correlations(real, generated, n_genes, layer=layer)
    axes = panels(2, 2, INCHES)
    draw_correlations(axes, correlations, with_names=len(correlations.real) <= MOST_LABELS)
    finish(axes, "evaluation_gene_correlation", show, save)
    return axes


def draw_correlations(axes: Sequence[Axes], correlations: GeneCorrelations, *, with_names: bool) -> None:
    """Draw both matrices in the order of the real one, on one scale that ends at 98 % of all correlations."""
    order = _order(correlations.real.to_numpy())
    genes = correlations.real.index[order]
    off_diagonal = ~np.eye(len(genes), dtype=bool)
    strengths = np.abs([matrix.to_numpy()[off_diagonal] for matrix in correlations])
    limit = float(np.quantile(strengths, 0.98)) or 1.0
    for axis, title, matrix in zip(axes, GeneCorrelations._fields, correlations, strict=True):
        drawn = matrix.to_numpy()[np.ix_(order, order)]
        image = axis.imshow(drawn, cmap="RdBu_r", vmin=-limit, vmax=limit, interpolation="nearest")
        axis.set_title(title, fontsize=10)
        axis.set(xticks=[], yticks=[])
    if with_names:
        axes[0].set_yticks(range(len(genes)), genes, fontsize=7)
        axes[0].tick_params(axis="y", length=0)
    bar = figure_of(axes).colorbar(image, ax=list(axes), shrink=0.7, aspect=15, extend="both")
    bar.set_label("correlation", fontsize=8)
    bar.ax.tick_params(labelsize=7)


def _order(correlations: np.ndarray) -> np.ndarray:
    """Genes in an order that puts those side by side that correlate: leaves of average linkage."""
    if len(correlations) < 3:
        return np.arange(len(correlations))
    distance = np.clip(1 - correlations, 0, None)
    np.fill_diagonal(distance, 0)
    return leaves_list(linkage(squareform(distance, checks=False), "average", optimal_ordering=True))
