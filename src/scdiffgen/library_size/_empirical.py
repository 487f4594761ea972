r"""Library sizes of generated cells, drawn from training cells under the same conditions, with back-off.

If a context (such as a cell type) was not measured with an intervention :math:`p`, sizes of its control cells are
multiplied by the mean effect in the contexts :math:`T` with treated and control cells, :math:`\exp \frac{1}{|T|}
\sum_{t \in T} (\overline{\log L}_{t, p} - \overline{\log L}_{t, \text{control}})`. For an unmeasured combination, the
factors of its parts are multiplied; an unmeasured intervention has factor 1. Numbers (doses, times) select the
:math:`n^{2/3}` nearest of :math:`n` cells.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from scipy.special import ndtr, ndtri
from scipy.stats import rankdata

from scdiffgen._codes import Code, backoff_levels, distinct_rows, group_by_row, have_exactly


@dataclass(frozen=True)
class LibrarySizeModel:
    """Empirical library sizes: smoothed bootstrap, with back-off to control cells and then to coarser groups."""

    library: np.ndarray
    codes: np.ndarray
    min_cells: int = 20  # minimum size of a group; smaller groups back off
    n_interventions: int = 0  # number of last columns of `codes`, which hold a set of interventions
    numbers: np.ndarray | None = None  # (cells, numbers), NaN if missing

    def sample(self, codes: np.ndarray, rng: np.random.Generator, numbers: np.ndarray | None = None) -> np.ndarray:
        """Draw integer library sizes ``(cells,)``, at least 1, given codes (possibly more intervention columns)."""
        drawn = np.empty(len(codes))
        for group, rows in group_by_row(codes):
            matching = self.matching(group)
            for number, same_number in _by_number(numbers, rows):
                sizes = self.library[self.near(matching, number)]
                drawn[same_number] = _smoothed_bootstrap(np.log(sizes), len(same_number), rng)
                drawn[same_number] += self.log_factor(group, number)
        return np.maximum(np.exp(drawn).round(), 1)

    def rows_like(self, codes: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        """Draw the row of a matching training cell for each cell ``(cells,)``."""
        drawn = np.empty(len(codes), dtype=np.int64)
        for group, rows in group_by_row(codes):
            drawn[rows] = rng.choice(self.matching(group), len(rows))
        return drawn

    def near(self, rows: np.ndarray, number: np.ndarray | None) -> np.ndarray:
        """Select the training cells with the numbers nearest to ``number`` ``(numbers,)``; all without numbers."""
        if number is None or self.numbers is None:
            return rows
        spread = [column[np.isfinite(column)].std() if np.isfinite(column).any() else 1.0 for column in self.numbers.T]
        difference = (self.numbers[rows] - number) / np.maximum(spread, 1e-12)
        distance, has_number = np.nansum(difference**2, axis=1), np.isfinite(difference).any(1)
        n_near = max(self.min_cells, int(np.ceil(has_number.sum() ** (2 / 3))))
        if has_number.sum() <= n_near:
            return rows
        return rows[has_number & (distance <= np.partition(distance[has_number], n_near - 1)[n_near - 1])]

    def matching(self, group: np.ndarray) -> np.ndarray:
        """Find the rows of training cells under the conditions ``group`` ``(conditions,)``, with back-off."""
        given, parts = self._given(group)
        rows = self._measured(group)
        if len(rows) >= self.min_cells:
            return rows
        among = np.ones(len(self.codes), dtype=bool) if parts is None else self._controls()
        for columns in backoff_levels(given):
            rows = np.flatnonzero((self.codes[:, columns] == group[columns]).all(1) & among)
            if len(rows) >= self.min_cells:
                break
        return rows

    def log_factor(self, group: np.ndarray, number: np.ndarray | None = None) -> float:
        """Compute the effect of interventions on log library size, if :meth:`matching` has backed off to controls."""
        _, parts = self._given(group)
        if parts is None or len(self._measured(group)) >= self.min_cells:
            return 0.0
        whole = self._difference(group, parts, number)
        if whole is not None:
            return whole
        return sum(self._difference(group, part, number) or 0.0 for part in parts[:, None])

    def _given(self, group: np.ndarray) -> tuple[np.ndarray, np.ndarray | None]:
        """Return the columns of the given cell context of ``group``, and its interventions (None if missing)."""
        context, slots = np.split(group, [self.codes.shape[1] - self.n_interventions])
        parts = slots[slots >= 0] if (slots != Code.MISSING).any() else None
        return np.flatnonzero(context != Code.MISSING), parts

    def _measured(self, group: np.ndarray) -> np.ndarray:
        """Find the rows of training cells under all given conditions of ``group``."""
        given, parts = self._given(group)
        same = (self.codes[:, given] == group[given]).all(1)
        return np.flatnonzero(same if parts is None else same & self._treated(parts))

    def _treated(self, parts: np.ndarray) -> np.ndarray:
        """Mark the training cells ``(cells,)`` with exactly these interventions; none for controls."""
        return have_exactly(self.codes[:, self.codes.shape[1] - self.n_interventions :], parts)

    def _controls(self) -> np.ndarray:
        """Mark the control cells ``(cells,)``, or all cells if there are too few controls."""
        controls = self._treated(np.zeros(0, dtype=np.int64))
        return controls if controls.sum() >= self.min_cells else np.ones_like(controls)

    def _difference(self, group: np.ndarray, parts: np.ndarray, number: np.ndarray | None) -> float | None:
        """Average the effect on log library size over contexts with enough treated and control cells, with back-off."""
        treated = np.flatnonzero(self._treated(parts))
        if len(treated) < self.min_cells:
            return None
        treated, controls = self.near(treated, number), np.flatnonzero(self._controls())
        for columns in backoff_levels(self._given(group)[0]):
            context = distinct_rows(self.codes[:, columns])[1]
            n_treated, mean_treated = self._log_means(context, treated)
            n_controls, mean_controls = self._log_means(context, controls)
            both = np.minimum(n_treated, n_controls) >= self.min_cells
            if both.any():
                return float((mean_treated - mean_controls)[both].mean())
        return None

    def _log_means(self, group_of: np.ndarray, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Compute the number and mean log library size of ``rows`` in each group ``(groups,)``; empty groups have 0."""
        n_groups = group_of.max() + 1
        n_cells = np.bincount(group_of[rows], minlength=n_groups)
        return n_cells, np.bincount(group_of[rows], np.log(self.library[rows]), n_groups) / np.maximum(n_cells, 1)


