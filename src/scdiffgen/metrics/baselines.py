"""Baselines: simple predictions of responses, and negative controls and simulators of generated cells.

No baseline uses the target cells or their library sizes. Two predictions need no function: the mean of known changes of
mean log expression, and for a combination the sum of the changes by its parts.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import sparse
from sklearn.decomposition import PCA
from sklearn.linear_model import Ridge

from scdiffgen._log_normalise import library_sizes, log_normalise
from scdiffgen._shared_docs import shared_docs
from scdiffgen.normal_scores import GaussianCopula
from scdiffgen.responses import dose_weights

from ._distances import CHUNK
from ._input import CountsLike, as_counts, label_codes, label_sums

__all__ = ["dose_shift", "gaussian_copula", "null_poisson", "null_shuffled"]

BANDWIDTHS = (0.25, 0.5, 1.0, 2.0, 4.0, 8.0)


def linear_shift(
    means: ArrayLike, control: ArrayLike, targets: Sequence[Sequence[int]], wanted: Sequence[int]
) -> NDArray[np.float64]:
    r"""Predict the change (genes,) by the linear model of Ahlmann-Eltze, Huber & Anders (2025, Nature Methods).

    :math:`Y \approx G K P^T + b`, :math:`K = (G^T G + \lambda)^{-1} G^T (Y - b) P (P^T P + \lambda)^{-1}`. Y are the
    changes of training perturbations (0 for control), b their row means, G gene coordinates in a PCA of means, and P
    the rows of G of perturbed genes (0 for control). Unlike the paper, a combination has the sum of its genes' rows.
    """
    baseline = np.asarray(control, dtype=np.float64)
    expression = np.vstack([np.asarray(means, dtype=np.float64), baseline]).T  # (genes, perturbations and control)
    if len(targets) != expression.shape[1] - 1:
        raise ValueError(f"`targets` has {len(targets)} entries for {expression.shape[1] - 1} training perturbations.")
    n_components = min(10, len(targets), expression.shape[0])
    genes = PCA(n_components, svd_solver="full").fit_transform(expression)
    perturbations = np.array([genes[list(rows)].sum(axis=0) for rows in [*targets, []]])
    changes = expression - baseline[:, None]
    offset = changes.mean(axis=1)
    ridge_regression = Ridge(0.1, fit_intercept=False, solver="cholesky")
    left = ridge_regression.fit(genes, changes - offset[:, None]).coef_
    kernel = ridge_regression.fit(perturbations, left).coef_
    return genes @ kernel @ genes[list(wanted)].sum(axis=0) + offset


def context_shift(control: ArrayLike, controls: ArrayLike, shifts: ArrayLike) -> NDArray[np.float64]:
    r"""Predict the change (genes,) in a context by Nadaraya-Watson kernel regression on other contexts.

    Weights are :math:`\exp(-d_t^2 / (h \min_u d_u^2))`, with the Euclidean distance :math:`d` of the mean log
    expression of control cells. The bandwidth :math:`h`, one of six between 1/4 and 8, minimises the leave-one-out
    error of the known contexts; it is 1 for fewer than three contexts.
    """
    target, known, changes = (np.asarray(values, dtype=np.float64) for values in (control, controls, shifts))

    def weights(distances: NDArray[np.float64], bandwidth: float) -> NDArray[np.float64]:
        nearest = max(distances.min(), np.finfo(float).tiny)
        kernel = np.exp(-(distances / nearest - 1) / bandwidth)
        return kernel / kernel.sum()

    def error(bandwidth: float) -> float:
        distances = ((known[:, None] - known[None]) ** 2).sum(2)
        np.fill_diagonal(distances, np.inf)
        predicted = np.stack([weights(row, bandwidth) for row in distances]) @ changes
        size = np.maximum((changes**2).sum(1), np.finfo(float).tiny)
        return float((((predicted - changes) ** 2).sum(1) / size).mean())

    bandwidth = min(BANDWIDTHS, key=error) if len(known) > 2 else 1.0
    return weights(((known - target) ** 2).sum(1), bandwidth) @ changes


def dose_shift(dose: float, doses: ArrayLike, shifts: ArrayLike) -> NDArray[np.float64]:
    """Predict the change at a dose by linear interpolation in log dose between the nearest known doses.

    The scale is ``log(1 + dose / smallest positive known dose)``, which includes dose 0 with change 0. Beyond the
    largest known dose, the change is that of the largest dose.

    Parameters
    ----------
    dose, doses, shifts
        Target dose, known doses, ``(doses,)``, and the change at each known dose, ``(doses, genes)``.

    Returns
    -------
    The change, ``(genes,)``.

    Raises
    ------
    ValueError
        If ``dose`` or a known dose is negative, or no known dose is positive.

    Examples
    --------
    >>> dose_shift(3.0, [1.0, 7.0], [[2.0], [4.0]])
    array([3.])
    """
    known, changes = np.asarray(doses, dtype=np.float64), np.asarray(shifts, dtype=np.float64)
    positive = known > 0
    if dose < 0 or not positive.any() or (known < 0).any():
        raise ValueError(
            f"`dose` is {dose} and `doses` are {known.tolist()}: pass nonnegative doses, one known dose positive."
        )
    return dose_weights(dose, known[positive]) @ changes[positive]


def shift_counts(counts: sparse.csr_matrix, shift: NDArray, *, seed: int = 0) -> sparse.csr_matrix:
    """Shift log expression of control cells by (genes,), and round at random to counts of their library sizes."""
    rng = np.random.default_rng(seed)
    chunks = []
    for start in range(0, counts.shape[0], CHUNK):
        cells = counts[start : start + CHUNK]
        rates = np.expm1(np.clip(log_normalise(cells, dtype=np.float32).toarray() + shift, 0, None))
        total = rates.sum(axis=1, keepdims=True)
        share = np.divide(rates, total, out=np.zeros_like(rates), where=total > 0)
        expected = library_sizes(cells)[:, None] * share
        chunks.append(sparse.csr_matrix(np.floor(expected + rng.random(expected.shape))).astype(np.float32))
    return sparse.vstack(chunks, format="csr") if chunks else counts


@shared_docs
def gaussian_copula(
    counts: CountsLike, labels: ArrayLike, labels_out: ArrayLike, *, layer: str | None = None, seed: int = 0
) -> sparse.csr_matrix:
    """Simulate cells by a Gaussian copula with negative binomial genes per label and factors shared by labels.

    This is the classical simulator (scDesign2: Sun et al. 2021, scDesign3: Song et al. 2024, Nature Biotechnology) with
    low-rank gene correlations. A count is an interval of a normal variable whose mean and standard deviation depend on
    gene and label. A factor model of the standardised residuals is fitted by stochastic EM. Factors are kept if their
    variance exceeds the Marchenko-Pastur edge of noise, so fewer training cells support fewer factors. Memory holds one
    single-precision array ``(cells, genes)`` and a copy.

    Parameters
    ----------
    {null}

    Returns
    -------
    Counts, ``(len(labels_out), genes)``, at library sizes drawn with replacement from the real cells of the label.

    Examples
    --------
    >>> gaussian_copula([[0, 4], [0, 8]], ["a", "a"], ["a"] * 3).shape
    (3, 2)
    """
    matrix = as_counts(counts, layer=layer)
    known, given = label_codes(labels, matrix.shape[0], "labels")
    _, wanted = label_codes(labels_out, np.size(labels_out), "labels_out", known)
    if not len(wanted):
        return matrix[:0]
    rng, of_label = np.random.default_rng(seed), [np.flatnonzero(given == label) for label in range(len(known))]
    library = library_sizes(matrix)[[rng.choice(of_label[label]) for label in wanted]]
    return GaussianCopula.fit(matrix, given, seed=seed).draw(wanted, library, rng)


@shared_docs
def null_poisson(
    counts: CountsLike, labels: ArrayLike, labels_out: ArrayLike, *, layer: str | None = None, seed: int = 0
) -> sparse.csr_matrix:
    """Simulate a negative control: independent Poisson counts at the mean of each label.

    Parameters
    ----------
    {null}

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
    _, which = label_codes(labels_out, np.size(labels_out), "labels_out", known)
    rng = np.random.default_rng(seed)
    chunks = [
        sparse.csr_matrix(rng.poisson(means[which[start : start + CHUNK]]), dtype=np.float32)
        for start in range(0, len(which), CHUNK)
    ]
    return sparse.vstack(chunks, format="csr") if chunks else matrix[:0]


