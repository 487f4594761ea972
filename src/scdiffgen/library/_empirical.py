r"""Library sizes of generated cells: those of training cells under the same conditions, by back-off.

If a cell type (say) was not measured with an intervention :math:`p`, sizes of its control cells are multiplied by the
mean effect in the identities :math:`T` that were measured with both,

.. math:: \exp \frac{1}{|T|} \sum_{t \in T}
    \left( \overline{\log L}_{t, p} - \overline{\log L}_{t, \text{control}} \right).

An unmeasured combination multiplies the factors of its parts; an unmeasured intervention has factor 1. Numbers (doses,
times) select the :math:`n^{2/3}` nearest of :math:`n` cells.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from scipy.special import ndtr, ndtri
from scipy.stats import rankdata

from scdiffgen.conditions import Code, backoff_levels, group_by_row, have_exactly

EPSILON = 1e-12  # least spread of a number


@dataclass(frozen=True)
class LibrarySizeModel:
    """Draw empirical library sizes by the smoothed bootstrap, with back-off to controls, then to coarser groups."""

    library: np.ndarray
    codes: np.ndarray
    min_cells: int = 20  # of a group, else it backs off
    n_interventions: int = 0  # last columns of `codes`, a set
    numbers: np.ndarray | None = None  # (cells, numbers), NaN where there is none

    def sample(self, codes: np.ndarray, rng: np.random.Generator, numbers: np.ndarray | None = None) -> np.ndarray:
        """Draw whole numbers of molecules ``(cells,)``, at least 1, given codes (and more columns of interventions)."""
        drawn = np.empty(len(codes))
        for group, rows in group_by_row(codes):
            matching = self.matching(group)
            for number, of_number in _by_number(numbers, rows):
                near = self.near(matching, number)
                drawn[of_number] = _smoothed_bootstrap(np.log(self.library[near]), len(of_number), rng)
                drawn[of_number] += self.log_factor(group, number)
        return np.maximum(np.exp(drawn).round(), 1)

    def near(self, rows: np.ndarray, number: np.ndarray | None) -> np.ndarray:
        """Those of some training cells whose numbers are nearest to given ones ``(numbers,)``, if any are."""
        if number is None or self.numbers is None:
            return rows
        spread = [column[np.isfinite(column)].std() if np.isfinite(column).any() else 1.0 for column in self.numbers.T]
        apart = (self.numbers[rows] - number) / np.maximum(spread, EPSILON)
        distance, known = np.nansum(apart**2, axis=1), np.isfinite(apart).any(1)
        n_near = max(self.min_cells, int(np.ceil(known.sum() ** (2 / 3))))
        if known.sum() <= n_near:
            return rows
        return rows[known & (distance <= np.partition(distance[known], n_near - 1)[n_near - 1])]

    def rows_like(self, codes: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        """Draw a training cell ``(cells,)`` that stands for the conditions of each cell."""
        drawn = np.empty(len(codes), dtype=np.int64)
        for group, rows in group_by_row(codes):
            drawn[rows] = rng.choice(self.matching(group), len(rows))
        return drawn

    def matching(self, group: np.ndarray) -> np.ndarray:
        """Rows of the training cells that stand for the conditions ``group`` ``(conditions,)``, after back-off."""
        rows = self._measured(group)
        if len(rows) < self.min_cells:
            among = self._controls() if self._asks_interventions(group) else np.ones(len(self.library), dtype=bool)
            rows = self._same_identity(group, among)
        return rows

    def log_factor(self, group: np.ndarray, number: np.ndarray | None = None) -> float:
        """What interventions add to the log library size of the cells :meth:`matching` ``group``, which have none."""
        if not self._asks_interventions(group) or len(self._measured(group)) >= self.min_cells:
            return 0.0
        parts = group[self._n_identity :]
        parts = parts[parts >= 0]
        whole = self._difference(group, parts, number)
        if whole is not None:
            return whole
        return sum(self._difference(group, part, number) or 0.0 for part in parts[:, None])

    @property
    def _n_identity(self) -> int:
        return self.codes.shape[1] - self.n_interventions

    def _asks_interventions(self, group: np.ndarray) -> bool:
        return bool((group[self._n_identity :] != Code.MISSING).any())

    def _measured(self, group: np.ndarray) -> np.ndarray:
        """Rows of the training cells under all of the conditions that ``group`` gives."""
        given = np.flatnonzero(group[: self._n_identity] != Code.MISSING)
        same = (self.codes[:, given] == group[given]).all(1)
        if self._asks_interventions(group):
            parts = group[self._n_identity :]
            same &= self._treated(parts[parts >= 0])
        return np.flatnonzero(same)

    def _treated(self, parts: np.ndarray) -> np.ndarray:
        """Whether each training cell has exactly these interventions, none for a control ``(cells,)``."""
        return have_exactly(self.codes[:, self._n_identity :], parts)

    def _controls(self) -> np.ndarray:
        """Control cells, or all if there are too few ``(cells,)``."""
        controls = self._treated(np.zeros(0, dtype=np.int64))
        return controls if controls.sum() >= self.min_cells else np.ones_like(controls)

    def _same_identity(self, group: np.ndarray, among: np.ndarray) -> np.ndarray:
        """Rows of the training cells ``among`` these that have the identity of ``group``, after back-off."""
        given = np.flatnonzero(group[: self._n_identity] != Code.MISSING)
        for columns in backoff_levels(given):
            rows = np.flatnonzero((self.codes[:, columns] == group[columns]).all(1) & among)
            if len(rows) >= self.min_cells:
                return rows
        return np.flatnonzero(among)

    def _difference(self, group: np.ndarray, parts: np.ndarray, number: np.ndarray | None) -> float | None:
        """Mean effect on log library sizes over identities with enough treated and control cells, by back-off."""
        treated, controls = self._treated(parts), self._controls()
        if treated.sum() < self.min_cells:
            return None
        treated[np.setdiff1d(np.flatnonzero(treated), self.near(np.flatnonzero(treated), number))] = False
        log_library = np.log(self.library)
        given = np.flatnonzero(group[: self._n_identity] != Code.MISSING)
        for columns in backoff_levels(given):
            _, identity = np.unique(self.codes[:, columns], axis=0, return_inverse=True)
            means = (_means(log_library, identity.ravel(), which) for which in (treated, controls))
            n_of, mean_of = zip(*means, strict=True)
            both = np.minimum(*n_of) >= self.min_cells
            if both.any():
                return float((mean_of[0] - mean_of[1])[both].mean())
        return None


@dataclass(frozen=True)
class JointLibrarySizes:
    """Join empirical library sizes ``(cells, modalities)`` by a Gaussian copula; size 0 is not measured."""

    library: np.ndarray
    codes: np.ndarray
    min_cells: int = 20  # for normal scores to be correlated, cells with all modalities
    n_interventions: int = 0
    numbers: np.ndarray | None = None

    def sample(self, codes: np.ndarray, rng: np.random.Generator, numbers: np.ndarray | None = None) -> np.ndarray:
        """Draw whole numbers of molecules ``(cells, modalities)``, at least 1, given codes and numbers of the cells."""
        models = [self._of_cells(np.greater(sizes, 0), sizes) for sizes in self.library.T]
        drawn = np.empty((len(codes), len(models)))
        for group, of_group in group_by_row(codes):
            correlation, matching = self.correlation(group), [model.matching(group) for model in models]
            for number, rows in _by_number(numbers, of_group):
                scores = rng.multivariate_normal(np.zeros(len(models)), correlation, len(rows))
                for modality, model in enumerate(models):
                    known = np.log(model.library[model.near(matching[modality], number)])
                    sizes = np.quantile(known, ndtr(scores[:, modality]))
                    drawn[rows, modality] = sizes + model.log_factor(group, number)
        return np.maximum(np.exp(drawn).round(), 1)

    def correlation(self, group: np.ndarray) -> np.ndarray:
        """Correlation ``(modalities, modalities)`` of the normal scores in cells under conditions ``group``."""
        complete = np.asarray((self.library > 0).all(1))
        if complete.sum() < self.min_cells:
            return np.eye(self.library.shape[1])
        rows = self._of_cells(complete, self.library[:, 0]).matching(group)
        ranks = rankdata(self.library[complete][rows], axis=0)
        scores = ndtri((ranks - 0.5) / len(ranks))
        spread = scores.std(0)
        unit = (scores - scores.mean(0)) / np.where(spread > 0, spread, np.inf)  # sizes that are all equal: no score
        correlation = unit.T @ unit / len(unit)
        np.fill_diagonal(correlation, 1.0)
        return correlation

    def _of_cells(self, chosen: np.ndarray, sizes: np.ndarray) -> LibrarySizeModel:
        numbers = None if self.numbers is None else self.numbers[chosen]
        return LibrarySizeModel(sizes[chosen], self.codes[chosen], self.min_cells, self.n_interventions, numbers)


def _by_number(numbers: np.ndarray | None, rows: np.ndarray) -> Iterator[tuple[np.ndarray | None, np.ndarray]]:
    """Numbers that differ, and which of some rows have them; none of those that are not given."""
    if numbers is None or not np.isfinite(numbers[rows]).any():
        yield None, rows
        return
    given = np.where(np.isfinite(numbers[rows]), numbers[rows], np.inf)  # NaN differs from itself
    distinct, which = np.unique(given, axis=0, return_inverse=True)
    for position, number in enumerate(distinct):
        yield np.where(np.isfinite(number), number, np.nan), rows[which.ravel() == position]


def _means(values: np.ndarray, group_of: np.ndarray, which: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Number and mean of some of the values in each group ``(groups,)``; the mean of none is 0."""
    n_groups = group_of.max() + 1
    n_values = np.bincount(group_of[which], minlength=n_groups)
    return n_values, np.bincount(group_of[which], values[which], n_groups) / np.maximum(n_values, 1)


def _smoothed_bootstrap(values: np.ndarray, size: int, rng: np.random.Generator) -> np.ndarray:
    """Resample with Silverman's Gaussian kernel, shrunk to keep mean and variance (Silverman & Young 1987)."""
    mean, spread = values.mean(), values.std()
    bandwidth = 1.06 * len(values) ** -0.2
    resampled = rng.choice(values, size) - mean
    return mean + (resampled + bandwidth * spread * rng.standard_normal(size)) / np.sqrt(1 + bandwidth**2)
