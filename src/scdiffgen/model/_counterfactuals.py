"""Given cells under other conditions: coupled to their own counts, or sampled again."""

from __future__ import annotations

import warnings
from collections.abc import Sequence

import numpy as np
import pandas as pd
import torch
from anndata import AnnData
from mudata import MuData
from scipy import sparse
from scvi.model.base import BaseModelClass
from torch import Tensor

from scdiffgen._log_normalise import log_normalise
from scdiffgen._registry_keys import REGISTRY_KEYS
from scdiffgen.conditions import N_CELLS, UNSEEN, Conditions
from scdiffgen.data import write_conditions
from scdiffgen.module import ThinningModule
from scdiffgen.responses import SOURCES, Response

from ._cells import Cells, new_cells, repeated
from ._model_access import gene_names
from ._sampler import Sampler, whole_counts
from ._training_summary import TrainingCells
from ._transferred_responses import ResponseModel


def counterfactual_cells(
    model: BaseModelClass,
    sampler: Sampler,
    cells: Cells,
    table: pd.DataFrame,
    changes: Conditions[np.ndarray],
    keep: float | None,
    generator: torch.Generator,
    *,
    measured: bool,
) -> AnnData | MuData:
    """Generate counterfactual cells under the conditions of ``table``, one row, encoded in ``changes``."""
    # by default, changes of effects are coupled, those of the batch by the network alone, and others keep nothing
    if keep is None and not _have_already(cells, changes.without(cells.module.denoiser.effect_names)):
        batch = [spec.name for spec in cells.module.specs if spec.registry_key == REGISTRY_KEYS.BATCH]
        measured, keep = False, None if _have_already(cells, changes.without(batch)) else 0.0

    def draw(counts: Tensor, source: Conditions[Tensor]) -> tuple[sparse.csr_matrix, Conditions, np.ndarray]:
        target = source.replace(repeated(changes, len(counts), counts.device))
        predicted, response = _minibatch(sampler, counts, source, target, keep, generator, measured=measured)
        return whole_counts(predicted), target.numpy(), np.array(SOURCES)[response.cpu().numpy()]

    counts, targets, responses = zip(*sampler.over_cells(cells, draw), strict=True)
    encoded = Conditions.concatenate(targets).take(np.argsort(cells.sorted))
    obs = cells.obs()
    for name, column in write_conditions(model.registry, table.drop(columns=N_CELLS)).items():
        obs[name] = column.iloc[np.zeros(len(obs), dtype=int)].array  # of the registered type
    obs[UNSEEN] = TrainingCells(model).n_alike(encoded) == 0
    if keep is None:
        obs["response"] = pd.Categorical(cells.in_order(list(responses)), categories=list(SOURCES))
    return new_cells(cells.in_order(list(counts)), obs, gene_names(model))


def _minibatch(
    sampler: Sampler,
    counts: Tensor,
    source: Conditions[Tensor],
    target: Conditions[Tensor],
    keep: float | None,
    generator: torch.Generator,
    *,
    measured: bool,
) -> tuple[Tensor, Tensor]:
    """Dense counts ``(cells, genes)``, and where the response of each cell comes from ``(cells,)``."""
    module = sampler.module

    def of_network() -> Tensor:
        after = module.predictor(target, len(counts), sampler.guidance_scale)
        return module.counterfactual(counts, source, after, keep=keep, n_steps=sampler.n_steps, generator=generator)

    transferable = isinstance(module, ThinningModule) and measured and keep is None
    if sampler.responses is None or not transferable:
        return of_network(), torch.zeros(len(counts), dtype=torch.long)
    scale = module.effect_scale(sampler.guidance_scale)
    response = sampler.responses.responses(source, target, scale)
    for caution in response.cautions():
        warnings.warn(f"Predicted responses: {caution}.", UserWarning, stacklevel=2)
    source_of, known = (torch.from_numpy(each) for each in (response.source, response.known))
    if not known.any():
        return of_network(), source_of
    predicted = response.apply(counts, generator)
    if not known.all():
        predicted = torch.where(known.to(predicted.device)[:, None], predicted, of_network())
    return predicted, source_of


def _have_already(cells: Cells, conditions: Conditions[np.ndarray]) -> bool:
    """Whether the cells have all of some conditions already."""
    for counts, source in cells if conditions else []:
        target = repeated(conditions, len(counts), counts.device)
        for name in conditions:
            pairs = zip(source[name], target[name], strict=True)
            if not all(torch.allclose(before.double(), after.double(), equal_nan=True) for before, after in pairs):
                return False
    return True


def untreated_responses(
    responses: ResponseModel | None, conditions: Conditions[np.ndarray], n_rows: int
) -> list[Response | None]:
    """What untreated cells are predicted to do in each row of a request; none where the network is asked."""
    return [None] * n_rows if responses is None else responses.from_untreated(conditions)


def response_weights(responses: Sequence[Response | None], table: pd.DataFrame) -> pd.DataFrame:
    """Where the response to each row of a request comes from, and the weights of the predictions that make it up."""
    rows = [
        {"response": "network"} if of is None else {"response": of.prediction.source, **of.prediction.weights}
        for of in responses
    ]
    weights = pd.DataFrame(rows, index=table.index)
    return pd.concat([table, weights.fillna(dict.fromkeys(weights.columns[1:], 0.0))], axis=1)


def means_with_intervals(
    counts: sparse.csr_matrix, columns: np.ndarray, n_bootstrap: int, rng: np.random.Generator
) -> dict[str, np.ndarray]:
    """``mean`` of the log-normalised expression of some genes, and ``low`` and ``high``: 95 % of the resamples."""
    expression = log_normalise(counts)[:, columns]
    n_cells = expression.shape[0]
    weights = rng.multinomial(n_cells, np.full(n_cells, 1 / n_cells), n_bootstrap)
    means = np.asarray(sparse.csr_matrix(weights / n_cells) @ expression.toarray())
    low, high = np.quantile(means, [0.025, 0.975], axis=0)
    return {"mean": np.asarray(expression.mean(0)).ravel(), "low": low, "high": high}
