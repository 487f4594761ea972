"""Shared checks and accessors: training, genes, modalities, registered cells, messages and sampler of a model."""

import logging
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from hashlib import sha256
from typing import Any

import numpy as np
import pandas as pd
import torch
from anndata import AnnData
from mudata import MuData
from scvi.data import AnnDataManagerValidationCheck
from scvi.model.base import BaseModelClass

from scdiffgen._arguments import check_whole_number
from scdiffgen._messages import counted, listed
from scdiffgen._registry_keys import REGISTRY_KEYS
from scdiffgen.data import (
    Manager,
    SetupArguments,
    check_modalities,
    counts_keys,
    forget_copied_setup,
    modality_fields,
    modality_names,
    required_state,
)
from scdiffgen.module import DiffusionModule, Guidance

from ._cells import BATCH_SIZE, quiet
from ._checks import LibrarySize, check_guidance, check_torch
from ._modality_imputer import CountDraw
from ._sampler import FEW_STEPS, N_STEPS, SHALLOW, Sampler
from ._training_summary import response_model, training_summary


def require_training(model: BaseModelClass) -> None:
    """Raise unless the model is trained."""
    if not model.is_trained_:
        raise RuntimeError("The model is not trained: call `train()` first, or load a trained model.")
    check_torch()
    if model.module.training and not in_training(model):  # after `model.module.train()` or an interrupted training
        model.module.eval()


def in_training(model: BaseModelClass) -> bool:
    """Test whether the model is in training, as in a callback."""
    trainer = getattr(model, "trainer", None)
    return trainer is not None and trainer.state.status == "running"


def require_anndata(model: BaseModelClass, asked: str) -> None:
    """Raise if the cells are a MuData, which the method does not support."""
    if modalities(model):
        raise ValueError(
            f"`{asked}` needs a model of one AnnData, but this model was registered with `setup_mudata`: create and "
            f"train a model of `mdata[{modalities(model)[0]!r}]`, registered with `setup_anndata`."
        )


def registered(model: BaseModelClass, adata: AnnData | MuData | None = None) -> AnnData | MuData:
    """Return registered cells, by default those of the model; raise if there are none."""
    return model._validate_anndata(adata)


def modalities(model: BaseModelClass) -> list[str]:
    """Return the names of the modalities; empty for an AnnData."""
    return modality_names(model.registry)


def check_genes(model: BaseModelClass, adata: AnnData | MuData) -> None:
    """Raise if the genes of registered cells were changed in place."""
    manager = model._per_instance_manager_store.get(model.id, {}).get(adata.uns.get("_scvi_uuid"))
    if manager is None or manager.adata is not adata:  # other cells are checked at registration
        return
    names = model.get_var_names()
    for modality, registered in names.items() if isinstance(names, dict) else [("", names)]:
        part = adata.mod.get(modality) if modality else adata
        if part is None or not part.n_obs or np.array_equal(registered, part.var_names):
            continue
        current, expected = pd.Index(part.var_names), pd.Index(registered)
        lists = {"missing": expected.difference(current), "not registered": current.difference(expected)}
        changes = [f"{counted(len(own), 'gene')} {how} ({listed(own)})" for how, own in lists.items() if len(own)]
        of, setup = (f"[{modality!r}]", "setup_mudata") if modality else ("", "setup_anndata")
        raise ValueError(
            f"`adata{of}.var_names` changed after the cells were registered: {', '.join(changes) or 'another order'}. "
            "Restore the genes, and filter or reorder a copy (`adata.copy()`); to model the new genes, register the "
            f"cells again with `{setup}` and create a new model."
        )


def gene_names(model: BaseModelClass) -> pd.Index:
    """Return the registered gene names; for a MuData, pairs of modality and name."""
    names = model.get_var_names()
    if not isinstance(names, dict):
        return pd.Index(names)
    modality = np.repeat(np.array(list(names), dtype=object), [len(own) for own in names.values()])
    return pd.MultiIndex.from_arrays([modality, np.concatenate(list(names.values()))], names=["modality", "name"])


def gene_table(model: BaseModelClass) -> pd.DataFrame:
    """Return the ``.var`` of new cells: registered genes, with the registered column of gene symbols."""
    table, name = pd.DataFrame(index=gene_names(model)), (model.registry.get("setup_args") or {}).get("gene_symbols")
    states = [required_state(model.registry, key) for key in counts_keys(model.registry)]
    if any("gene_symbols" in state for state in states):
        symbols = [state.get("gene_symbols", np.full(state["n_vars"], np.nan, dtype=object)) for state in states]
        table[name] = np.concatenate(symbols)
    return table


def gene_positions(model: BaseModelClass, genes: Sequence[str] | None) -> np.ndarray:
    """Return positions of named genes among those of the model; ``None`` selects all."""
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
        raise ValueError(f"`gene_list` names {missing[:5]}, which the model does not know: see `get_var_names()`.")
    return positions


def batch_name(model: BaseModelClass) -> str:
    """Return the name of the registered batch condition."""
    for spec in model.module.specs:
        if spec.registry_key == REGISTRY_KEYS.BATCH:
            return spec.name
    raise ValueError("No batch was registered: pass `batch_key` to `setup_anndata`.")


def weights_id(module: DiffusionModule) -> str:
    """Hash the averaged weights to twelve hexadecimal digits, which survive saving and loading."""
    digest = sha256()
    for tensor in module.ema_denoiser.state_dict().values():
        digest.update(tensor.cpu().contiguous().view(-1).view(torch.uint8).numpy())
    return digest.hexdigest()[:12]


def enough_steps(model: BaseModelClass) -> int:
    """Choose the number of steps by the mean library size of the training cells (decision 45)."""
    if model.module.process_name != "thinning" or modalities(model):
        return N_STEPS
    return FEW_STEPS if training_summary(model).library.mean() <= SHALLOW else N_STEPS


