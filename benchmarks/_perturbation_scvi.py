"""Latent arithmetic in scVI (Lotfollahi et al. 2019, in the latent space of Lopez et al. 2018)."""

import time

import numpy as np
import scvi
import torch
from anndata import AnnData
from numpy.typing import NDArray
from scipy import sparse

from benchmarks._perturbation_data import CONTEXT, CONTROL, RESPONSE, Fold, Target, predicted_cells
from benchmarks._perturbation_models import start_cells


def scvi_prediction(fold: Fold, seed: int, max_epochs: int | None, max_cells: int) -> AnnData | None:
    """Control cells moved by what the perturbation did to other cells; ``None`` if it was done to none.

    The move is the mean, over the cell types in which it was measured, of the difference between the mean latent
    positions of treated and control cells; of a combination, the sum over its parts.
    """
    differences = [_parts(fold, target) for target in fold.targets]
    if not all(part for parts in differences for part in parts):
        return None
    scvi.settings.seed = seed
    train = fold.train.copy()
    scvi.model.SCVI.setup_anndata(train)
    model = scvi.model.SCVI(train)
    begin = time.process_time()
    model.train(max_epochs=max_epochs, enable_progress_bar=False, enable_model_summary=False)
    recipe = {"length": model.trainer.current_epoch, "training_seconds": time.process_time() - begin}
    latent = model.get_latent_representation()
    predicted, starts = [], [start_cells(fold, target, max_cells, seed) for target in fold.targets]
    for start, parts in zip(starts, differences, strict=True):
        move = sum(np.mean([latent[a].mean(0) - latent[b].mean(0) for a, b in part], axis=0) for part in parts)
        library = np.asarray(train.X[start].sum(1)).ravel()
        predicted.append(_decode(model, latent[start] + move, library))
    cells = predicted_cells(fold, predicted, starts)
    cells.uns["recipe"] = recipe
    return cells


def _parts(fold: Fold, target: Target) -> list[list[tuple[NDArray[np.bool_], NDArray[np.bool_]]]]:
    """Masks of treated and control training cells, for each context in which each part was measured."""
    obs = fold.train.obs
    parts = []
    for name in target.conditions[fold.setup["perturbation_key"]].split("+"):
        treated, control = (obs[RESPONSE] == name).to_numpy(), (obs[RESPONSE] == CONTROL).to_numpy()
        inside = [(obs[CONTEXT] == context).to_numpy() for context in obs.loc[treated, CONTEXT].unique()]
        parts.append([(treated & here, control & here) for here in inside])
    return parts


def _decode(model: scvi.model.SCVI, latent: NDArray[np.float32], library: NDArray[np.float32]) -> sparse.csr_matrix:
    """Counts drawn at latent positions."""
    with torch.no_grad():
        distribution = model.module.generative(
            z=torch.as_tensor(latent, dtype=torch.float32, device=model.device),
            library=torch.as_tensor(np.log(library)[:, None], dtype=torch.float32, device=model.device),
            batch_index=torch.zeros(len(latent), 1, dtype=torch.long, device=model.device),
        )["px"]
        return sparse.csr_matrix(distribution.sample().cpu().numpy().astype(np.int32))
