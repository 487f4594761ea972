"""How many molecules of each modality a generated cell gets: as in real cells, in which modalities go together."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.special import ndtr, ndtri
from scipy.stats import rankdata

from scdiffgen.conditions import group_by_row

from ._empirical import LibrarySizeModel


@dataclass(frozen=True)
class JointLibrarySizes:
    """Library sizes ``(cells, modalities)`` of each modality from cells that have it, their ranks from complete cells.

    The sizes of a modality are quantiles of those of training cells under the same conditions, after the back-off of
    :class:`LibrarySizeModel`; 0 where it was not measured. At which quantiles they are is drawn from a Gaussian copula,
    whose correlations are those of the normal scores of cells that have all modalities; where fewer than ``min_cells``
    have, modalities are independent.
    """

    library: np.ndarray
    codes: np.ndarray
    min_cells: int = 20
    n_interventions: int = 0

    def sample(self, codes: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        """Draw whole numbers of molecules ``(cells, modalities)``, at least 1, given the codes of the cells."""
        models = [self._of_cells(np.greater(sizes, 0), sizes) for sizes in self.library.T]
        drawn = np.empty((len(codes), len(models)))
        for group, rows in group_by_row(codes):
            scores = rng.multivariate_normal(np.zeros(len(models)), self.correlation(group), len(rows))
            for modality, model in enumerate(models):
                known = np.log(model.library[model.matching(group)])
                drawn[rows, modality] = np.quantile(known, ndtr(scores[:, modality])) + model.log_factor(group)
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
        return LibrarySizeModel(sizes[chosen], self.codes[chosen], self.min_cells, self.n_interventions)
