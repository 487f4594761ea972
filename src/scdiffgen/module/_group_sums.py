"""Sums over labels and batches: offsets of rare labels, and features that the panel of a batch lacks."""

from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np
import torch
from scipy import sparse
from torch import Tensor, nn

from scdiffgen._codes import indicator
from scdiffgen._registry_keys import REGISTRY_KEYS
from scdiffgen.conditions import ConditionSpec
from scdiffgen.diffusion import Blocks

from ._process_options import Given

MOST_CELLS, LEAST_CELLS = 70, 5  # number of cells of a rare label; fewer cells do not represent the label


class LabelSums:
    r"""Sums over the cells of each label, for gene offsets of rare labels, which the network cannot learn.

    A gene with total :math:`x` in a rare label and expectation :math:`E` from the average cell gets the offset

    .. math:: \log \frac{x + \varphi / 2}{E + \varphi / 2} \left( 1 - \frac{z_0^2}{z^2} \right)_+
              \left( 1 - \frac{n^2}{n_0^2} \right)_+, \qquad z = \frac{x - E}{\sqrt{\varphi E}},

    with the dispersion :math:`\varphi \ge 1` of the gene within labels: a positive-part James-Stein estimator, with a
    threshold :math:`z_0` against multiple testing. Labels with at least :math:`n_0` cells get no offsets, because
    offsets would make their cells more typical than real cells.
    """

    def __init__(self, name: str, n_labels: int, n_genes: int) -> None:
        self.name, shape = name, (n_labels, n_genes)
        self.counts, self.squares, self.by_library = (np.zeros(shape) for _ in range(3))  # (labels, genes)
        self.n_cells, self.library, self.library_squares = (np.zeros((shape[0], 1)) for _ in range(3))

    def add(self, counts: sparse.csr_matrix, conditions: Given) -> None:
        """Add counts ``(cells, genes)`` of nonempty cells."""
        if self.name not in conditions:
            return
        label = conditions[self.name]
        rows = np.flatnonzero((label.given & label.mask[:, 0]).cpu().numpy() & (counts.getnnz(1) > 0))
        labels = label.ids[:, 0].cpu().numpy()[rows]
        cells = counts.astype(np.float64)[rows]
        of_label = indicator(labels, len(self.counts))
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
        threshold = 2.5  # in standard errors
        errors = (self.counts - expected) ** 2 / np.maximum(dispersion * expected, np.finfo(float).tiny)
        certain = np.clip(1 - threshold**2 / np.maximum(errors, threshold**2), 0, None)
        offsets = rarity * certain * np.log((self.counts + dispersion / 2) / (expected + dispersion / 2))
        return torch.from_numpy(offsets).to(frequencies)

    def dispersion(self) -> np.ndarray:
        """Estimate variance-to-mean ratios of counts within labels ``(genes,)``, at least 1."""
        share = self.counts / np.maximum(self.library, 1)
        squared = self.squares - 2 * share * self.by_library + share**2 * self.library_squares
        several = (self.n_cells > 1)[:, 0]
        unbiased = squared[several] * (self.n_cells / np.maximum(self.n_cells - 1, 1))[several]
        return np.maximum(unbiased.sum(0) / np.maximum(self.counts[several].sum(0), 1), 1)