def sampler_of(
    model: BaseModelClass,
    n_steps: int | None = None,
    batch_size: int = BATCH_SIZE,
    guidance_scale: float | Mapping[str, float] = 1.0,
    given: Sequence[str] = (),
    library_size: LibrarySize = None,
) -> Sampler:
    """Build the sampler of a model; raise if a number is out of range or a guided condition is not given."""
    check_guidance(guidance_scale, given)
    n_steps = enough_steps(model) if n_steps is None else check_whole_number("n_steps", n_steps)
    check_whole_number("batch_size", batch_size)
    draws: Sequence[CountDraw] = ()
    is_treated = bool(model.module.intervention_names)  # the regression does not know treatments
    if modalities(model) and library_size is None and not is_treated:
        draws = training_summary(model).imputer.count_draws(modalities(model), model.module.blocks)
    return Sampler(model.module, response_model(model), Guidance(guidance_scale), n_steps, batch_size, draws)


LIGHTNING = ("lightning.pytorch", "lightning.fabric", "pytorch_lightning")  # the last one is used if imported
TO_LIGHTNING = (
    r".*isinstance\(treespec, LeafSpec\)",
    r"The number of training batches \(\d+\) is smaller than",
    r"Total length of `\w+` across ranks is zero",
)


@contextmanager
def less_chatter(*loggers: str) -> Iterator[None]:
    """Silence INFO messages of loggers and warnings about Lightning's internals, except at ``logging.DEBUG``."""
    if logging.getLogger("scvi").level <= logging.DEBUG:
        yield
        return
    chosen = [logging.getLogger(name) for name in loggers]
    before = [logger.level for logger in chosen]
    for logger in chosen:
        logger.setLevel(max(logger.level, logging.getLogger("scvi").level, logging.WARNING))
    try:
        with warnings.catch_warnings():
            for message in TO_LIGHTNING:
                warnings.filterwarnings("ignore", message=message)
            yield
    finally:
        for logger, level in zip(chosen, before, strict=True):
            logger.setLevel(level)


def check_cells(adata: object, *, may_be_view: bool = True) -> None:
    """Raise unless ``adata`` is an AnnData; raise for views unless ``may_be_view``."""
    if isinstance(adata, MuData):
        raise TypeError(
            "`adata` is a MuData: register it with `setup_mudata`, or pass one of its modalities, such as "
            "`mdata['rna']`."
        )
    if not isinstance(adata, AnnData):
        raise TypeError(
            f"`adata` is of type {type(adata).__name__}: pass an AnnData. Read a file by `anndata.read_h5ad(path)`, or "
            "convert a matrix by `anndata.AnnData(matrix, obs=..., var=...)`."
        )
    if adata.is_view and not may_be_view:
        raise ValueError("`adata` is a view of other cells: pass a copy, `adata = adata.copy()`.")


def check_mudata(mdata: object, *, may_be_view: bool = True) -> None:
    """Raise unless ``mdata`` is a MuData; raise for views unless ``may_be_view``."""
    if not isinstance(mdata, MuData):
        kind = type(mdata).__name__
        raise TypeError(f"`mdata` is of type {kind}: pass a MuData, such as `mudata.MuData({{'rna': adata}})`.")
    if mdata.is_view and not may_be_view:
        raise ValueError("`mdata` is a view of other cells: pass a copy, `mdata = mdata.copy()`.")


def register_anndata(
    cls: type[BaseModelClass], adata: AnnData, setup_method_args: dict[str, Any], options: Mapping[str, Any]
) -> None:
    """Register an AnnData for models of a class; scvi-tools passes ``options`` to register cells like earlier ones."""
    check_cells(adata, may_be_view=False)
    forget_copied_setup(adata, cls._setup_adata_manager_store)
    manager = Manager(SetupArguments(**setup_method_args["setup_args"]).fields(), setup_method_args)
    manager.register_fields(adata, **options)
    cls.register_manager(manager)


def register_mudata(
    cls: type[BaseModelClass], mdata: MuData, setup_method_args: dict[str, Any], options: Mapping[str, Any]
) -> None:
    """Register a MuData for models of a class."""
    check_mudata(mdata, may_be_view=False)
    keys = dict(setup_method_args["setup_args"])
    chosen, layers = keys.pop("modalities"), keys.pop("layers")
    names = check_modalities(mdata, chosen, layers, transfer=options.get("source_registry") is not None)
    setup_method_args["setup_args"] |= {"modalities": names, "layers": dict(layers or {})}
    forget_copied_setup(mdata, cls._setup_adata_manager_store)
    fields = [*modality_fields(names, layers or {}), *SetupArguments(**keys).condition_fields()]
    checks = AnnDataManagerValidationCheck(check_fully_paired_mudata=False)
    manager = Manager(fields, setup_method_args, checks)
    manager.register_fields(mdata, **options)
    cls.register_manager(manager)


def checked_cells(model: BaseModelClass, adata: AnnData | MuData | None) -> AnnData | MuData | None:
    """Check the type of cells and copy views; return ``None`` for the cells of the model itself."""
    if adata is None:
        if model.adata is None:
            raise ValueError("The model has no cells: pass `adata`, or load the model with cells.")
    elif modalities(model):
        check_mudata(adata)
        check_modalities(adata, modalities(model), None, transfer=True)
        if adata.is_view:
            with quiet():
                return adata.copy()
    else:
        check_cells(adata)
        if adata.is_view and adata.isbacked:  # anndata does not copy backed views into memory
            return adata.to_memory().copy()  # anndata 0.13 leaves dense matrices views
    return adata
