"""Given cells under other conditions: coupled to their own counts, or sampled again."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd
import torch
from scipy import sparse
from scvi.model.base import BaseModelClass
from torch import Tensor

from scdiffgen.conditions import N_CELLS, Conditions
from scdiffgen.data import write_conditions
from scdiffgen.module import ThinningModule
from scdiffgen.responses import SOURCES

from ._cells import Cells, repeated
from ._model_access import training_cells
from ._sampler import Sampler, whole_counts


@dataclass(frozen=True)
class Counterfactuals:
    """Cells whose conditions change; coupled if they ``keep`` no share of their molecules that is given."""

    sampler: Sampler
    cells: Cells
    changes: Conditions[np.ndarray]  # one row
    keep: float | None
    measured: bool

    @classmethod
    def of(
        cls, sampler: Sampler, cells: Cells, changes: Conditions[np.ndarray], keep: float | None, *, measured: bool
    ) -> Counterfactuals:
        """Choose what is kept: nothing, if more changes than perturbations that are effects."""
        if keep is None and not _only_effects_change(cells, changes):
            keep = 0.0
        return cls(sampler, cells, changes, None if keep is None else float(keep), measured)

    def draw(
        self, model: BaseModelClass, table: pd.DataFrame, generator: torch.Generator
    ) -> tuple[sparse.csr_matrix, pd.DataFrame]:
        """Counts of the cells under the conditions of ``table``, and what is known of them."""

        def draw(counts: Tensor, source: Conditions[Tensor]) -> tuple[sparse.csr_matrix, Conditions, np.ndarray]:
            target = source.replace(repeated(self.changes, len(counts), counts.device))
            predicted, response = self._minibatch(counts, source, target, generator)
            return whole_counts(predicted), target.numpy(), np.array(SOURCES)[response.cpu().numpy()]

        counts, targets, responses = zip(*self.sampler.each(self.cells, draw), strict=True)
        encoded = Conditions.concatenate(targets).take(np.argsort(self.cells.sorted))
        written = write_conditions(model.registry, table.drop(columns=N_CELLS)).iloc[0]
        obs = self.cells.obs()
        for name, value in written.items():
            obs[name] = value
        obs["unseen_in_training"] = training_cells(model).unseen(encoded)
        if self.keep is None:
            obs["response"] = pd.Categorical(self.cells.in_order(list(responses)), categories=list(SOURCES))
        return self.cells.in_order(list(counts)), obs

    def _minibatch(
        self, counts: Tensor, source: Conditions[Tensor], target: Conditions[Tensor], generator: torch.Generator
    ) -> tuple[Tensor, Tensor]:
        """Dense counts ``(cells, genes)``, and where the response of each cell comes from ``(cells,)``."""
        sampler, module = self.sampler, self.sampler.module

        def of_network() -> Tensor:
            after = module.predictor(target, len(counts), sampler.guidance_scale)
            return module.counterfactual(
                counts, source, after, keep=self.keep, n_steps=sampler.n_steps, generator=generator
            )

        transferable = isinstance(module, ThinningModule) and self.measured and self.keep is None
        if sampler.responses is None or not transferable:
            return of_network(), torch.zeros(len(counts), dtype=torch.long)
        response = sampler.responses.responses(source, target)
        if not response.known.any():
            return of_network(), response.source
        scale = module.effect_scale(sampler.guidance_scale)
        predicted = sampler.responses.apply(module, counts, source, response, scale, generator)
        if not response.known.all():
            predicted = torch.where(response.known[:, None], predicted, of_network())
        return predicted, response.source


def _only_effects_change(cells: Cells, changes: Conditions[np.ndarray]) -> bool:
    """Whether the cells have all of the conditions already, but for perturbations that are effects."""
    identity = changes.without(cells.module.denoiser.effect_names)
    if not identity:
        return True
    for counts, source in cells:
        target = repeated(identity, len(counts), counts.device)
        for name in identity:
            pairs = zip(source[name], target[name], strict=True)
            if not all(torch.allclose(before.double(), after.double(), equal_nan=True) for before, after in pairs):
                return False
    return True


def means_with_intervals(
    counts: sparse.csr_matrix, columns: np.ndarray, n_bootstrap: int, rng: np.random.Generator
) -> dict[str, np.ndarray]:
    """``mean`` of the log-normalised expression of some genes, and ``low`` and ``high``: 95 % of the resamples."""
    expression = _log_normalised(counts)[:, columns]
    n_cells = expression.shape[0]
    weights = rng.multinomial(n_cells, np.full(n_cells, 1 / n_cells), n_bootstrap)
    means = np.asarray(sparse.csr_matrix(weights / n_cells) @ expression.toarray())
    low, high = np.quantile(means, [0.025, 0.975], axis=0)
    return {"mean": np.asarray(expression.mean(0)).ravel(), "low": low, "high": high}


def _log_normalised(counts: sparse.csr_matrix) -> sparse.csr_matrix:
    """log1p of counts per 10,000."""
    scale = 1e4 / np.asarray(counts.sum(1)).ravel().clip(min=1)
    normalised = sparse.csr_matrix(counts.multiply(scale[:, None]))
    normalised.data = np.log1p(normalised.data)
    return normalised
