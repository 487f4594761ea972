"""What each task of the perturbation benchmark holds out, and the predictions that are scored."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from anndata import AnnData

from benchmarks._data import KANG
from benchmarks._dose_task import NUMBER_KINDS
from benchmarks._external import LOGGED
from benchmarks._perturbation_data import (
    CONTEXT,
    CONTROL,
    MCFALINE,
    NORMAN,
    PAPALEXI,
    RESPONSE,
    ZHAO,
    Fold,
    Settings,
    kang,
    kang_donors,
    mcfaline,
    norman,
    papalexi,
    papalexi_guides,
    predicted_cells,
    zhao,
)
from benchmarks._perturbation_models import (
    KEEP,
    mean_response_cells,
    predictions_of,
    response_predictions,
    seen_cells,
    start_cells,
    trained_model,
    untrained_model,
)
from benchmarks._perturbation_scvi import scvi_prediction
from benchmarks._perturbation_time import PACKER, packer, time_predictions
from benchmarks._perturbation_transfer import transferred_shares
from scdiffgen.metrics import perturbation_report
from scdiffgen.model import NetworkOptions, TokenDiffusion

AS_COUNTS = ("train_mean", "other_contexts", "nearest_context", "similar_contexts", "additive")
MODELS: Mapping[str, Mapping[str, Any]] = {"scdiffgen": {}, "gaussian": {"process": "gaussian"}}
TRANSFERRED_NAMES = ("scdiffgen: coupled", "scdiffgen: mean alone")  # rows that need no network


@dataclass(frozen=True)
class Task:
    """A task on real cells."""

    file: str  # name of the file of the data
    # makes the folds from the folder of the data and the names to hold out
    folds: Callable[[Path, Sequence[str] | None], Iterator[Fold]]
    models: Mapping[str, Mapping[str, Any]]  # variants of the model: their arguments, by name
    of_time: bool = False  # whether what is held out are times and not perturbations


TASKS = {
    "kang": Task(KANG, kang, MODELS),
    "kang-donors": Task(KANG, kang_donors, MODELS),
    "zhao": Task(ZHAO, zhao, MODELS),
    "mcfaline": Task(MCFALINE, mcfaline, MODELS),
    "norman": Task(NORMAN, norman, MODELS),
    "papalexi": Task(PAPALEXI, papalexi, MODELS),
    "papalexi-guides": Task(PAPALEXI, papalexi_guides, MODELS),
    "packer": Task(
        PACKER,
        packer,
        {
            **{kind: {"network": NetworkOptions(number_embedding=kind)} for kind in NUMBER_KINDS},
            "cross_attention": {"network": NetworkOptions(conditioning="cross_attention")},
            "cross_attention, rotated": {
                "network": NetworkOptions(conditioning="cross_attention", attention_numbers="rotated")
            },
        },
        of_time=True,
    ),
}


def run_fold(
    task: Task,
    fold: Fold,
    models: Sequence[str],
    settings: Settings,
    seed: int,
    *,
    with_scvi: bool,
    external: Mapping[str, AnnData],
) -> pd.DataFrame:
    """Train the named variants, predict and score, beside scVI and the predictions of other programs."""
    fold = shrunk(fold, settings, seed)
    trained = {
        name: trained_model(fold, seed, settings.max_epochs, **task.models[name], **settings.size) for name in models
    }
    if task.of_time:
        predictions = time_predictions(trained, fold, seed) | dict(external)
        return score(fold, predictions, ("no_change", "real_half"), settings, seed)
    predictions = all_predictions(trained, fold, settings, seed)
    if with_scvi:
        predictions |= scvi_predictions(fold, settings, seed)
    predictions["other_guides"] = seen_cells(fold, settings.max_cells, seed)
    defined = {name: cells for name, cells in predictions.items() if cells is not None} | dict(external)
    scores = score(fold, defined, None, settings, seed)
    return scores.merge(transferred_shares(fold, predictions, settings.max_cells, seed), how="left")


def scvi_predictions(fold: Fold, settings: Settings, seed: int) -> dict[str, AnnData]:
    """Latent arithmetic in scVI by its name, empty where nothing that it needs was measured."""
    cells = scvi_prediction(fold, seed, settings.max_epochs, settings.max_cells)
    return {} if cells is None else {"latent_scvi": cells}


def transferred_predictions(fold: Fold, seed: int) -> dict[str, AnnData]:
    """Transferred responses by the names that they have beside networks; raise if one has to be trained."""
    model = untrained_model(fold.train, dict(fold.setup))
    starts = [start_cells(fold, target, None, seed) for target in fold.targets]
    cells = predictions_of(model, fold, starts, {"seed": seed, "silent": True}, keep=None)
    for target, predicted in zip(fold.targets, cells, strict=True):
        if (predicted.obs["response_source"] == "network").any():
            raise ValueError(f"No training cells of {fold.name!r} predict {target.response!r}: train a network.")
    means = mean_response_cells(model, fold)
    coupled = predicted_cells(fold, [each.X for each in cells], starts)
    found = dict(zip(TRANSFERRED_NAMES, (coupled, means), strict=True))
    return {name: predicted for name, predicted in found.items() if predicted is not None}


def transferred_scores(fold: Fold, settings: Settings, seed: int, *, alone: bool) -> pd.DataFrame:
    """Scores of transferred responses, unless ``alone`` beside those of all baselines."""
    predictions: dict[str, AnnData | None] = {**transferred_predictions(fold, seed)}
    if not alone and (others := seen_cells(fold, settings.max_cells, seed)) is not None:
        predictions["other_guides"] = others
    defined = {name: cells for name, cells in predictions.items() if cells is not None}
    scores = score(fold, defined, () if alone else None, settings, seed)
    return scores.merge(transferred_shares(fold, predictions, settings.max_cells, seed), how="left")


def all_predictions(
    models: Mapping[str, TokenDiffusion], fold: Fold, settings: Settings, seed: int
) -> dict[str, AnnData | None]:
    """Predictions of every variant, by what the rows are to say of them."""
    predictions: dict[str, AnnData | None] = {}
    for name, model in models.items():
        answers: dict[str, AnnData | None] = {"mean alone": mean_response_cells(model, fold)}
        answers |= response_predictions(model, fold, keep=KEEP, max_cells=settings.max_cells, seed=seed)
        predictions |= {f"{name}: {how}": cells for how, cells in answers.items()}
    return predictions


def score(
    fold: Fold,
    predictions: Mapping[str, AnnData],
    baselines: Sequence[str] | None,
    settings: Settings,
    seed: int,
    metrics: Sequence[str] | None = None,
) -> pd.DataFrame:
    """Score predictions beside baselines, those that add a change both as expression and as counts."""
    report = partial(
        perturbation_report,
        fold.real,
        train=fold.train,
        control=fold.control,
        perturbation_key=RESPONSE,
        context_key=CONTEXT,
        control_label=CONTROL,
        max_cells=settings.max_cells,
        metrics="all" if metrics is None else metrics,
        n_trees=settings.n_trees,
        seed=seed,
    )
    logged = [name for name, cells in predictions.items() if LOGGED in cells.uns]
    if baselines is not None:
        return report(predictions, baselines=baselines, log_normalised=logged)
    as_counts = report({}, baselines=AS_COUNTS, baselines_as_counts=True)
    as_counts["prediction"] += ", as counts"
    return pd.concat([report(predictions, baselines="all", log_normalised=logged), as_counts], ignore_index=True)


def shrunk(fold: Fold, settings: Settings, seed: int) -> Fold:
    """Fewer cells of each response and context, and fewer genes, if settings say so."""
    train, real = fold.train, fold.real
    if settings.n_genes is not None:
        expressed = np.sort(np.argsort(-np.asarray(train.X.sum(0)).ravel())[: settings.n_genes])
        train, real = train[:, expressed], real[:, expressed]
    if settings.train_cells is not None:
        shuffled = train.obs.sample(frac=1, random_state=seed)
        kept = shuffled.groupby([RESPONSE, CONTEXT]).head(settings.train_cells).index
        train = train[train.obs_names.isin(kept)]
    return replace(fold, train=train.copy(), real=real.copy())
