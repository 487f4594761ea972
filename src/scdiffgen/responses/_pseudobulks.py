"""Pseudobulks: moments of log expression over training cells with equal conditions, computed in one pass."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd
from scipy import sparse
from scipy.sparse.linalg import ArpackError
from sklearn.decomposition import PCA

from scdiffgen._codes import Code, GroupTable, Treatment, backoff_levels, distinct_rows
from scdiffgen._log_normalise import log_normalise

from ._expression_curves import STEPS, depth_effect, expression_curves
from ._predictors import StateMoments

MIN_CELLS = 20  # minimum number of cells of a group, and of each arm of a comparison
MOST_CELLS = 20_000  # cells in memory for curves and cell states; each group has at most a fortieth of them
N_STATES, STABLE = 20, 0.5  # number of cell states; maximum response, in SDs, of the genes that define them
LARGEST = 200_000_000  # maximum number of values of pseudobulks


def pool(cells: GroupTable, n_cells: np.ndarray, batches: Sequence[int]) -> tuple[GroupTable, np.ndarray]:
    """Pool rows of a treatment to groups of 20 cells, first over batches; also return group indices, or -1."""
    # Cells of batches with one arm are not pooled with cells of batches with both arms.
    columns = np.arange(cells.cell_context.shape[1])
    context = np.setdiff1d(columns, batches)
    one_armed = _one_armed(cells, context)
    group_of, groups = np.full(len(n_cells), -1), [cells.take(np.arange(0))]
    for kept in [columns, *backoff_levels(context)]:
        left = np.flatnonzero((group_of < 0) & ~(one_armed & (len(kept) < len(columns))))
        coarser = np.full_like(cells.cell_context[left], Code.MISSING)
        coarser[:, kept] = cells.cell_context[left][:, kept]
        pooled, _, which = GroupTable(coarser, cells.interventions[left], cells.doses[left]).distinct()
        large = np.bincount(which, n_cells[left], pooled.n_rows) >= MIN_CELLS
        first = sum(group.n_rows for group in groups)
        group_of[left] = np.where(large, first + large.cumsum() - 1, -1)[which]
        groups.append(pooled.take(np.flatnonzero(large)))
    return GroupTable(*map(np.concatenate, zip(*groups, strict=True))), group_of


def _one_armed(cells: GroupTable, context: np.ndarray) -> np.ndarray:
    """Mark rows of one-armed batches in contexts with two-armed batches ``(rows,)``."""
    context_of, batch_of = (distinct_rows(codes)[1] for codes in (cells.cell_context[:, context], cells.cell_context))
    both = np.minimum(*(np.bincount(batch_of, arm) > 0 for arm in (cells.untreated, ~cells.untreated)))
    return (np.bincount(context_of, both[batch_of])[context_of] > 0) & ~both[batch_of]


@dataclass(frozen=True)
class Pseudobulks:
    """Moments over groups of cells with equal conditions, as plain arrays that are saved with the model."""

    cell_context: np.ndarray  # (groups, columns): this and the next two as in GroupTable; MISSING if pooled
    interventions: np.ndarray  # (groups, slots)
    doses: np.ndarray  # (groups, slots)
    n_cells: np.ndarray  # (groups,)
    log_mean: np.ndarray  # (groups, genes): mean of log(1 + counts per 10,000), at the depth of untreated cells
    log_variance: np.ndarray  # (groups, genes): variance of the same over cells
    share: np.ndarray  # (groups, genes): mean of counts over library sizes
    log_library: np.ndarray  # (groups,): mean log library size
    curves: np.ndarray  # (untreated groups, steps, genes): see expression_curves
    state_loadings: np.ndarray  # (genes, states): principal axes of untreated cells in unresponsive genes
    state_mean: np.ndarray  # (groups, states): this and the next two as in StateMoments
    state_square: np.ndarray  # (groups, states, states)
    state_product: np.ndarray  # (groups, states, genes)
    in_batch: np.ndarray  # (groups, batches): weight of the cells in each batch

    @property
    def n_genes(self) -> int:
        return self.log_mean.shape[1]

    @property
    def groups(self) -> GroupTable:
        return GroupTable(self.cell_context, self.interventions, self.doses)

    def mean(self, weights: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Compute weighted means of log expression and their sampling variance, both ``(genes,)``."""
        rows = np.flatnonzero(weights)
        chosen = weights[rows] / weights[rows].sum()
        return chosen @ self.log_mean[rows], chosen**2 @ (self.log_variance[rows] / self.n_cells[rows, None])

    def share_and_curves(self, weights: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Compute weighted means of shares ``(genes,)`` and curves ``(steps, genes)`` of untreated groups."""
        curves = np.average(self.curves, axis=0, weights=weights[self.groups.untreated])
        return np.average(self.share, axis=0, weights=weights), curves

    def moments(self, weights: np.ndarray) -> StateMoments:
        """Compute weighted moments of cell states."""
        arrays = self.state_mean, self.state_square, self.state_product, self.log_mean
        return StateMoments(*(np.average(array, axis=0, weights=weights) for array in arrays))

    def treatments(self) -> list[Treatment]:
        groups = self.groups._replace(cell_context=self.cell_context[:, :0]).distinct()[0]
        return [treatment for row in range(groups.n_rows) if (treatment := groups.treatment(row))]

    def to_plain(self) -> dict[str, np.ndarray]:
        return dict(vars(self))

    def concatenate(self, others: Pseudobulks | None) -> Pseudobulks:
        """Append groups with the same cell states and at most as many slots; ignore them if genes differ."""
        if others is None or others.n_genes != self.n_genes:
            return self
        more = ((0, 0), (0, self.doses.shape[1] - others.doses.shape[1]))
        slots = np.pad(others.interventions, more, constant_values=Code.ABSENT)
        widened = vars(others) | {"interventions": slots, "doses": np.pad(others.doses, more)}
        by_group = {name: array for name, array in vars(self).items() if name not in ("state_loadings", "in_batch")}
        joined = {name: np.concatenate([array, widened[name]]) for name, array in by_group.items()}
        in_batch = pd.concat([pd.DataFrame(bulks.in_batch) for bulks in (self, others)]).fillna(0.0).to_numpy()
        return replace(self, **joined, in_batch=in_batch)


class PseudobulkSums:
    """Sums over groups of cells that are added in minibatches, with at most 20,000 cells in memory."""

    def __init__(
        self, cells: GroupTable, batches: Sequence[int], n_genes: int, measured: np.ndarray | None = None
    ) -> None:
        distinct, _, row_of = cells.distinct()
        measured = np.ones(len(row_of), dtype=bool) if measured is None else measured
        self.groups, pool_of = pool(distinct, np.bincount(row_of, measured).astype(np.int64), batches)
        self.group_of = np.where(measured, pool_of[row_of], -1)
        self.n_cells = np.bincount(self.group_of + 1, minlength=self.groups.n_rows + 1)[1:]
        self.batches, self.n_genes, self.untreated = list(batches), n_genes, self.groups.untreated
        n_groups = self.groups.n_rows
        self.fits = 0 < (3 * n_groups + len(STEPS) * self.untreated.sum()) * n_genes <= LARGEST
        self.weights = self._overlap_weights(cells, row_of) if self.fits else np.ones(len(row_of))
        self.batch_of = cells.cell_context[:, self.batches].max(axis=1, initial=Code.ABSENT) - Code.ABSENT
        self.log_library, self.sums = np.zeros(n_groups), np.zeros((3, n_groups if self.fits else 0, n_genes))
        rank = pd.Series(self.group_of).groupby(self.group_of).cumcount().to_numpy()
        is_held = (self.group_of >= 0) & (rank < max(MOST_CELLS // max(n_groups, 40), MIN_CELLS))
        self.held_rows, self.group_of_held = np.flatnonzero(is_held), self.group_of[is_held]
        self.n_seen, self.held = 0, list[sparse.csr_matrix]()

    def add(self, counts: sparse.csr_matrix) -> None:
        """Add the next cells, in the order of the conditions."""
        rows = np.arange(self.n_seen, self.n_seen + counts.shape[0])
        self.n_seen += len(rows)
        groups, of_cell = np.unique(self.group_of[rows], return_inverse=True)
        belongs = sparse.csr_matrix((self.weights[rows], (of_cell.ravel(), rows - rows[0])))[groups >= 0]
        groups = groups[groups >= 0]
        expression = log_normalise(counts)
        library = np.maximum(np.asarray(counts.sum(1)).ravel(), 1)
        self.log_library[groups] += belongs @ np.log(library)
        parts = expression, expression.power(2), sparse.diags(1 / library) @ counts
        for total, part in zip(self.sums, parts, strict=True):
            total[groups] += (belongs @ part).toarray()
        self.held.append(sparse.csr_matrix(counts)[np.isin(rows, self.held_rows)])

    def _overlap_weights(self, cells: GroupTable, row_of: np.ndarray) -> np.ndarray:
        """Compute overlap weights of cells, which give each pooled batch the same total weight under each treatment."""
        is_pooled = (self.groups.cell_context[:, self.batches] == Code.MISSING).any(1)
        pooled = is_pooled[self.group_of] & (self.group_of >= 0)
        treated = ~cells.untreated
        batch_of = distinct_rows(cells.cell_context)[1]
        n_treated, n_untreated = (np.bincount(batch_of, pooled & arm)[batch_of] for arm in (treated, ~treated))
        overlap = n_treated * n_untreated / np.maximum(n_treated + n_untreated, 1)
        weights = np.where(pooled, overlap / np.maximum(np.bincount(row_of, pooled)[row_of], 1), 1.0)
        total = np.bincount(self.group_of + 1, weights, self.groups.n_rows + 1)[self.group_of + 1]
        return np.where(total > 0, weights, 1.0)

    def finish(self, reference: Pseudobulks | None = None) -> Pseudobulks:
        """Compute moments, curves and cell states; append groups and reuse cell states of a ``reference``."""
        total = np.bincount(self.group_of + 1, self.weights, len(self.n_cells) + 1)[1:]
        log_mean, squares, share = self.sums / total[:, None]
        log_variance = (squares - log_mean**2).clip(min=0)
        cells = sparse.vstack(self.held, format="csr")
        curves = [expression_curves(cells[self.group_of_held == group]) for group in np.flatnonzero(self.untreated)]
        log_library = self.log_library / total
        log_mean = self._at_depth_of_controls(log_mean, log_library, cells)
        if reference is not None and reference.n_genes != self.n_genes:
            reference = None
        loadings = self._loadings(log_mean, cells) if reference is None else reference.state_loadings
        in_batch = sparse.coo_matrix((self.weights, (self.group_of + 1, self.batch_of))).toarray()[1:]
        curve = np.reshape(curves, (-1, len(STEPS), self.n_genes))
        states = self._state_moments(cells, log_mean, loadings)
        moments = log_mean, log_variance, share, log_library, curve, loadings, *states, in_batch
        bulks = Pseudobulks(*self.groups, self.n_cells, *moments)
        single = {name: array.astype(np.float32) for name, array in vars(bulks).items() if array.dtype == np.float64}
        return replace(bulks, **(single | {"doses": bulks.doses})).concatenate(reference)

    def _at_depth_of_controls(
        self, log_mean: np.ndarray, log_library: np.ndarray, cells: sparse.csr_matrix
    ) -> np.ndarray:
        """Correct means of treated groups for the depth by which they differ from untreated cells of their context."""
        # The deeper arm is thinned, because the effect of fewer molecules is known and that of more is not.
        corrected = log_mean.copy()
        for group in np.flatnonzero((self.groups.interventions >= 0).any(1)):
            context = self.groups.cell_context[group]
            given = np.flatnonzero(context != Code.MISSING)
            levels = [given, *backoff_levels(given[~np.isin(given, self.batches)])]
            arms = (self.untreated & self.groups.agree(context, columns) for columns in levels)
            controls = next((marked for marked in arms if marked.any()), None)
            if controls is not None:
                log_ratio = log_library[group] - np.average(log_library[controls], weights=self.n_cells[controls])
                deeper = np.flatnonzero(controls) if log_ratio <= 0 else group
                effect = depth_effect(cells[np.isin(self.group_of_held, deeper)], -abs(log_ratio))
                corrected[group] += np.sign(log_ratio) * effect
        return corrected

    def _loadings(self, log_mean: np.ndarray, cells: sparse.csr_matrix) -> np.ndarray:
        """Fit principal axes ``(genes, states)`` of untreated cells in genes that hardly respond to any treatment."""
        context = np.setdiff1d(np.arange(self.groups.cell_context.shape[1]), self.batches)
        contexts, which = distinct_rows(self.groups.cell_context[:, context])
        none, change = np.zeros((self.n_genes, 0)), np.zeros(self.n_genes)
        if len(contexts) < 3 or not self.untreated.any():
            return none
        for row in np.flatnonzero(~self.untreated):
            same = (which == which[row]) & self.untreated
            if same.any():
                before = np.average(log_mean, axis=0, weights=same * self.n_cells)
                change = np.maximum(change, np.abs(log_mean[row] - before))
        expression = log_normalise(cells[self.untreated[self.group_of_held]])
        mean = np.asarray(expression.mean(0)).ravel()
        spread = np.sqrt((np.asarray(expression.power(2).mean(0)).ravel() - mean**2).clip(min=0))
        stable = np.flatnonzero((change < STABLE * spread) & (spread > 0))
        most = MOST_CELLS * 1000 // max(log_mean.size, 1)  # for memory
        n_states = min(N_STATES, most, len(stable) - 1, expression.shape[0] // 2)
        if n_states < 1:
            return none
        loadings = np.zeros((self.n_genes, n_states))
        with suppress(ArpackError), np.errstate(invalid="ignore", divide="ignore"):  # raised if all cells are equal
            pca = PCA(n_states, svd_solver="arpack", random_state=0).fit(expression[:, stable])
            loadings[stable] = pca.components_.T
        return loadings if loadings.any() and np.isfinite(loadings).all() else none

    def _state_moments(
        self, cells: sparse.csr_matrix, log_mean: np.ndarray, loadings: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Compute means, squares and products with expression of the cell states in each group."""
        expression, n_groups = log_normalise(cells), len(log_mean)
        states = np.asarray(expression @ loadings)
        shapes = (states.shape[1],), (states.shape[1],) * 2, (states.shape[1], cells.shape[1])
        mean, square, product = (np.zeros((n_groups, *shape)) for shape in shapes)
        for group in range(n_groups if loadings.size else 0):
            own, of_group = states[rows := self.group_of_held == group], expression[rows]
            mean[group], square[group] = own.mean(0), own.T @ own / len(own)
            covariance = (of_group.T @ (own - mean[group])).T / len(own)
            product[group] = covariance + np.outer(mean[group], log_mean[group])
        return mean, square, product
