r"""Moments of the counts of each gene within labels, in one pass over the cells.

A gene of which :math:`E_c` molecules are expected in cell :math:`c`, its share in the label times the library size, has
the dispersion (squared coefficient of variation) :math:`\sum_c ((x_c - E_c)^2 - E_c) / \sum_c E_c^2`, which is the
moment estimator of a gamma-Poisson model.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import sparse
from torch import Tensor

from scdiffgen.conditions import Conditions
from scdiffgen.diffusion import to_scipy

SHARE = 0.3  # of what varies within labels: tokens explain the rest
PRIOR, LEAST_DISPERSION, LARGEST_DISPERSION = 0.3, 0.003, 1.0  # the prior counts as one expected molecule, squared


class LabelSums:
    """Sums over the cells of each label: of counts, of their squares, and what variances take.

    Library sizes are those of each modality, whose numbers of columns are ``sizes``. Without a label (``None``) all
    cells are of one; otherwise cells without theirs do not count.
    """

    def __init__(self, label: str | None, n_labels: int, sizes: tuple[int, ...]) -> None:
        self.label, self.sizes = label, sizes
        shape = n_labels, sum(sizes)
        self.counts, self.squares, self.by_library = (np.zeros(shape) for _ in range(3))  # (labels, genes)
        of_modalities = n_labels, len(sizes)
        self.n_cells, self.library, self.library_squares = (np.zeros(of_modalities) for _ in range(3))

    def add(self, counts: Tensor, conditions: Conditions[Tensor], library: Tensor) -> None:
        """Add cells, CSR counts ``(cells, genes)`` with library sizes ``(cells,)`` or ``(cells, modalities)``."""
        rows, labels = self._labels(conditions)
        cells = to_scipy(counts).astype(np.float64)[rows]
        sizes = library.cpu().numpy().astype(np.float64).reshape(len(counts), len(self.sizes))[rows]
        shape = len(self.counts), len(rows)
        of_label = sparse.csr_matrix((np.ones(len(rows)), (labels, np.arange(len(rows)))), shape)
        modality = np.repeat(np.arange(len(self.sizes)), self.sizes)[cells.indices]
        by_library = cells.copy()
        by_library.data *= sizes[np.repeat(np.arange(len(rows)), np.diff(cells.indptr)), modality]
        self.counts += (of_label @ cells).toarray()
        self.squares += (of_label @ cells.power(2)).toarray()
        self.by_library += (of_label @ by_library).toarray()
        self.n_cells += of_label @ (sizes > 0)
        self.library += of_label @ sizes
        self.library_squares += of_label @ sizes**2

    def _labels(self, conditions: Conditions[Tensor]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Cells that have a label, and which."""
        if self.label is None:
            return np.arange(conditions.n_cells), np.zeros(conditions.n_cells, np.int64)
        if self.label not in conditions:
            return np.empty(0, np.int64), np.empty(0, np.int64)
        label = conditions[self.label]
        rows = (label.given & label.mask[:, 0]).nonzero()[:, 0].cpu().numpy()
        return rows, label.ids[:, 0].cpu().numpy()[rows]

    def dispersions(self) -> Tensor:
        """Dispersion of each gene ``(genes,)`` to begin with: a share of that within labels, shrunk to a prior."""
        share = self.counts / np.maximum(self.of_genes(self.library), 1)
        squared_means = share**2 * self.of_genes(self.library_squares) * self.of_genes(self.n_cells > 1)
        excess = (self.squared_residuals() - self.counts * self.of_genes(self.n_cells > 1)).sum(0)
        dispersions = ((SHARE * excess).clip(min=0) + PRIOR) / (squared_means.sum(0) + 1)
        return torch.from_numpy(dispersions.clip(LEAST_DISPERSION, LARGEST_DISPERSION)).float()

    def squared_residuals(self) -> NDArray[np.float64]:
        """Sums ``(labels, genes)`` of squared differences from what is expected, unbiased; 0 for labels of a cell."""
        share = self.counts / np.maximum(self.of_genes(self.library), 1)
        squared = self.squares - 2 * share * self.by_library + share**2 * self.of_genes(self.library_squares)
        return squared * self.of_genes(np.where(self.n_cells > 1, self.n_cells / np.maximum(self.n_cells - 1, 1), 0))

    def of_genes(self, of_modalities: NDArray[Any]) -> NDArray[Any]:
        """A number for each gene ``(labels, genes)`` from one for each modality."""
        return np.repeat(of_modalities, self.sizes, axis=1)
