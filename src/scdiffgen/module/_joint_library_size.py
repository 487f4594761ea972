"""How many molecules of each kind a generated cell gets: as in real cells, in which the kinds go together."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.special import ndtr, ndtri
from scipy.stats import rankdata

from ._library_size import LibrarySizeModel, alike


@dataclass(frozen=True)
class JointLibrarySizes:
    """Library sizes of several kinds: those of each kind from all cells that have it, their ranks from complete cells.

    The sizes of a kind are quantiles of those of training cells under the same conditions, after the back-off of
    :class:`LibrarySizeModel`. At which quantiles they are is drawn from a Gaussian copula, whose correlations are those
    of the normal scores of cells that have all kinds; where fewer than ``min_cells`` have, kinds are independent.

    Parameters
    ----------
    library
        Library sizes of the training cells ``(cells, kinds)``; 0 where a kind was not measured.
    codes, min_cells, n_interventions
        As in :class:`LibrarySizeModel`.

    Examples
    --------
    >>> sizes = np.exp(np.random.default_rng(0).normal(5, 1, (200, 1)) + [0.0, 2.0])
    >>> model = JointLibrarySizes(sizes, np.zeros((200, 1), dtype=int))
    >>> drawn = model.sample(np.zeros((100, 1), dtype=int), np.random.default_rng(0))
    >>> drawn.shape, bool(np.corrcoef(np.log(drawn).T)[0, 1] > 0.99)
    ((100, 2), True)
    """

    library: np.ndarray
    codes: np.ndarray
    min_cells: int = 20
    n_interventions: int = 0

    def sample(self, codes: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        """Draw library sizes.

        Parameters
        ----------
        codes
            Conditions of the cells to generate, see :class:`LibrarySizeModel`.
        rng
            Source of randomness.

        Returns
        -------
        Whole numbers of molecules ``(cells, kinds)``, at least 1.
        """
        models = [self._of_cells(np.greater(of_kind, 0), of_kind) for of_kind in self.library.T]
        drawn = np.empty((len(codes), len(models)))
        for group, rows in alike(codes):
            scores = rng.multivariate_normal(np.zeros(len(models)), self.correlation(group), len(rows))
            for kind, model in enumerate(models):
                known = np.log(model.library[model.matching(group)])
                drawn[rows, kind] = np.quantile(known, ndtr(scores[:, kind])) + model.log_factor(group)
        return np.maximum(np.exp(drawn).round(), 1)

    def correlation(self, group: np.ndarray) -> np.ndarray:
        """Correlation of the normal scores of the kinds ``(kinds, kinds)`` in cells under conditions ``group``."""
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
        return LibrarySizeModel(sizes[chosen], self.codes[chosen], self.min_cells, self.n_interventions)
