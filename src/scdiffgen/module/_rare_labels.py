r"""Gene offsets of rare labels, which have too few cells for the network to learn.

A gene with total :math:`x` in a rare label and expectation :math:`E` from the average cell gets the offset

.. math:: \log \frac{x + \varphi / 2}{E + \varphi / 2} \left( 1 - \frac{z_0^2}{z^2} \right)_+
          \left( 1 - \frac{n^2}{n_0^2} \right)_+, \qquad z = \frac{x - E}{\sqrt{\varphi E}},

with the dispersion :math:`\varphi \ge 1` of the gene within labels: a positive-part James-Stein estimator, with a
threshold :math:`z_0` against multiple testing. Labels with at least :math:`n_0` cells get no offsets, because offsets
would make their cells more typical than real cells.
"""

import numpy as np
import torch
from scipy import sparse
from torch import Tensor

from scdiffgen.conditions import Conditions

MOST_CELLS, LEAST_CELLS = 70, 5  # number of cells of a rare label; fewer cells do not represent the label
THRESHOLD = 2.5  # in standard errors


class LabelSums:
    """Sums of counts, squared counts and dispersion terms over the cells of each label."""

    def __init__(self, name: str, n_labels: int, n_genes: int) -> None:
        self.name, shape = name, (n_labels, n_genes)
        self.counts, self.squares, self.by_library = (np.zeros(shape) for _ in range(3))  # (labels, genes)
        self.n_cells, self.library, self.library_squares = (np.zeros((shape[0], 1)) for _ in range(3))

    def add(self, counts: sparse.csr_matrix, conditions: Conditions[Tensor]) -> None:
        """Add counts ``(cells, genes)`` of nonempty cells."""
        if self.name not in conditions:
            return
        label = conditions[self.name]
        rows = np.flatnonzero((label.given & label.mask[:, 0]).cpu().numpy() & (counts.getnnz(1) > 0))
        labels = label.ids[:, 0].cpu().numpy()[rows]
        cells = counts.astype(np.float64)[rows]
        of_label = sparse.csr_matrix(
            (np.ones(len(rows)), (labels, np.arange(len(rows)))), (len(self.counts), len(rows))
        )
        library = np.asarray(cells.sum(1))
        self.counts += (of_label @ cells).toarray()
        self.squares += (of_label @ cells.power(2)).toarray()
        self.by_library += (of_label @ cells.multiply(library).tocsr()).toarray()
        self.n_cells += of_label @ np.ones_like(library)
        self.library += of_label @ library
        self.library_squares += of_label @ library**2

    def offsets(self, frequencies: Tensor) -> Tensor:
        """Compute offsets of rare labels ``(labels, genes)``, given frequencies in the average cell ``(genes,)``."""
        shares = frequencies.cpu().numpy().astype(np.float64)
        shares /= shares.sum()
        rarity = (1 - (self.n_cells / MOST_CELLS) ** 2).clip(min=0) * (self.n_cells >= LEAST_CELLS)
        expected = self.library * shares
        dispersion = self.dispersion()
        errors = (self.counts - expected) ** 2 / np.maximum(dispersion * expected, np.finfo(float).tiny)
        certain = np.clip(1 - THRESHOLD**2 / np.maximum(errors, THRESHOLD**2), 0, None)
        offsets = rarity * certain * np.log((self.counts + dispersion / 2) / (expected + dispersion / 2))
        return torch.from_numpy(offsets).to(frequencies)

    def dispersion(self) -> np.ndarray:
        """Estimate variance-to-mean ratios of counts within labels ``(genes,)``, at least 1."""
        share = self.counts / np.maximum(self.library, 1)
        squared = self.squares - 2 * share * self.by_library + share**2 * self.library_squares
        several = (self.n_cells > 1)[:, 0]
        unbiased = squared[several] * (self.n_cells / np.maximum(self.n_cells - 1, 1))[several]
        return np.maximum(unbiased.sum(0) / np.maximum(self.counts[several].sum(0), 1), 1)
