"""Contexts in which a treatment was measured."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from ._candidates import kernel_weights, uncorrelated
from ._library_sizes import of_genes


class Measured(NamedTuple):
    """Contexts that were measured with a treatment and without."""

    contexts: np.ndarray  # codes (contexts, columns)
    before: np.ndarray  # means of untreated cells: log expression, logarithm of library sizes (contexts, genes + 2)
    change: np.ndarray  # of these means: without depth, and the library size as parts (contexts, genes + 2)
    variance: np.ndarray  # of the change, by chance (contexts, genes + 2)
    n_cells: np.ndarray  # treated and untreated ones, from each of the groups (contexts, 2, groups)
    groups: np.ndarray  # rows of the pseudobulks (groups,)

    @classmethod
    def of(cls, contexts: Sequence[tuple[np.ndarray, ...]]) -> Measured:
        """From one context after the other, with numbers of cells from all groups; those that are used stay."""
        codes, before, change, variance, n_cells = map(np.stack, zip(*contexts, strict=True))
        groups = np.flatnonzero(n_cells.any((0, 1)))
        return cls(codes, before, change, variance, n_cells[..., groups], groups)

    def without(self, row: int) -> Measured:
        """All contexts but one."""
        fewer = {name: np.delete(getattr(self, name), row, axis=0) for name in self._fields if name != "groups"}
        return self._replace(**fewer)

    def row(self, context: np.ndarray) -> int | None:
        """Where a context is, if it was measured."""
        return next(iter(np.flatnonzero((self.contexts == context).all(1)).tolist()), None)

    def chance(self, here: np.ndarray) -> float:
        """Sampling variance of the squared length of a kernel-weighted mean change."""
        weights = kernel_weights(uncorrelated(of_genes(self.before), of_genes(here)))
        return float((weights**2 @ self.variance).sum())

    def mean(self) -> np.ndarray:
        """Mean change of all contexts ``(genes + 2,)``, by inverse variance."""
        return np.average(self.change, axis=0, weights=1 / (self.variance.sum(1) + np.finfo(float).tiny))
