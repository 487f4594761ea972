"""Query models, which extend a trained model to new batches, labels, perturbations and genes."""

from copy import deepcopy
from dataclasses import replace
from typing import TypeVar

import numpy as np
import pandas as pd
import torch
from anndata import AnnData
from scvi.model.base import ArchesMixin, BaseModelClass
from torch import Tensor

from scdiffgen._messages import listed
from scdiffgen._names import symbols_of
from scdiffgen._registry_keys import REGISTRY_KEYS
from scdiffgen.diffusion import column_sums
from scdiffgen.module import DiffusionModule

from ._cells import Cells
from ._model_access import gene_names
from ._training_summary import training_summary

Model = TypeVar("Model", bound=BaseModelClass)

SPLIT = ("train_indices_", "validation_indices_", "test_indices_")
ABSENT_KEY = "scdiffgen_absent_genes"  # in `.uns`: genes that were added as zeros
NOT_REMEMBERED = {*"absent_genes_ _frozen_shapes_ registry_ init_params_ saved_with_ training_summary_".split(), *SPLIT}


def query_model(adata: AnnData, reference: Model, *, unfrozen: bool) -> Model:
    """Create a model of new cells with the weights of the reference."""
    registry, cls = deepcopy(reference.registry), type(reference)
    if registry.get("setup_method_name", "setup_anndata") != "setup_anndata":
        raise ValueError("`reference_model` was registered with MuData and cannot be extended: pass one of AnnData.")
    options = deepcopy(reference.init_params_["non_kwargs"])
    _check_genes(gene_names(reference), pd.Index(adata.var_names))
    counts = registry["field_registries"][REGISTRY_KEYS.X]["state_registry"]
    counts["column_names"], counts["n_vars"] = np.asarray(adata.var_names), adata.n_vars
    if "gene_symbols" in counts:
        known, column = counts["gene_symbols"], registry["setup_args"]["gene_symbols"]
        own = symbols_of(adata, column if column in adata.var else None)
        counts["gene_symbols"] = np.concatenate([known, own[len(known) :]])
    cls.setup_anndata(adata, source_registry=registry, extend_categories=True, **registry["setup_args"])
    model = cls(adata, **options)
    model.to_device(reference.device)
    known, extended = reference.module, model.module
    if extended.n_vars > known.n_vars:
        extended.require("load_query_data with new genes", "new genes")
    counts_of = [[spec.n_categories for spec in module.specs] for module in (known, extended)]
    if counts_of[0] != counts_of[1]:
        extended.require("load_query_data with new categories", "new categories")
    extended.load_state_dict(extended_weights(known, extended))
    for name, value in vars(reference).items():
        if name.endswith("_") and name not in NOT_REMEMBERED:
            setattr(model, name, deepcopy(value))
    absent = [gene for gene in gene_names(reference) if gene in set(adata.uns.get(ABSENT_KEY, ()))]
    model.absent_genes_ = absent or None
    summary = training_summary(reference)
    model.training_summary_ = replace(summary, reference_pseudobulks=summary.pseudobulks).to_plain()
    extended.code.extend(Cells(model))
    if extended.n_vars > known.n_vars:
        _start_new_genes(model, known.n_vars)
    if not unfrozen:
        model._frozen_shapes_ = {name: [*weight.shape] for name, weight in known.denoiser.named_parameters()}
        freeze_known(model)
    extended.eval()
    return model


def _start_new_genes(model: BaseModelClass, n_known: int) -> None:
    """Set biases of new genes to their frequency relative to known genes in the cells."""
    module = model.module
    totals = torch.full((module.n_vars,), 0.5, dtype=torch.float64)
    for counts, _ in Cells(model):
        totals += column_sums(counts).cpu().double()
    log_share = (totals / totals.sum()).log()
    for denoiser in (module.denoiser, module.ema_denoiser):
        bias = denoiser.network.readout.bias.data
        share = log_share.to(bias)
        weight = share[:n_known].softmax(0)
        bias[n_known:] = share[n_known:] + (weight * (bias[:n_known] - share[:n_known])).sum()


