r"""Labels of few cells, and the genes that differ in them beyond doubt.

A network learns little from a dozen cells among thousands, so that a rare type would come out as its neighbour. Genes
whose total :math:`x` in a rare label differs from what the average cell lets expect, :math:`E`, get the offset

.. math:: \log \frac{x + \varphi / 2}{E + \varphi / 2} \left( 1 - \frac{z_0^2}{z^2} \right)_+
          \left( 1 - \frac{n^2}{n_0^2} \right)_+, \qquad z = \frac{x - E}{\sqrt{\varphi E}},

:math:`\varphi \ge 1` the variance of the gene over its mean in cells of a label, from all labels: the positive part of
James and Stein's rule, with a threshold :math:`z_0` against the many genes that differ by chance. The more cells
:math:`n` there are, the more the network learns by itself, and from :math:`n_0` on it gets nothing: with offsets, cells
of labels that it knows would come out more typical than real ones.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from ._label_sums import LabelSums

MOST_CELLS, LEAST_CELLS = 70, 5  # of a rare label; fewer than the least show themselves, not their label
THRESHOLD = 2.5  # standard errors


def offsets_of_rare_labels(sums: LabelSums, frequencies: Tensor) -> Tensor:
    """Scores of rare labels ``(labels, genes)``, against the shares of genes in the average cell ``(genes,)``."""
    shares = frequencies.cpu().numpy().astype(np.float64)
    rarity = (1 - (sums.n_cells / MOST_CELLS) ** 2).clip(min=0) * (sums.n_cells >= LEAST_CELLS)
    expected = sums.library * shares
    several = (sums.n_cells > 1)[:, 0]
    of_several = sums.squared_residuals().sum(0), sums.counts[several].sum(0)
    dispersion = np.maximum(of_several[0] / np.maximum(of_several[1], 1), 1)
    errors = (sums.counts - expected) ** 2 / np.maximum(dispersion * expected, np.finfo(float).tiny)
    certain = np.clip(1 - THRESHOLD**2 / np.maximum(errors, THRESHOLD**2), 0, None)
    offsets = rarity * certain * np.log((sums.counts + dispersion / 2) / (expected + dispersion / 2))
    return torch.from_numpy(offsets).to(frequencies)