@shared_docs
def null_shuffled(
    counts: CountsLike, labels: ArrayLike, labels_out: ArrayLike, *, layer: str | None = None, seed: int = 0
) -> sparse.csr_matrix:
    """Simulate a negative control: each gene drawn independently from the real values of the label.

    Each gene has the right distribution, and genes are independent. Values are drawn with replacement, because a
    permutation would bias classifiers: their test folds would hold the values missing from their training folds.

    Parameters
    ----------
    {null}

    Returns
    -------
    Counts, (len(labels_out), genes).

    Examples
    --------
    >>> null_shuffled([[3, 4], [3, 4]], ["a", "a"], ["a"]).toarray()
    array([[3., 4.]], dtype=float32)
    """
    matrix = as_counts(counts, layer=layer)
    known, given = label_codes(labels, matrix.shape[0], "labels")
    _, which = label_codes(labels_out, np.size(labels_out), "labels_out", known)
    rng = np.random.default_rng(seed)
    blocks, rows = [], []
    for c in np.unique(which):
        rows.append(np.flatnonzero(which == c))
        cells, chunks = matrix[given == c].tocsc(), []
        for start in range(0, cells.shape[1], CHUNK):
            dense = cells[:, start : start + CHUNK].toarray()
            drawn = rng.integers(len(dense), size=(len(rows[-1]), dense.shape[1]))
            chunks.append(sparse.csr_matrix(np.take_along_axis(dense, drawn, axis=0)))
        blocks.append(sparse.hstack(chunks, format="csr", dtype=np.float32))
    if not blocks:
        return matrix[:0]
    return sparse.vstack(blocks, format="csr")[np.argsort(np.concatenate(rows))]
