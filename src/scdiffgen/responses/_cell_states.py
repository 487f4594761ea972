r"""How a response depends on the state of a cell, from what cells of one context differ in.

States are the leading principal components of the log expression of untreated cells. In each group expression is
regressed on them, and by as much as its slopes differ between treated cells, :math:`\beta_1`, and untreated ones,
:math:`\beta_0`, does a gene change more or less in one state than in another:

.. math:: \beta = k (\beta_1 - \rho \beta_0), \qquad k_s = \max\Big(1 - \sum_g v_{sg} / \sum_g \beta_{sg}^2, 0\Big),

:math:`\rho \le 1` the ratio in which a gene falls in all cells alike, :math:`v` the variance of a slope by chance, to
which the slopes of each state are shrunk (James and Stein, positive part). Slopes are those within contexts, and pooled
over these. They tell both how far the mean of a context that is unlike the measured ones changes otherwise, and how far
each of its cells does.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from scipy import sparse
from sklearn.decomposition import PCA
from torch import Tensor

from scdiffgen._log_normalise import log_normalise
from scdiffgen.conditions import Conditions

from ._response_curves import first_cells

if TYPE_CHECKING:
    from ._pseudobulks import Pseudobulks

N_STATES = 20
RIDGE = 0.1  # of the mean variance of a state
LARGEST = 20_000_000  # covariances of all groups with all genes that are kept


class StateSlopes(NamedTuple):
    """How much more genes change in cells whose state is different."""

    loadings: np.ndarray  # (genes, states), orthonormal
    slopes: np.ndarray  # change of log expression by a unit of a state (states, genes)

    def change(self, apart: np.ndarray) -> np.ndarray:
        """Change beyond that elsewhere ``(genes,)``, of cells whose log expression is so far from there."""
        return apart @ self.loadings @ self.slopes


def state_slopes(bulks: Pseudobulks, n_cells: np.ndarray, before: np.ndarray, change: np.ndarray) -> StateSlopes:
    """Slopes of the difference that a treatment makes, pooled over contexts; all 0 where there are too few cells.

    Of each context: numbers of treated and of untreated cells from each group ``(contexts, 2, groups)``, and mean log
    expression ``before``, with its ``change`` ``(contexts, genes)``.
    """
    loadings = bulks.state_loadings
    n_states, weights = loadings.shape[1], n_cells.sum(0)
    if not n_states:
        return StateSlopes(loadings, np.zeros((0, len(loadings))))
    found, chance = [], []
    for numbers in weights:
        used = np.flatnonzero(numbers)
        covariance = np.tensordot(numbers[used], bulks.state_covariance[used], 1)
        gram = covariance @ loadings
        gram = (gram + gram.T) / 2 + RIDGE * max(np.trace(gram) / n_states, np.finfo(float).tiny) * np.eye(n_states)
        inverse = np.linalg.inv(gram)
        found.append(inverse @ covariance)
        chance.append(np.outer(np.diag(inverse), numbers[used] @ bulks.log_variance[used] / numbers.sum()))
    of_context, kept = n_cells[:, 0].sum(1), np.ones(1)
    levels = of_context @ before
    ratio = np.divide(levels + of_context @ change, levels, out=np.ones_like(levels), where=levels > 0).clip(0, 1)
    slopes, errors = found[0] - ratio * found[1], chance[0] + ratio**2 * chance[1]
    for axis in (1, ()):  # of all genes together, then each by itself
        squares = (slopes**2).sum(axis, keepdims=True)
        kept = kept * np.maximum(1 - errors.sum(axis, keepdims=True) / np.maximum(squares, np.finfo(float).tiny), 0)
    return StateSlopes(loadings, kept * slopes)


def state_loadings(
    batches: Iterable[tuple[Tensor, Conditions[Tensor]]], untreated_of: np.ndarray, n_groups: int, n_genes: int
) -> np.ndarray:
    """Leading principal components of untreated cells ``(genes, states)``; fewer, or none, of many groups of cells.

    Cells are in the groups ``untreated_of``, -1 if treated ``(cells,)``; covariances are to be kept of ``n_groups``.
    """
    found = first_cells(batches, untreated_of, int(untreated_of.max(initial=-1)) + 1)
    cells = [sparse.csr_matrix(counts.cpu().numpy()) for _, counts, _ in found]
    n_cells = sum(each.shape[0] for each in cells)
    n_states = min(N_STATES, LARGEST // max(n_groups * n_genes, 1), n_cells // 2, n_genes - 1)
    if n_states < 1:
        return np.zeros((n_genes, 0))
    expression = log_normalise(sparse.vstack(cells, format="csr"))
    if not (expression.max(0) - expression.min(0)).nnz:  # cells that are all alike
        return np.zeros((n_genes, 0))
    return PCA(n_states, svd_solver="arpack", random_state=0).fit(expression).components_.T.copy()
