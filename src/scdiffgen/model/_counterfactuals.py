"""Prediction of given cells under other conditions: coupled to their counts, or resampled."""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, Literal, get_args

import numpy as np
import pandas as pd
import torch
from anndata import AnnData
from mudata import MuData
from scipy import sparse
from scvi.model.base import BaseModelClass
from torch import Tensor

from scdiffgen._arguments import check_choice
from scdiffgen._log_normalise import log_normalise
from scdiffgen._messages import listed, warn_user
from scdiffgen._registry_keys import REGISTRY_KEYS
from scdiffgen.conditions import N_CELLS, UNSEEN, Conditions, Request, request_table
from scdiffgen.data import write_conditions

from ._cell_request import encode, warn_of_large_doses
from ._cells import Cells, new_cells, repeated
from ._model_access import gene_names, sampler_of
from ._sampler import Sampler, whole_counts
from ._training_summary import TrainingCells
from ._transferred_responses import UNKNOWN_RESPONSE, CellResponses, JointResponse, check_of

ResponseSource = Literal["auto", "network"]


def counterfactual_cells(
    model: BaseModelClass,
    sampler: Sampler,
    adata: AnnData | MuData | None,
    indices: Sequence[int] | np.ndarray | None,
    conditions: Mapping[str, Any],
    source: ResponseSource,
    generator: torch.Generator,
    keep: float | None = None,
    *,
    silent: bool,
) -> AnnData | MuData:
    """Predict cells under other conditions."""
    check_choice("source", source, get_args(ResponseSource))
    table = request_table(conditions)
    if len(table) > 1:
        raise ValueError(f"`conditions` has {len(table)} rows: pass one value for each condition.")
    changes, requested = encode(model, table).given_only(), table.drop(columns=N_CELLS)
    cells = Cells(model, adata, indices, sampler.batch_size, None if silent else "Predicting")
    # By default, responses to perturbations are transferred, batches are coupled, and other changes resample.
    effects = cells.module.intervention_names
    if keep is None and not _have_already(cells, changes.without(effects)):
        batch = [spec.name for spec in cells.module.specs if spec.registry_key == REGISTRY_KEYS.BATCH]
        source, keep = "network", None if _have_already(cells, changes.without(batch)) else 0.0
        if keep is not None:
            _warn_of_joint_changes(cells, changes.only(effects), changes.without(effects))
    transfer = sampler.responses if source == "auto" and keep is None else None
    cautions: dict[str, None] = {}

    def draw(counts: Tensor, given: Conditions[Tensor]) -> tuple[sparse.csr_matrix, Conditions, pd.DataFrame]:
        target = given.replace(repeated(changes, len(counts), counts.device))
        responses = CellResponses.of_network(len(counts))
        if transfer is not None:
            responses = transfer.responses(given.numpy(), target.numpy(), sampler.response_scale)
        cautions.update(dict.fromkeys(responses.cautions()))
        predicted = _minibatch(sampler, counts, given, target, keep, generator, responses)
        return whole_counts(predicted), target.numpy(), responses.columns()

    counts, targets, columns = zip(*sampler.over_cells(cells, draw), strict=True)
    for caution in cautions:  # without the dose, so that a dose response warns once
        warn_user(f"The response to {listed(requested.iloc[0].drop('dose', errors='ignore').tolist())}: {caution}.")
    if transfer is not None and any((found["response_source"] == "network").any() for found in columns):
        warn_user(UNKNOWN_RESPONSE)
    in_order, obs = np.argsort(cells.sorted), cells.obs()
    for name, column in write_conditions(model.registry, requested).items():
        obs[name] = column.iloc[np.zeros(len(obs), dtype=int)].array  # keeps the registered type
    obs[UNSEEN] = TrainingCells(model).n_alike(Conditions.concatenate(targets).take(in_order)) == 0
    obs["response_source"] = pd.Categorical(["resampled"] * len(obs))
    if keep is None:
        for name, column in pd.concat(columns, ignore_index=True).iloc[in_order].items():
            obs[name] = column.array
    return new_cells(cells.in_order(list(counts)), obs, gene_names(model))