class PanelSums:
    """Sums over the measured cells of each batch, for one modality."""

    def __init__(self, n_batches: int, n_columns: int) -> None:
        self.molecules, self.n_nonzero = np.zeros((2, n_batches, n_columns))
        self.n_cells = np.zeros((n_batches, 1))

    def add(self, counts: sparse.csr_matrix, batches: np.ndarray) -> None:
        """Add counts ``(cells, columns)`` of cells of ``batches`` ``(cells,)``."""
        of_batch = indicator(batches, len(self.n_cells))
        self.molecules += (of_batch @ counts).toarray()
        self.n_nonzero += (of_batch @ (counts > 0)).toarray()
        self.n_cells += of_batch @ (np.asarray(counts.sum(1)) > 0)

    def missing(self) -> np.ndarray:
        """Mark features ``(batches, columns)`` that are zero in a batch, but in other batches in too few cells."""
        has_feature, largest_probability = self.n_nonzero > 0, 1e-6
        n_cells = (self.n_cells * has_feature).sum(0)
        probability_of_zero = (n_cells - self.n_nonzero.sum(0) + 1) / (n_cells + 2)
        is_unlikely = self.n_cells * np.log(probability_of_zero) < np.log(largest_probability)
        return is_unlikely & ~has_feature & has_feature.any(0)

    def full_panel(self, missing: np.ndarray) -> np.ndarray:
        """Estimate the molecules ``(columns,)`` of all cells with the full panel."""
        # Maximum likelihood: the molecules of a batch are multinomial on the features of its panel.
        total, of_batch, present = self.molecules.sum(0), self.molecules.sum(1), ~missing
        shares = total / total.sum()
        for _ in range(100):
            shares = total / ((of_batch / (present @ shares)) @ present)
            shares /= shares.sum()
        return shares * (of_batch / (present @ shares)).sum()


class Panels(nn.Module):
    """Panels of the batches, for modalities with few features, such as proteins."""

    most_columns: ClassVar[int] = 500
    missing: Tensor | None  # (batches, columns), bool; None if no batch lacks a feature

    def __init__(self, specs: Sequence[ConditionSpec], blocks: Blocks) -> None:
        super().__init__()
        self.batch = next((spec for spec in specs if spec.registry_key == REGISTRY_KEYS.BATCH), None)
        self.blocks = blocks
        self.register_buffer("missing", None)

    def _load_from_state_dict(self, state_dict: dict[str, Any], prefix: str, *others: Any) -> None:
        """Load the panels, which are not in files without missing features."""
        self.missing = self._none_missing() if f"{prefix}missing" in state_dict else None
        super()._load_from_state_dict(state_dict, prefix, *others)

    def sums(self) -> dict[int, PanelSums]:
        """Return empty sums by position of the modalities that may have panels."""
        if self.batch is None or len(self.blocks.sizes) == 1:
            return {}
        narrow = [place for place, size in enumerate(self.blocks.sizes) if size <= self.most_columns]
        return {place: PanelSums(self.batch.n_categories, self.blocks.sizes[place]) for place in narrow}

    def add(self, sums: dict[int, PanelSums], counts: sparse.csr_matrix, conditions: Given) -> None:
        for place, part in sums.items():
            part.add(counts[:, self.blocks.slices[place]], self.batch_of(conditions))

    def set(self, place: int, missing: np.ndarray) -> None:
        """Set missing features ``(batches, columns)`` of a modality."""
        self.missing = self._none_missing() if self.missing is None else self.missing
        self.missing[:, self.blocks.slices[place]] = torch.from_numpy(missing)

    def _none_missing(self) -> Tensor:
        n_batches = 0 if self.batch is None else self.batch.n_categories
        return torch.zeros(n_batches, sum(self.blocks.sizes), dtype=torch.bool)

    def batch_of(self, conditions: Given) -> np.ndarray:
        """Return the batch ``(cells,)`` of registered cells."""
        assert self.batch is not None
        return conditions[self.batch.name].ids[:, 0].cpu().numpy()

    def of_cells(self, conditions: Given) -> Tensor | None:
        """Mark missing features ``(cells, columns)``; ``None`` if no batch lacks a feature."""
        if self.missing is None or self.batch is None or self.batch.name not in conditions:
            return None
        ids, _, mask, given = conditions[self.batch.name]
        return self.missing.to(ids.device)[ids[:, 0]] & (given & mask[:, 0])[:, None]

    def incomplete(self, conditions: Given) -> Tensor | None:
        """Mark modalities with missing features ``(cells, modalities)``; ``None`` if no batch lacks a feature."""
        missing = self.of_cells(conditions)
        return None if missing is None else self.blocks.dense_sums(missing.float()) > 0
