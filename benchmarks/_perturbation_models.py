"""The model's predictions of held-out responses: cells generated from nothing, and cells that start from controls."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import scvi
from anndata import AnnData
from numpy.typing import NDArray
from scipy import sparse

from benchmarks._external import LOGGED
from benchmarks._perturbation_data import CONTEXT, CONTROL, RESPONSE, Fold, Target, predicted_cells
from scdiffgen._log_normalise import log_normalise
from scdiffgen.model import TokenDiffusion
from scdiffgen.model._training_summary import remember_training

TINY = {"n_tokens": 2, "token_dim": 16, "n_layers": 1}
KEEP = (None, 0.0, 0.05, 0.1, 0.2, 0.4)


def trained_model(fold: Fold, seed: int, max_epochs: int | None, **options: Any) -> TokenDiffusion:
    """Train a model on the training cells of a fold."""
    scvi.settings.seed = seed
    TokenDiffusion.setup_anndata(fold.train, **fold.setup)
    model = TokenDiffusion(fold.train, **options)
    model.train(max_epochs=max_epochs, enable_progress_bar=False, enable_model_summary=False)
    return model


def untrained_model(adata: AnnData, setup: dict[str, Any]) -> TokenDiffusion:
    """A model that is not trained, with everything that it keeps of its training cells."""
    TokenDiffusion.setup_anndata(adata, **setup)
    model = TokenDiffusion(adata, **TINY)
    model.train_indices_, model.validation_indices_ = np.arange(adata.n_obs), np.zeros(0, dtype=int)
    remember_training(model)
    model.is_trained_ = True
    return model


def start_cells(fold: Fold, target: Target, max_cells: int | None, seed: int) -> NDArray[np.intp]:
    """Positions among the training cells of the controls that a prediction starts from; of all without a limit."""
    obs = fold.train.obs
    controls = np.flatnonzero((obs[RESPONSE] == CONTROL) & (obs[CONTEXT] == target.context))
    chosen = np.random.default_rng(seed).permutation(len(controls))[:max_cells]
    return controls[np.sort(chosen)]


def response_predictions(
    model: TokenDiffusion, fold: Fold, *, keep: Sequence[float | None] = KEEP, max_cells: int, seed: int
) -> dict[str, AnnData]:
    """Predictions by name: generated, and from controls that keep a share of their molecules.

    Cells are coupled where the share is ``None``, as was measured in other cells, if it was, and as the network alone
    says. Coupled cells start from all controls, as the means of the baselines do, other ones from ``max_cells``.
    """
    options: Mapping[str, Any] = {"guidance_scale": {fold.setup["perturbation_key"]: 1.0}, "seed": seed, "silent": True}
    of_targets = [target.conditions for target in fold.targets]
    starts, controls = ([start_cells(fold, target, n, seed) for target in fold.targets] for n in (max_cells, None))
    drawn = [model.generate(*asked, **options).X for asked in zip(of_targets, map(len, starts), strict=True)]
    predicted = {"generate": predicted_cells(fold, drawn)}
    for share in keep:
        name, given = ("coupled", controls) if share is None else (f"keep {share:g}", starts)
        cells = predictions_of(model, fold, given, options, keep=share)
        predicted[name] = predicted_cells(fold, [part.X for part in cells], given)
        if share is None and any((part.obs["response_source"] != "network").any() for part in cells):
            of_network = predictions_of(model, fold, given, options, keep=None, source="network")
            predicted["coupled, network only"] = predicted_cells(fold, [part.X for part in of_network], given)
    return predicted


def mean_response_cells(model: TokenDiffusion, fold: Fold) -> AnnData | None:
    """Log expression of all controls and the mean response, as simple baselines are; none if a target has no such."""
    shifted, starts = [], [start_cells(fold, target, None, 0) for target in fold.targets]
    for target, start in zip(fold.targets, starts, strict=True):
        change = model.get_mean_response(target.conditions)["change"].to_numpy()
        shifted.append(log_normalise(fold.train.X[start]).toarray() + change)
    if not all(np.isfinite(cells).all() for cells in shifted):
        return None
    cells = predicted_cells(fold, [sparse.csr_matrix(expression) for expression in shifted], starts)
    cells.uns[LOGGED] = {}
    return cells


def predictions_of(
    model: TokenDiffusion,
    fold: Fold,
    starts: Sequence[NDArray[np.intp]],
    options: Mapping[str, Any],
    *,
    keep: float | None,
    source: str = "auto",
) -> list[AnnData]:
    """Given controls of each target as it asks for them."""
    return [
        model.predict_perturbation(None, target.conditions, indices=start, keep_fraction=keep, source=source, **options)
        for target, start in zip(fold.targets, starts, strict=True)
    ]


def seen_cells(fold: Fold, max_cells: int, seed: int) -> AnnData | None:
    """Training cells of the perturbations that are asked for, in the same contexts; ``None`` if any was not seen."""
    obs, rng, chosen = fold.train.obs, np.random.default_rng(seed), []
    for target in fold.targets:
        asked = target.conditions[fold.setup["perturbation_key"]]
        chosen.append(rng.permutation(np.flatnonzero((obs[RESPONSE] == asked) & (obs[CONTEXT] == target.context))))
    if not all(map(len, chosen)):
        return None
    return predicted_cells(fold, [fold.train.X[rows[:max_cells]] for rows in chosen])