class JointLibrarySizes(LibrarySizeModel):
    """Library sizes ``(cells, modalities)`` with a Gaussian copula of cells with all modalities; 0 is unmeasured."""

    def sample(self, codes: np.ndarray, rng: np.random.Generator, numbers: np.ndarray | None = None) -> np.ndarray:
        """Draw integer library sizes ``(cells, modalities)``, at least 1, given codes and numbers of the cells."""
        models = [self._of_cells(np.greater(sizes, 0), sizes) for sizes in self.library.T]
        drawn = np.empty((len(codes), len(models)))
        for group, rows in group_by_row(codes):
            correlation, matching = self.correlation(group), [model.matching(group) for model in models]
            for number, same_number in _by_number(numbers, rows):
                scores = rng.multivariate_normal(np.zeros(len(models)), correlation, len(same_number))
                for modality, model in enumerate(models):
                    log_sizes = np.log(model.library[model.near(matching[modality], number)])
                    sizes = np.quantile(log_sizes, ndtr(scores[:, modality]))
                    drawn[same_number, modality] = sizes + model.log_factor(group, number)
        return np.maximum(np.exp(drawn).round(), 1)

    def correlation(self, group: np.ndarray) -> np.ndarray:
        """Compute the correlation ``(modalities, modalities)`` of normal scores in cells under conditions ``group``."""
        complete = np.asarray((self.library > 0).all(1))
        if complete.sum() < self.min_cells:
            return np.eye(self.library.shape[1])
        rows = self._of_cells(complete, self.library[:, 0]).matching(group)
        ranks = rankdata(self.library[complete][rows], axis=0)
        scores = ndtri((ranks - 0.5) / len(ranks))
        spread = scores.std(0)
        unit = (scores - scores.mean(0)) / np.where(spread > 0, spread, np.inf)  # constant sizes have no correlation
        correlation = unit.T @ unit / len(unit)
        np.fill_diagonal(correlation, 1.0)
        return correlation

    def _of_cells(self, chosen: np.ndarray, sizes: np.ndarray) -> LibrarySizeModel:
        numbers = None if self.numbers is None else self.numbers[chosen]
        return LibrarySizeModel(sizes[chosen], self.codes[chosen], self.min_cells, self.n_interventions, numbers)


def _by_number(numbers: np.ndarray | None, rows: np.ndarray) -> Iterator[tuple[np.ndarray | None, np.ndarray]]:
    """Yield distinct numbers with their rows; ``None`` if no numbers are given."""
    if numbers is None or not np.isfinite(numbers[rows]).any():
        yield None, rows
        return
    for number, same_number in group_by_row(np.where(np.isfinite(numbers[rows]), numbers[rows], np.inf)):
        yield np.where(np.isfinite(number), number, np.nan), rows[same_number]  # grouped as inf, because NaN != NaN


def _smoothed_bootstrap(values: np.ndarray, size: int, rng: np.random.Generator) -> np.ndarray:
    """Resample with Silverman's Gaussian kernel, shrunk to keep mean and variance (Silverman & Young 1987)."""
    mean, spread = values.mean(), values.std()
    bandwidth = 1.06 * len(values) ** -0.2
    resampled = rng.choice(values, size) - mean
    return mean + (resampled + bandwidth * spread * rng.standard_normal(size)) / np.sqrt(1 + bandwidth**2)
