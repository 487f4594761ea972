"""Features that are missing from the panel of a batch: their warning, and library sizes with the full panel."""

from collections.abc import Iterable

import numpy as np
import torch
from scvi.model.base import BaseModelClass

from scdiffgen._messages import listed, warn_user
from scdiffgen._registry_keys import REGISTRY_KEYS
from scdiffgen.conditions import Conditions
from scdiffgen.data import LARGEST_LIBRARY, categories_of_condition, feature_names
from scdiffgen.module import DiffusionModule, JointThinningModule

from ._training_data import Batch


def warn_of_missing_features(model: BaseModelClass) -> None:
    """Warn once of features that are zero in all cells of a batch and are treated as missing there."""
    panels = model.module.panels if isinstance(model.module, JointThinningModule) else None
    if panels is None or panels.missing is None or panels.batch is None:
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
    panels = module.panels if isinstance(module, JointThinningModule) else None
    if panels is None or panels.missing is None or panels.batch is None:
        return library
    label = next((spec for spec in module.specs if spec.registry_key == REGISTRY_KEYS.LABELS), None)

    def groups(given: Conditions[np.ndarray]) -> np.ndarray:
        batches = np.asarray(given[panels.batch.name].ids[:, 0])
        return batches if label is None else batches * label.n_categories + np.asarray(given[label.name].ids[:, 0])

    n_groups = panels.batch.n_categories * (1 if label is None else label.n_categories)
    covered, n_cells = np.zeros((n_groups, library.shape[1])), np.zeros((n_groups, 1))
    for counts, given in cells:
        present = module.expression(counts, given) * ~panels.of_cells(given)
        np.add.at(covered, groups(given.numpy()), panels.blocks.dense_sums(present).cpu().numpy())
        np.add.at(n_cells, groups(given.numpy()), 1)
    coverage = np.where(n_cells > 0, covered / np.maximum(n_cells, 1), 1)[groups(conditions)]
    return np.minimum((library / coverage).round(), LARGEST_LIBRARY).astype(library.dtype)