def _minibatch(
    sampler: Sampler,
    counts: Tensor,
    source: Conditions[Tensor],
    target: Conditions[Tensor],
    keep: float | None,
    generator: torch.Generator,
    responses: CellResponses,
) -> Tensor:
    """Predict dense counts ``(cells, genes)`` by transferred responses where available, else by the network."""
    known = responses.known
    transferred = responses.apply(counts, generator) if known.any() else counts
    if known.all():
        return transferred
    change = partial(sampler.module.counterfactual, guidance=sampler.guidance, n_steps=sampler.n_steps)
    predicted = change(counts, source, target, keep=keep, generator=generator)
    rows = torch.from_numpy(known).to(predicted.device)
    return torch.where(rows[:, None], transferred, predicted) if known.any() else predicted


def _warn_of_joint_changes(cells: Cells, treatment: Conditions[np.ndarray], others: Conditions[np.ndarray]) -> None:
    """Warn that cells are resampled because other conditions change together with the treatment."""
    names = " and ".join(repr(name) for name in others if not _have_already(cells, others.only([name])))
    if not _have_already(cells, treatment):
        warn_user(
            f"`conditions` changes {names} and {next(iter(treatment))!r} together: new cells are sampled, and no "
            f"measured response is used. Leave out {names}, or call `transfer_batch` first to change the batch."
        )


def _have_already(cells: Cells, conditions: Conditions[np.ndarray]) -> bool:
    """Test whether all cells already have the given conditions."""
    for counts, source in cells if conditions else []:
        target = repeated(conditions, len(counts), counts.device)
        for name in conditions:
            pairs = zip(source[name], target[name], strict=True)
            if not all(torch.allclose(before.double(), after.double(), equal_nan=True) for before, after in pairs):
                return False
    return True


def untreated_responses(model: BaseModelClass, conditions: Request) -> tuple[pd.DataFrame, list[JointResponse | None]]:
    """Return a request, and the response of untreated cells by row; ``None`` if the network predicts it."""
    table, transfer = request_table(conditions), sampler_of(model).responses
    encoded, responses = encode(model, table), list[JointResponse | None]([None] * len(table))
    if not encoded.given_only().only(effects := model.module.intervention_names):
        raise ValueError(f"`conditions` names no perturbation ({listed(effects) or 'none is registered'}): add it.")
    warn_of_large_doses(model, encoded)
    return table.drop(columns=N_CELLS), responses if transfer is None else transfer.from_untreated(encoded)


def response_weights(responses: Sequence[JointResponse | None], table: pd.DataFrame) -> pd.DataFrame:
    """Tabulate responses to the rows of a request, and the weights of their predictors."""
    described, weights = [], []
    for response in responses:
        row: dict[str, Any] = {"response_source": "network", "response_check": check_of(response)}
        if response is not None:
            best = response.prediction
            expected = float(np.nanmedian(best.pearson)) if np.isfinite(best.pearson).any() else np.nan
            row |= {"response_source": best.source, "left_out_pearson": expected, "left_out_gain": best.gain}
            row["cautions"] = "; ".join(best.cautions)
        described.append(row)
        weights.append({} if response is None else dict(response.prediction.weights))
    predictors = pd.DataFrame(weights, index=table.index).fillna(0.0)
    return pd.concat([table, pd.DataFrame(described, index=table.index), predictors], axis=1)


def mean_responses(
    responses: Sequence[JointResponse | None], index: pd.Index, genes: pd.Index, *, interval: bool
) -> pd.DataFrame:
    """Tabulate changes of mean log expression, with ``interval`` also their limits."""
    unknown = np.full(len(genes), np.nan)
    change = np.array([unknown if response is None else response.mean_change for response in responses])
    if not interval:
        return pd.DataFrame(change, index=index, columns=genes)
    width = np.array([unknown if response is None else response.half_width for response in responses])
    frames = {"change": change, "low": change - width, "high": change + width}
    tables = {name: pd.DataFrame(values, index=index, columns=genes) for name, values in frames.items()}
    return pd.concat(tables, axis=1, names=["statistic"])


def means_with_intervals(
    counts: sparse.csr_matrix, columns: np.ndarray, n_bootstrap: int, rng: np.random.Generator
) -> dict[str, np.ndarray]:
    """Compute the ``mean`` log expression of some genes, and its 95 % bootstrap interval ``low``, ``high``."""
    expression = log_normalise(counts)[:, columns]
    n_cells = expression.shape[0]
    weights = rng.multinomial(n_cells, np.full(n_cells, 1 / n_cells), n_bootstrap)
    means = np.asarray(sparse.csr_matrix(weights / n_cells) @ expression.toarray())
    low, high = np.quantile(means, [0.025, 0.975], axis=0)
    return {"mean": np.asarray(expression.mean(0)).ravel(), "low": low, "high": high}
