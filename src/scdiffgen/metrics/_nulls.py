"""Null generators: cells with the right gene means, or the right gene distributions, and nothing else.

A generator that does not clearly beat them has learned no more than one statistic a gene.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike
from scipy import sparse

from scdiffgen.metrics._groups import as_labels, label_sums, positions_of_labels
from scdiffgen.metrics._input import CountsLike, as_counts

CHUNK = 1000  # cells, or genes, that are dense at a time


def null_poisson(
    counts: CountsLike, labels: ArrayLike, labels_out: ArrayLike, *, layer: str | None = None, seed: int = 0
) -> sparse.csr_matrix:
    """Independent Poisson counts at the mean of each label.

    Parameters
    ----------
    counts
        Real counts, (cells, genes).
    labels
        Their labels, (cells,).
    labels_out
        Label of every cell to draw.
    layer
        Layer of an AnnData that holds the counts.
    seed
        Seed of the draws.

    Returns
    -------
    Counts, (len(labels_out), genes).

    Examples
    --------
    >>> null_poisson([[0, 4], [0, 8]], ["a", "a"], ["a"] * 3).shape
    (3, 2)
    """
    matrix = as_counts(counts, layer=layer)
    known, sums, n_cells = label_sums(matrix, labels, "labels")
    means = sums / n_cells[:, None]
    which = positions_of_labels(labels_out, known, np.size(labels_out), "labels_out")
    rng = np.random.default_rng(seed)
    chunks = [
        sparse.csr_matrix(rng.poisson(means[which[start : start + CHUNK]]), dtype=np.float32)
        for start in range(0, len(which), CHUNK)
    ]
    return sparse.vstack(chunks, format="csr") if chunks else matrix[:0]


def null_shuffled(
    counts: CountsLike, labels: ArrayLike, labels_out: ArrayLike, *, layer: str | None = None, seed: int = 0
) -> sparse.csr_matrix:
    """Real values, shuffled over the cells of a label for each gene apart: right marginals, no correlation of genes.

    Parameters
    ----------
    counts
        Real counts, (cells, genes).
    labels
        Their labels, (cells,).
    labels_out
        Label of every cell to draw. Values are drawn without replacement for as many cells as there are, and again from
        the start beyond.
    layer
        Layer of an AnnData that holds the counts.
    seed
        Seed of the shuffles.

    Returns
    -------
    Counts, (len(labels_out), genes).

    Examples
    --------
    >>> null_shuffled([[3, 4], [3, 8]], ["a", "a"], ["a", "a"]).sum()
    np.float32(18.0)
    """
    matrix = as_counts(counts, layer=layer)
    names = as_labels(labels, matrix.shape[0], "labels")
    known = np.unique(names)
    which = positions_of_labels(labels_out, known, np.size(labels_out), "labels_out")
    rng = np.random.default_rng(seed)
    blocks, rows = [], []
    for c in np.unique(which):
        rows.append(np.flatnonzero(which == c))
        blocks.append(_shuffle_genes(matrix[names == known[c]], len(rows[-1]), rng))
    if not blocks:
        return matrix[:0]
    return sparse.vstack(blocks, format="csr")[np.argsort(np.concatenate(rows))]


def _shuffle_genes(cells: sparse.csr_matrix, n_out: int, rng: np.random.Generator) -> sparse.csr_matrix:
    columns = cells.tocsc()
    repeats = -(-n_out // cells.shape[0])
    chunks = []
    for start in range(0, cells.shape[1], CHUNK):
        dense = columns[:, start : start + CHUNK].toarray()
        shuffled = [rng.permuted(dense, axis=0) for _ in range(repeats)]
        chunks.append(sparse.csr_matrix(np.concatenate(shuffled)[:n_out]))
    return sparse.hstack(chunks, format="csr", dtype=np.float32)
