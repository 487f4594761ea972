"""Labels of cells: sums of counts per label, and halves with the same composition."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import sparse


def as_labels(labels: ArrayLike, n_cells: int, name: str) -> NDArray[np.str_]:
    """Check that there is one label a cell, and return them as strings."""
    array = np.asarray(labels).astype(str)
    if array.shape != (n_cells,):
        raise ValueError(f"`{name}` has shape {array.shape}, expected one label for each of the {n_cells} cells.")
    return array


def label_sums(
    matrix: sparse.csr_matrix, labels: ArrayLike, name: str
) -> tuple[NDArray[np.str_], NDArray[np.float64], NDArray[np.int64]]:
    """Sort the labels out: their names, the sum of the rows of each, (labels, genes), and numbers of cells."""
    known, which = np.unique(as_labels(labels, matrix.shape[0], name), return_inverse=True)
    one_hot = sparse.csr_matrix((np.ones(len(which)), (which, np.arange(len(which)))), shape=(len(known), len(which)))
    return known, (one_hot @ matrix.astype(np.float64)).toarray(), np.bincount(which, minlength=len(known))


def positions_of_labels(labels: ArrayLike, known: NDArray[np.str_], n_cells: int, name: str) -> NDArray[np.intp]:
    """Position of each label among the sorted known ones; an unknown label is named."""
    wanted = as_labels(labels, n_cells, name)
    positions = np.clip(np.searchsorted(known, wanted), 0, len(known) - 1)
    unknown = np.unique(wanted[known[positions] != wanted])
    if len(unknown):
        raise ValueError(
            f"`{name}` has {len(unknown)} labels without training cells: {', '.join(unknown[:5])}. "
            f"Known labels: {', '.join(known[:10])}."
        )
    return positions


def split_halves(labels: ArrayLike, *, seed: int = 0) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Split cells at random into two halves of the same composition: one is the limit of what scores on the other.

    Parameters
    ----------
    labels
        Label of every cell, (cells,); pass one label for all to split without regard to it.
    seed
        Seed of the split.

    Returns
    -------
    Positions of the first and of the second half, sorted. The odd cell of a label goes to either half in turn.

    Examples
    --------
    >>> first, second = split_halves(["a", "a", "b", "b"])
    >>> len(first), len(second)
    (2, 2)
    """
    names = np.asarray(labels).astype(str)
    rng = np.random.default_rng(seed)
    order = rng.permutation(len(names))
    order = order[np.argsort(names[order], kind="stable")]  # random within labels, labels side by side
    return np.sort(order[0::2]), np.sort(order[1::2])
