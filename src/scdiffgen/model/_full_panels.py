"""Features that are missing from the panel of a batch: their warning, and library sizes with the full panel."""

from collections.abc import Iterable

import numpy as np
import torch
from scvi.model.base import BaseModelClass

from scdiffgen._messages import listed, warn_user
from scdiffgen._registry_keys import REGISTRY_KEYS
from scdiffgen.conditions import Conditions
from scdiffgen.data import LARGEST_LIBRARY, categories_of_condition, feature_names
from scdiffgen.module import DiffusionModule

from ._training_data import Batch


def warn_of_missing_features(model: BaseModelClass) -> None:
    """Warn once of features that are zero in all cells of a batch and are treated as missing there."""
    panels = model.module.code.panels
    if panels.missing is None or panels.batch is None:
        return
    missing, batches = panels.missing.cpu().numpy(), categories_of_condition(model.registry, panels.batch)
    parts = []
    for (modality, names), columns in zip(feature_names(model.registry).items(), panels.blocks.slices, strict=True):
        of_batches = missing[:, columns]
        parts += [
            f"{listed(names[row])} of {modality!r} in {listed(batches[(of_batches == row).all(axis=1)])}"
            for row in np.unique(of_batches, axis=0)
            if row.any()
        ]
    warn_user(
        f"Features without a molecule in all cells of some batches ({panels.batch.name!r}), but not in others, are "
        f"treated as missing there, not as zero: {'; '.join(parts)}. They are predicted from the other features. If "
        "they were measured as zero, register another column as `batch_key`."
    )


@torch.no_grad()
def full_library(
    module: DiffusionModule, library: np.ndarray, conditions: Conditions[np.ndarray], cells: Iterable[Batch]
) -> np.ndarray:
    """Scale library sizes ``(cells, modalities)`` of training cells up to the full panel, by batch and label."""
    panels = module.code.panels
    if panels.missing is None:
        return library
    keys = [spec for spec in module.specs if spec.registry_key in (REGISTRY_KEYS.BATCH, REGISTRY_KEYS.LABELS)]
    shape = [spec.n_categories for spec in keys]

    def groups(given: Conditions[np.ndarray]) -> np.ndarray:
        return np.ravel_multi_index([given[spec.name].ids[:, 0] for spec in keys], shape)

    covered, n_cells = np.zeros((np.prod(shape), library.shape[1])), np.zeros((np.prod(shape), 1))
    for counts, given in cells:
        missing = panels.of_cells(given)
        assert missing is not None
        present = module.expression(counts, given) * ~missing
        np.add.at(covered, groups(given.numpy()), module.blocks.dense_sums(present).cpu().numpy())
        np.add.at(n_cells, groups(given.numpy()), 1)
    coverage = np.where(n_cells > 0, covered / np.maximum(n_cells, 1), 1)[groups(conditions)]
    return np.minimum((library / coverage).round(), LARGEST_LIBRARY).astype(library.dtype)
