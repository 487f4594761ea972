r"""How a response depends on cell state, by regression within contexts.

Cell states are principal components of untreated cells in genes that hardly respond. Slopes of log expression on them
in treated cells, :math:`\beta_1`, and untreated cells, :math:`\beta_0`, give the positive-part James-Stein estimate

.. math:: \beta_{sg} = k_s k_{sg} b_{sg}, \qquad b = \beta_1 - \rho \beta_0, \qquad
    k_s = \Big(1 - \sum_g v_{sg} / \sum_g b_{sg}^2\Big)_+, \qquad k_{sg} = \big(1 - v_{sg} / b_{sg}^2\big)_+,

with :math:`\rho \le 1` the mean ratio of a down-regulated gene and :math:`v` the sampling variance of a slope.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import torch
from scipy import sparse
from scipy.sparse.linalg import ArpackError
from sklearn.decomposition import PCA
from torch import Tensor

from scdiffgen._log_normalise import TARGET_SUM, log_normalise
from scdiffgen.conditions import Conditions, have_exactly

from ._response_curves import STEPS, first_cells
from ._stacking import james_stein

if TYPE_CHECKING:
    from ._pseudobulks import Pseudobulks

N_STATES = 20
RIDGE = 0.1  # of the mean variance of a state
LARGEST_CHANGE = 0.5  # of genes that hardly respond, in standard deviations over untreated cells
MOST_CELLS = 20_000  # of which components are made
LARGEST = 20_000_000  # covariances of all groups with all genes that are kept


class StateResponse(NamedTuple):
    """Response of the cells of one context as a function of their cell state."""

    state: np.ndarray  # of the mean untreated cell (states,)
    slopes: np.ndarray  # of the change of log expression on the state (states, genes)
    curve: np.ndarray  # rising mean log expression at steps (genes, steps)

    def change(self, states: Tensor, root: Tensor, change: Tensor) -> Tensor:
        """Deviation ``(cells, genes)`` from the mean ``change`` of fourth roots at ``states`` ``(cells, states)``."""
        state, slopes, curve = (torch.from_numpy(array).to(states) for array in self)
        steps = torch.where(change < 0, change / root, change)
        of_cell = steps_of_cells(curve, steps, (states - state) @ slopes)
        return torch.where(of_cell < 0, root * of_cell, of_cell) - change


class StateSlopes(NamedTuple):
    """Slopes of the response on cell states."""

    loadings: np.ndarray  # (genes, states), orthonormal
    slopes: np.ndarray  # change of log expression by a unit of a state (states, genes)

    def change(self, apart: np.ndarray) -> np.ndarray:
        """Deviation of the response ``(genes,)`` of cells whose log expression differs by ``apart``."""
        return apart @ self.loadings @ self.slopes


def state_slopes(
    bulks: Pseudobulks, groups: np.ndarray, n_cells: np.ndarray, before: np.ndarray, change: np.ndarray
) -> StateSlopes:
    """Estimate slopes of the treatment effect on cell states, pooled over contexts; 0 for too few cells."""
    loadings = bulks.state_loadings
    n_states, weights = loadings.shape[1], n_cells.sum(0)
    if not n_states:
        return StateSlopes(loadings, np.zeros((0, len(loadings))))
    found, chance = [], []
    for every in weights:
        used, numbers = groups[every > 0], every[every > 0]
        covariance = np.tensordot(numbers, bulks.state_covariance[used], 1)
        gram = covariance @ loadings
        gram = (gram + gram.T) / 2 + RIDGE * max(np.trace(gram) / n_states, np.finfo(float).tiny) * np.eye(n_states)
        inverse = np.linalg.inv(gram)
        found.append(inverse @ covariance)
        chance.append(np.outer(np.diag(inverse), numbers @ bulks.log_variance[used] / numbers.sum()))
    of_context, kept = n_cells[:, 0].sum(1), np.ones(1)
    levels = of_context @ before
    ratio = np.divide(levels + of_context @ change, levels, out=np.ones_like(levels), where=levels > 0).clip(0, 1)
    slopes, errors = found[0] - ratio * found[1], chance[0] + ratio**2 * chance[1]
    for axis in (1, ()):  # of all genes together, then each by itself
        kept = kept * james_stein(errors.sum(axis, keepdims=True), (slopes**2).sum(axis, keepdims=True))
    return StateSlopes(loadings, kept * slopes)


def state_loadings(
    batches: Iterable[tuple[Tensor, Conditions[Tensor]]], bulks: Pseudobulks, untreated_of: np.ndarray
) -> np.ndarray:
    """Principal components ``(genes, states)`` of the cells of groups ``untreated_of``, in hardly responding genes."""
    n_groups, n_genes = bulks.log_mean.shape
    stable = np.flatnonzero(hardly_respond(bulks))
    found = first_cells(batches, untreated_of, int(untreated_of.max(initial=-1)) + 1)
    cells = [sparse.csr_matrix(counts.cpu().numpy()) for _, counts, _ in found]
    n_cells = sum(each.shape[0] for each in cells)
    n_states = min(N_STATES, LARGEST // max(n_groups * n_genes, 1), n_cells // 2, len(stable) - 1)
    loadings = np.zeros((n_genes, max(n_states, 0)), dtype=np.float32)
    if n_states < 1:
        return loadings
    expression = log_normalise(sparse.vstack(cells, format="csr")[:: -(-n_cells // MOST_CELLS)])[:, stable]
    with suppress(ArpackError), np.errstate(invalid="ignore"):  # of cells that are all alike
        pca = PCA(n_states, svd_solver="arpack", random_state=0).fit(expression)
        loadings[stable] = np.where(pca.explained_variance_ > np.finfo(np.float32).eps, pca.components_.T, 0.0)
    return loadings if loadings.any() and np.isfinite(loadings).all() else loadings[:, :0]


def hardly_respond(bulks: Pseudobulks) -> np.ndarray:
    """Select genes whose changes are small against the spread of untreated cells, in all groups; at least half."""
    untreated, largest = np.flatnonzero(have_exactly(bulks.interventions, [])), np.zeros(bulks.n_genes)
    weights = bulks.n_cells[untreated] / bulks.n_cells[untreated].sum()
    between = bulks.log_mean[untreated] - weights @ bulks.log_mean[untreated]
    deviation = np.sqrt(weights @ (bulks.log_variance[untreated] + between**2)) + np.finfo(np.float32).tiny
    for row in np.setdiff1d(np.arange(len(bulks.n_cells)), untreated):
        for other in untreated[(bulks.identity[untreated] == bulks.identity[row]).all(1)]:
            largest = np.maximum(largest, np.abs(bulks.log_mean[row] - bulks.log_mean[other]) / deviation)
    return largest <= max(LARGEST_CHANGE, np.median(largest))


def state_covariance(
    batches: Iterable[tuple[Tensor, Conditions[Tensor]]],
    group_of: np.ndarray,
    log_mean: np.ndarray,
    loadings: np.ndarray,
) -> dict[str, np.ndarray]:
    """Loadings, and covariances of log expression with cell states in each group, by name."""
    (n_groups, n_genes), n_states, first = log_mean.shape, loadings.shape[1], 0
    sums, n_cells = np.zeros((n_groups, n_states, n_genes), dtype=np.float32), np.bincount(group_of[group_of >= 0])
    for there, _ in batches if n_states else ():
        groups = group_of[first : first + len(there)]
        first += len(there)
        expression = log_expression(there.to_dense())
        for group in np.unique(groups[groups >= 0]):
            apart = expression[groups == group] - torch.from_numpy(log_mean[group]).to(expression)
            sums[group] += ((apart @ torch.from_numpy(loadings).to(apart)).T @ apart).cpu().numpy()
    return {"state_covariance": sums / np.maximum(n_cells, 1)[:, None, None], "state_loadings": loadings}


def steps_of_cells(curve: Tensor, steps: Tensor, apart: Tensor) -> Tensor:
    """Steps ``(cells, genes)`` at which log expression is larger by ``apart`` than at ``steps``, on rising curves."""
    at = torch.from_numpy(STEPS).to(curve)

    def between(wanted: Tensor, known: Tensor, values: Tensor) -> Tensor:
        above = torch.searchsorted(known.contiguous(), wanted).clamp(1, known.shape[1] - 1)
        (low, high), (first, second) = ([row.gather(1, i) for i in (above - 1, above)] for row in (known, values))
        return first + ((wanted - low) / (high - low).clamp(min=1e-6)).clamp(0, 1) * (second - first)

    everywhere = at.expand(len(curve), -1).contiguous()
    level = between(steps[:, None], everywhere, curve)
    return between(level + apart.T.contiguous(), curve, everywhere).T


def log_expression(counts: Tensor) -> Tensor:
    """log(1 + counts per 10,000) of dense counts ``(cells, genes)``."""
    return torch.log1p(counts * (TARGET_SUM / counts.sum(1, keepdim=True).clamp(min=1)))
