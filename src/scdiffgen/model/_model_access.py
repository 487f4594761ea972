"""Shared requirements of all methods: a trained model, its genes and modalities, and the sampler of its cells."""

from collections.abc import Mapping, Sequence
from hashlib import sha256
from typing import Any

import numpy as np
import pandas as pd
import torch
from anndata import AnnData
from mudata import MuData
from scvi.model.base import BaseModelClass

from scdiffgen._arguments import check_whole_number
from scdiffgen._messages import counted, listed
from scdiffgen._registry_keys import REGISTRY_KEYS
from scdiffgen.data import modality_names
from scdiffgen.module import DiffusionModule, JointThinningModule, ThinningModule

from ._cells import BATCH_SIZE
from ._checks import check_guidance, check_torch
from ._modality_imputer import CountDraw
from ._sampler import N_STEPS, Sampler
from ._training_summary import training_summary
from ._transferred_responses import response_model


def require_training(model: BaseModelClass) -> None:
    """Raise unless the model is trained."""
    if not model.is_trained_:
        raise RuntimeError("The model is not trained: call `train()` first, or load a trained model.")
    check_torch()
    if model.module.training and not in_training(model):  # `model.module.train()`, or a training that was interrupted
        model.module.eval()


def in_training(model: BaseModelClass) -> bool:
    """Whether the model is being trained now, as callbacks see it."""
    trainer = getattr(model, "trainer", None)
    return trainer is not None and trainer.state.status == "running"


def require_thinning(model: BaseModelClass, asked: str) -> ThinningModule:
    """The module of a process that takes molecules away; raise if it is of another, which cannot do what is asked."""
    if not isinstance(model.module, ThinningModule):
        raise ValueError(
            f"`{asked}` needs a process that takes molecules away, and the process of this model is "
            f"{model.module.process_name!r}: make and train one with `process='thinning'`."
        )
    return model.module


def require_anndata(model: BaseModelClass, asked: str) -> None:
    """Raise if the cells are a MuData, on which a method does not work."""
    if modalities(model):
        raise ValueError(
            f"`{asked}` works on one AnnData, and this model was registered with `setup_mudata`: make and train "
            f"one of `mdata[{modalities(model)[0]!r}]`, registered with `setup_anndata`."
        )


def registered(model: BaseModelClass, adata: AnnData | MuData | None = None) -> AnnData | MuData:
    """Cells as they are registered, by default those the model was made with; raise if there are none."""
    return model._validate_anndata(adata)


def modalities(model: BaseModelClass) -> list[str]:
    """Names of the modalities, if the cells are a MuData."""
    return modality_names(model.registry)


def check_genes(model: BaseModelClass, adata: AnnData | MuData) -> None:
    """Raise if the genes of cells were changed in place after the cells were registered for the model."""
    manager = model._per_instance_manager_store.get(model.id, {}).get(adata.uns.get("_scvi_uuid"))
    if manager is None or manager.adata is not adata:  # other cells are compared when they are registered
        return
    names = model.get_var_names()
    for modality, registered in names.items() if isinstance(names, dict) else [("", names)]:
        part = adata.mod.get(modality) if modality else adata
        if part is None or not part.n_obs or np.array_equal(registered, part.var_names):
            continue
        found, expected = pd.Index(part.var_names), pd.Index(registered)
        lists = {"missing": expected.difference(found), "not registered": found.difference(expected)}
        changes = [f"{counted(len(own), 'gene')} {how} ({listed(own)})" for how, own in lists.items() if len(own)]
        of, setup = (f"[{modality!r}]", "setup_mudata") if modality else ("", "setup_anndata")
        raise ValueError(
            f"`adata{of}.var_names` changed after the cells were registered: {', '.join(changes) or 'another order'}. "
            "Restore the genes, and filter or reorder a copy (`adata.copy()`); to model the new genes, register the "
            f"cells again with `{setup}` and make a new model."
        )


def gene_names(model: BaseModelClass) -> pd.Index:
    """Names of the registered genes, of a MuData pairs of modality and name."""
    names = model.get_var_names()
    if not isinstance(names, dict):
        return pd.Index(names)
    of_genes = np.repeat(np.array(list(names), dtype=object), [len(own) for own in names.values()])
    return pd.MultiIndex.from_arrays([of_genes, np.concatenate(list(names.values()))], names=["modality", "name"])


def gene_positions(model: BaseModelClass, genes: Sequence[str] | None) -> np.ndarray:
    """Positions of named genes among those of the model; ``None`` is all."""
    known = gene_names(model)
    if genes is None:
        return np.arange(len(known))
    if isinstance(genes, str):
        raise ValueError(f"`gene_list` is {genes!r}: pass a list of genes, [{genes!r}].")
    if modalities(model) and not all(isinstance(gene, tuple) for gene in genes):
        pair = (modalities(model)[0], genes[0])
        raise ValueError(f"`gene_list` must hold pairs of modality and gene for a MuData, such as {pair}.")
    positions = known.get_indexer(pd.Index(genes))
    if (positions < 0).any():
        missing = pd.Index(genes)[positions < 0].tolist()
        raise ValueError(f"`gene_list` names {missing[:5]}, which the model does not know.")
    return positions


def batch_name(model: BaseModelClass) -> str:
    """Name of the condition that was registered as the batch."""
    for spec in model.module.specs:
        if spec.registry_key == REGISTRY_KEYS.BATCH:
            return spec.name
    raise ValueError("No batch was registered: pass `batch_key` to `setup_anndata`.")


def weights_id(module: DiffusionModule) -> str:
    """Twelve hexadecimal digits that are the same for the same averaged weights, also after saving and loading."""
    digest = sha256()
    for tensor in module.ema_denoiser.state_dict().values():
        digest.update(tensor.cpu().contiguous().view(-1).view(torch.uint8).numpy())
    return digest.hexdigest()[:12]


def sampler_of(
    model: BaseModelClass,
    n_steps: int = N_STEPS,
    batch_size: int = BATCH_SIZE,
    guidance_scale: float | Mapping[str, float] = 1.0,
    given: Sequence[str] = (),
    library_size: Any = None,
) -> Sampler:
    """Build the sampler of a model; raise unless numbers are in range and guidance scales are of given conditions."""
    check_guidance(guidance_scale, given)
    check_whole_number("n_steps", n_steps)
    check_whole_number("batch_size", batch_size)
    module, bulks, responses = model.module, training_summary(model).pseudobulks, None
    if bulks is not None and bulks.n_genes == module.n_vars:  # no genes came since
        responses = response_model(module, bulks)
    draws: Sequence[CountDraw] = ()
    if isinstance(module, JointThinningModule) and library_size is None and not module.denoiser.effect_names:
        draws = training_summary(model).imputer.count_draws(modalities(model), module.blocks)
    return Sampler(module, responses, guidance_scale, n_steps, batch_size, draws)
