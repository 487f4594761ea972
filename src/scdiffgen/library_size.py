r"""Library sizes of generated cells, drawn from training cells under the same conditions, with back-off.

A context (such as a cell type) without cells of the requested treatment has the sizes of its control cells; a
transferred response multiplies them by its ratio of library sizes. Numbers (doses, times) select the :math:`n^{2/3}`
nearest of :math:`n` cells.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from scipy.special import ndtr, ndtri
from scipy.stats import rankdata

from scdiffgen._codes import Code, GroupTable, backoff_levels, group_by_row, have_exactly


@dataclass(frozen=True)
class LibrarySizeModel:
    """Empirical library sizes: smoothed bootstrap, with back-off to control cells and then to coarser groups."""

    library: np.ndarray  # (cells,)
    cells: GroupTable
    min_cells: int = 20  # minimum size of a group; smaller groups back off
    numbers: np.ndarray | None = None  # (cells, numbers), NaN if missing

    def sample(self, requested: GroupTable, rng: np.random.Generator, numbers: np.ndarray | None = None) -> np.ndarray:
        """Draw integer library sizes ``(cells,)``, at least 1, for requested conditions and numbers."""
        drawn = np.empty(requested.n_rows)
        for group, rows in _by_group(requested):
            groups = self.alike(requested, group), self.matching(requested, group)
            for number, same_number in _by_number(numbers, rows):
                drawn[same_number] = _smoothed_bootstrap(self.log_sizes(*groups, number), len(same_number), rng)
        return np.maximum(np.exp(drawn).round(), 1)

    def rows_like(self, requested: GroupTable, rng: np.random.Generator) -> np.ndarray:
        """Draw the row of a matching training cell for each cell ``(cells,)``."""
        drawn = np.empty(requested.n_rows, dtype=np.int64)
        for group, rows in _by_group(requested):
            drawn[rows] = rng.choice(self.matching(requested, group), len(rows))
        return drawn

    def log_sizes(self, own: np.ndarray, coarser: np.ndarray, number: np.ndarray | None) -> np.ndarray:
        """Return log library sizes of training cells near a number.

        A small group ``own`` has the sizes of the ``coarser`` group, shifted and scaled to its own mean and variance,
        which are shrunk by one and two pseudo-cells.
        """
        own, coarser = (np.log(self.library[self.near(rows, number)]) for rows in (own, coarser))
        if not 0 < len(own) < self.min_cells:
            return coarser
        mean = (own.sum() + coarser.mean()) / (len(own) + 1)
        variance = (((own - own.mean()) ** 2).sum() + 2 * coarser.var()) / (len(own) + 1)
        return mean + (coarser - coarser.mean()) * np.sqrt(variance / max(coarser.var(), 1e-12))

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

    def matching(self, requested: GroupTable, row: int) -> np.ndarray:
        """Find the training cells under the conditions of a row, with back-off to controls and to fewer conditions."""
        if len(rows := self.alike(requested, row)) >= self.min_cells:
            return rows
        context = requested.cell_context[row]
        given, among = np.flatnonzero(context != Code.MISSING), np.ones(len(self.library), dtype=bool)
        controls = self.cells.untreated
        if self._parts(requested, row) is not None and controls.sum() >= self.min_cells:
            among = controls
        for columns in backoff_levels(given):
            rows = np.flatnonzero(self.cells.agree(context, columns) & among)
            if len(rows) >= self.min_cells:
                break
        return rows

    def alike(self, requested: GroupTable, row: int) -> np.ndarray:
        """Find the training cells under all conditions of a row, at any dose."""
        context, parts = requested.cell_context[row], self._parts(requested, row)
        same = self.cells.agree(context, np.flatnonzero(context != Code.MISSING))
        return np.flatnonzero(same if parts is None else same & have_exactly(self.cells.interventions, parts))

    def _parts(self, requested: GroupTable, row: int) -> np.ndarray | None:
        """Return the interventions of a row; None if they are missing."""
        slots = requested.interventions[row]
        return slots[slots >= 0] if (slots != Code.MISSING).any() else None


class JointLibrarySizes(LibrarySizeModel):
    """Library sizes ``(cells, modalities)`` with a Gaussian copula of cells with all modalities; 0 is unmeasured."""

    def sample(self, requested: GroupTable, rng: np.random.Generator, numbers: np.ndarray | None = None) -> np.ndarray:
        """Draw integer library sizes ``(cells, modalities)``, at least 1, for requested conditions and numbers."""
        models = [self._of_cells(np.greater(sizes, 0), sizes) for sizes in self.library.T]
        drawn = np.empty((requested.n_rows, len(models)))
        for group, rows in _by_group(requested):
            correlation = self.correlation(requested, group)
            groups = [(model.alike(requested, group), model.matching(requested, group)) for model in models]
            for number, same_number in _by_number(numbers, rows):
                scores = rng.multivariate_normal(np.zeros(len(models)), correlation, len(same_number))
                for modality, model in enumerate(models):
                    log_sizes = model.log_sizes(*groups[modality], number)
                    drawn[same_number, modality] = np.quantile(log_sizes, ndtr(scores[:, modality]))
        return np.maximum(np.exp(drawn).round(), 1)

    def correlation(self, requested: GroupTable, row: int) -> np.ndarray:
        """Compute the correlation ``(modalities, modalities)`` of normal scores in cells under conditions of a row."""
        complete = np.asarray((self.library > 0).all(1))
        if complete.sum() < self.min_cells:
            return np.eye(self.library.shape[1])
        rows = self._of_cells(complete, self.library[:, 0]).matching(requested, row)
        ranks = rankdata(self.library[complete][rows], axis=0)
        scores = ndtri((ranks - 0.5) / len(ranks))
        spread = scores.std(0)
        unit = (scores - scores.mean(0)) / np.where(spread > 0, spread, np.inf)  # constant sizes have no correlation
        correlation = unit.T @ unit / len(unit)
        np.fill_diagonal(correlation, 1.0)
        return correlation

    def _of_cells(self, chosen: np.ndarray, sizes: np.ndarray) -> LibrarySizeModel:
        numbers = None if self.numbers is None else self.numbers[chosen]
        return LibrarySizeModel(sizes[chosen], self.cells.take(chosen), self.min_cells, numbers)


def _by_group(requested: GroupTable) -> Iterator[tuple[int, np.ndarray]]:
    """Yield the first row of each distinct group of requested conditions, and all of its rows."""
    _, first, group_of = requested.distinct()
    for group, row in enumerate(first.tolist()):
        yield row, np.flatnonzero(group_of == group)


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
