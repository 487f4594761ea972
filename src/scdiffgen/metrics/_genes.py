"""Statistics of genes, gene pairs and library sizes, and likelihoods of multinomial baselines."""

from __future__ import annotations

from typing import NamedTuple, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import sparse
from scipy.optimize import minimize_scalar
from scipy.special import gammaln

from scdiffgen._log_normalise import library_sizes
from scdiffgen._shared_docs import shared_docs

from ._input import EXPRESSION, CountsLike, Matrix, Points, as_count_pair, as_feature_pair, label_codes, label_sums
from ._resampling import Weights, unresampled, weight_below

LOG_CONCENTRATIONS = (-5.0, 20.0)  # limits: cells with a single gene, and multinomial cells
GeneMoments: TypeAlias = dict[str, NDArray[np.float64]]  # one array (rows, genes) per statistic


class HeldOutNLL(NamedTuple):
    """Negative log-likelihood of held-out cells; see `dirichlet_multinomial_nll`."""

    per_molecule: float
    per_cell: float
    cells: NDArray[np.float64]


def gene_correlation_error(real: Points, generated: Points, *, genes: ArrayLike | None = None) -> float:
    """Compute the mean absolute error of the gene-gene correlation matrix, over pairs of different genes.

    Correlations of genes that are constant in a sample are 0.

    Parameters
    ----------
    real, generated
        Expression, ``(cells, genes)``.
    genes
        Positions of the genes to compare, usually ``space.most_variable_genes(200)``; by default all genes.

    Returns
    -------
    The error, between 0 and 2; NaN, with a warning, for fewer than three cells on a side. Finite samples of one
    population have a positive error: compare scores at equal numbers of cells.

    Examples
    --------
    >>> import numpy as np
    >>> x = np.array([[0.0, 0.0], [1.0, 1.0], [2.0, 2.0]])
    >>> round(gene_correlation_error(x, x * [1, -1]), 6)
    2.0
    """
    x, y = as_feature_pair(real, generated, "genes", EXPRESSION)
    columns = np.arange(x.shape[1]) if genes is None else np.asarray(genes)
    return unresampled("gene_correlation_error", 3, correlation_error_resampled, x[:, columns], y[:, columns])


@shared_docs
def dirichlet_multinomial_nll(
    real: CountsLike,
    real_labels: ArrayLike,
    train: CountsLike,
    train_labels: ArrayLike,
    *,
    concentration: float | None = None,
    layer: str | None = None,
) -> HeldOutNLL:
    r"""Compute the negative log-likelihood of held-out cells under a Dirichlet-multinomial at the mean of their label.

    The distribution over genes of label c is :math:`\pi_{cg} = (N_{cg} + s) / \sum_h (N_{ch} + s)`, with the molecules
    :math:`N_{cg}` of gene g in the training cells of the label and the pseudocount s = 1. The concentration :math:`A_c`
    is the amount of variation within the label, but not its directions; a useful model has a lower value. A cell x of L
    molecules has

    .. math:: p(x | L, c) = \frac{L!\, \Gamma(A_c)}{\Gamma(A_c + L)}
              \prod_g \frac{\Gamma(A_c \pi_{cg} + x_g)}{\Gamma(A_c \pi_{cg})\, x_g!}

    With an infinite concentration, this is the multinomial, whose molecules are independent. Its cross-entropy per
    molecule is then comparable with the training loss of a model.

    Parameters
    ----------
    {held_out}
    {fitted}
    concentration
        Concentration of all labels, ``numpy.inf`` for multinomials. ``None`` fits that of each label by maximum
        likelihood on its training cells (biased upwards for few cells, which also determine the mean).

    Returns
    -------
    {nll}

    Raises
    ------
    ValueError
        If a label has no training cells, or the concentration is not positive.

    Examples
    --------
    >>> import numpy as np
    >>> train = np.array([[6, 0], [0, 6], [3, 3]])
    >>> nll, multinomial = (
    ...     dirichlet_multinomial_nll(train, list("aaa"), train, list("aaa"), concentration=number)
    ...     for number in (None, np.inf)
    ... )
    >>> nll.per_cell < multinomial.per_cell
    True
    """
    if concentration is not None and not concentration > 0:
        raise ValueError(f"`concentration` is {concentration!r}: pass a positive number, or None to fit it.")
    fitted, held_out = (
        side.astype(np.float64) for side in as_count_pair(train, real, layer=layer, names=("train", "real"))
    )
    for side in (fitted, held_out):
        side.eliminate_zeros()
    known, sums, _ = label_sums(fitted, train_labels, "train_labels")
    _, which = label_codes(real_labels, held_out.shape[0], "real_labels", known)
    sums += 1.0  # pseudocount per gene and label, so that no gene has probability 0
    shares = sums / sums.sum(axis=1, keepdims=True)  # (labels, genes)
    (rows, genes), molecules, library = held_out.nonzero(), held_out.data, library_sizes(held_out)
    share = shares[which[rows], genes]
    if concentration == np.inf:
        in_order = np.bincount(rows, -molecules * np.log(share), minlength=len(which))
    else:
        totals = np.full(len(known), concentration)
        if concentration is None:
            _, of_label = label_codes(train_labels, fitted.shape[0], "train_labels", known)
            totals = np.array([_concentration(fitted[of_label == c], mean) for c, mean in enumerate(shares)])
        total = totals[which]
        alpha = total[rows] * share
        rising = np.bincount(rows, gammaln(alpha + molecules) - gammaln(alpha), minlength=len(which))
        in_order = gammaln(total + library) - gammaln(total) - rising
    held_out.data = gammaln(molecules + 1)  # multinomial coefficient
    cells = in_order + library_sizes(held_out) - gammaln(library + 1)
    return HeldOutNLL(float(in_order.sum() / library.sum()), float(cells.mean()), cells)


