"""Held-out likelihood of the simplest model: a multinomial at the mean of each label."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import gammaln

from scdiffgen.metrics._genes import library_sizes
from scdiffgen.metrics._input import CountsLike, as_count_pair, label_positions, label_sums

SMOOTHING = 1.0  # molecules added to every gene of every label, so that no gene is impossible


class MultinomialNLL(NamedTuple):
    """Negative log-likelihood of held-out cells; see `multinomial_nll`."""

    per_molecule: float
    per_cell: float
    cells: NDArray[np.float64]


def multinomial_nll(
    real: CountsLike,
    real_labels: ArrayLike,
    train: CountsLike,
    train_labels: ArrayLike,
    *,
    layer: str | None = None,
) -> MultinomialNLL:
    r"""Negative log-likelihood of held-out cells under a multinomial at the mean of their label.

    The distribution over genes of label c is :math:`\pi_{cg} = (N_{cg} + s) / \sum_h (N_{ch} + s)`, with the molecules
    :math:`N_{cg}` of gene g over the training cells of the label and s = 1 molecule more. A cell x of L molecules has
    :math:`-\log p(x | L, c) = -\sum_g x_g \log \pi_{cg} - \log (L! / \prod_g x_g!)`.

    Parameters
    ----------
    real, real_labels
        Held-out counts, (cells, genes), and their labels.
    train, train_labels
        Training counts over the same genes, and their labels.
    layer
        Layer of AnnData objects that holds the counts.

    Returns
    -------
    per_molecule
        Cross-entropy per molecule, in nats, over all cells: compares with the cross-entropy of a missing molecule.
    per_cell
        Mean over cells of :math:`-\log p(x | L, c)`, with the multinomial coefficient: compares with a model's bound.
    cells
        :math:`-\log p(x | L, c)` of every cell, (cells,).

    Raises
    ------
    ValueError
        If a label has no training cells.

    Examples
    --------
    >>> import numpy as np
    >>> nll = multinomial_nll(np.array([[1, 1]]), ["a"], np.array([[1, 1], [8, 8]]), ["a", "a"])
    >>> bool(np.isclose(nll.per_molecule, np.log(2))), bool(np.isclose(nll.per_cell, np.log(2)))
    (True, True)
    """
    fitted, held_out = as_count_pair(train, real, layer=layer, names=("train", "real"))
    known, sums, _ = label_sums(fitted, train_labels, "train_labels")
    smoothed = sums + SMOOTHING
    log_pi = np.log(smoothed) - np.log(smoothed.sum(axis=1, keepdims=True))
    which = label_positions(real_labels, known, held_out.shape[0], "real_labels")
    rows = np.repeat(np.arange(held_out.shape[0]), np.diff(held_out.indptr))
    molecules = held_out.data.astype(np.float64)
    surprise = -molecules * log_pi[which[rows], held_out.indices]
    cross_entropy = np.bincount(rows, surprise, minlength=len(which))
    log_factorials = np.bincount(rows, gammaln(molecules + 1), minlength=len(which))
    library = library_sizes(held_out)
    cells = cross_entropy + log_factorials - gammaln(library + 1)
    return MultinomialNLL(float(cross_entropy.sum() / library.sum()), float(cells.mean()), cells)