def extended_weights(reference: DiffusionModule, query: DiffusionModule) -> dict[str, Tensor]:
    """Extend weights of a reference along the axes of categories and genes; new entries come last."""
    # New genes get zero weights in matrices; other new rows get the mean of known rows, unless they start at zero.
    known, n_genes = reference.state_dict(), (reference.n_vars, query.n_vars)
    weights = {}
    for name, new in query.state_dict().items():
        averaged = f"ema_{name}" if name.startswith("denoiser.") else name
        if averaged not in known:
            weights[name] = new
            continue
        old = known[averaged].to(new.device)
        for axis in range(old.ndim):
            n_old, n_new = old.shape[axis], new.shape[axis]
            if n_old >= n_new:  # also tables of training cells, which are empty in a new module
                continue
            tail = new.narrow(axis, n_old, n_new - n_old)
            if old.is_floating_point() and not name.endswith(".vectors"):
                if old.ndim > 1 and (n_old, n_new) == n_genes:
                    start = torch.zeros_like(old.narrow(axis, 0, 1))
                else:
                    start = old.mean(axis, keepdim=True) * bool(tail.any())
                tail = start.expand([n_new - n_old if i == axis else size for i, size in enumerate(old.shape)])
            else:
                for other in range(axis + 1, old.ndim):
                    tail = tail.narrow(other, 0, old.shape[other])
            old = torch.cat([old, tail.to(old)], dim=axis)
        weights[name] = old
    return weights


def freeze_known(model: BaseModelClass) -> None:
    """Freeze the weights that the reference of a query model has, by masking their gradients."""
    for name, weight in model.module.denoiser.named_parameters():
        if name not in (model._frozen_shapes_ or {}) or not weight.requires_grad:
            continue
        is_new = torch.ones_like(weight)
        is_new[tuple(map(slice, model._frozen_shapes_[name]))] = 0
        if is_new.any():
            weight.register_hook(lambda gradient, is_new=is_new: gradient * is_new.to(gradient))  # moves it to a GPU
        else:
            weight.requires_grad_(False)


def padded_genes(adata: AnnData, reference: BaseModelClass, *, inplace: bool) -> AnnData | None:
    """Align cells to the genes of a reference as in scvi-tools, but keep the dtype of counts and ``.uns``."""
    dtypes = {name: layer.dtype for name, layer in adata.layers.items() if name is not None}
    dtype_of_x, uns = adata.X.dtype, dict(adata.uns)
    absent = gene_names(reference).difference(adata.var_names, sort=False)
    padded = ArchesMixin.prepare_query_anndata(adata, reference, inplace=inplace)
    cells = adata if padded is None else padded
    cells.X, cells.uns = cells.X.astype(dtype_of_x), uns
    if len(absent):
        cells.uns[ABSENT_KEY] = absent.to_numpy(dtype=object)
    for name, dtype in dtypes.items():
        cells.layers[name] = cells.layers[name].astype(dtype)
    return padded


def check_missing(known: pd.Index, genes: pd.Index) -> None:
    """Raise if cells lack genes of the reference."""
    missing = known.difference(genes, sort=False)
    if len(missing):
        raise ValueError(
            f"`adata` lacks {len(missing)} of the {len(known)} genes of the reference ({listed(list(missing))}). Add "
            "them as zeros, `TokenDiffusion.prepare_query_anndata(adata, reference)`, or train a reference on the "
            "genes that both have."
        )


def _check_genes(known: pd.Index, genes: pd.Index) -> None:
    check_missing(known, genes)
    if not genes[: len(known)].equals(known):
        raise ValueError(
            "`adata` has the genes of the reference in another order, or other genes between them. Reorder them: "
            "`adata = adata[:, [*known, *adata.var_names.difference(known)]].copy()`, with "
            "`known = reference.get_var_names()`."
        )