def _concentration(counts: sparse.csr_matrix, shares: NDArray[np.float64]) -> float:
    """Fit the concentration of a Dirichlet-multinomial with known mean by maximum likelihood."""
    pairs, n_of_pair = np.unique(np.stack([counts.indices, counts.data]), axis=1, return_counts=True)
    sizes, n_of_size = np.unique(library_sizes(counts), return_counts=True)
    mean, molecules = shares[pairs[0].astype(int)], pairs[1]  # for distinct pairs of gene and count

    def nll(log_total: float) -> float:
        total = np.exp(log_total)
        rising = gammaln(total * mean + molecules) - gammaln(total * mean)
        return float(n_of_size @ (gammaln(total + sizes) - gammaln(total)) - n_of_pair @ rising)

    return float(np.exp(minimize_scalar(nll, bounds=LOG_CONCENTRATIONS, method="bounded").x))


def gene_moments(expression: Matrix, weights: Weights) -> GeneMoments:
    """Compute mean, variance and fraction of zeros of each gene under each row of weights."""
    matrix = sparse.csr_matrix(expression).astype(np.float64)
    total = weights.sum(axis=1, keepdims=True)
    mean = weights @ matrix / total
    variance = np.clip(weights @ matrix.multiply(matrix).tocsr() / total - mean**2, 0, None)
    zeros = 1 - weights @ (matrix != 0).astype(np.float64) / total
    return {"mean": mean, "variance": variance, "zero_fraction": zeros}


def mean_distance_resampled(x: Matrix, y: Matrix, wx: Weights, wy: Weights) -> NDArray[np.float64]:
    """Compute the unbiased squared distance of gene means, in units of variances, under each row of weights, (rows,).

    The sampling variance of both means, a gene's variance over the number of cells, is subtracted.
    """
    sides, noise = [gene_moments(x, wx), gene_moments(y, wy)], 0.0
    for moments, weights in zip(sides, (wx, wy), strict=True):
        squares, total = (weights**2).sum(axis=1), weights.sum(axis=1)
        noise = noise + moments["variance"] * (squares / (total**2 - squares))[:, None]
    variance = (sides[0]["variance"] + sides[1]["variance"])[0] / 2
    vary = variance > 1e-12
    return (((sides[0]["mean"] - sides[1]["mean"]) ** 2 - noise)[:, vary] / variance[vary]).sum(axis=1)


def correlation_error_resampled(x: Matrix, y: Matrix, wx: Weights, wy: Weights) -> NDArray[np.float64]:
    """Compute `gene_correlation_error` under each row of weights, (rows,)."""
    first, second = (sparse.csr_matrix(m).toarray() for m in (x, y))
    upper = np.triu_indices(first.shape[1], k=1)
    pairs = [correlation(first, a)[upper] - correlation(second, b)[upper] for a, b in zip(wx, wy, strict=True)]
    return np.abs(pairs).mean(axis=1)


def ks_resampled(x: NDArray, y: NDArray, wx: Weights, wy: Weights) -> NDArray[np.float64]:
    """Compute the Kolmogorov-Smirnov distance of two samples under each row of weights, (rows,)."""
    at = np.unique(np.concatenate([x, y]))
    first, second = (weight_below(v, w, at, "right") / w.sum(axis=1, keepdims=True) for v, w in ((x, wx), (y, wy)))
    return np.abs(first - second).max(axis=1)


def correlation(expression: NDArray, weights: NDArray) -> NDArray[np.float64]:
    """Compute weighted Pearson correlations of the columns; 0 for constant columns."""
    centred = expression - weights @ expression / weights.sum()
    covariance = (centred * weights[:, None]).T @ centred
    deviation = np.sqrt(np.diag(covariance))
    product = np.outer(deviation, deviation)
    return np.divide(covariance, product, out=np.zeros_like(product), where=product > 1e-12)
