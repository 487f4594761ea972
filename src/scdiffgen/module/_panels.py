"""Features that are missing from the panel of a batch, such as protein tags without an antibody."""

from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np
import torch
from scipy import sparse
from torch import Tensor, nn

from scdiffgen._registry_keys import REGISTRY_KEYS
from scdiffgen.conditions import ConditionSpec
from scdiffgen.diffusion import Blocks

from ._process_options import Given


class PanelSums:
    """Sums over the measured cells of each batch, for one modality."""

    def __init__(self, n_batches: int, n_columns: int) -> None:
        self.molecules, self.n_nonzero = np.zeros((2, n_batches, n_columns))
        self.n_cells = np.zeros((n_batches, 1))

    def add(self, counts: sparse.csr_matrix, batches: np.ndarray) -> None:
        """Add counts ``(cells, columns)`` of cells of ``batches`` ``(cells,)``."""
        shape = len(self.n_cells), len(batches)
        of_batch = sparse.csr_matrix((np.ones(len(batches)), (batches, np.arange(len(batches)))), shape)
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
        """Add cells to the sums."""
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
