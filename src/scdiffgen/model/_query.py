"""Growing a trained model: new batches, labels, perturbations and genes, learned beside what is known."""

from __future__ import annotations

import os
from collections.abc import Mapping
from copy import deepcopy
from typing import TYPE_CHECKING, Self, cast

import numpy as np
import pandas as pd
import torch
from torch import Tensor, nn

from scdiffgen._messages import listed
from scdiffgen._registry_keys import REGISTRY_KEYS
from scdiffgen.diffusion import column_sums
from scdiffgen.module import DiffusionModule

from ._cells import Cells
from ._checks import check_accelerator, check_cells
from ._new_perturbations import check_new_features, combinations_of_known, start_as_combinations
from ._saving import Saving

if TYPE_CHECKING:
    from anndata import AnnData
    from numpy.typing import ArrayLike

SPLIT = ("train_indices_", "validation_indices_", "test_indices_")
NOT_REMEMBERED = ("registry_", "init_params_", "saved_with_", *SPLIT)


class Query(Saving):
    """Models that go on from others."""

    _known_is_frozen = False

    @classmethod
    def load_query_data(
        cls,
        adata: AnnData,
        reference_model: str | os.PathLike[str] | Self,
        *,
        perturbation_features: Mapping[str, ArrayLike] | pd.DataFrame | None = None,
        accelerator: str = "auto",
        device: int | str = "auto",
        unfrozen: bool = False,
    ) -> Self:
        """Make a model of new cells from a trained one: with new batches, labels, perturbations and genes.

        What is known keeps its weights; only those of what is new are trained, so that the model says of known
        conditions what it said before (as in scArches). New categories start as the mean of the known ones; new genes
        as frequent as in the new cells, whatever the condition. If the reference was registered with feature vectors,
        new perturbations start with what theirs say. If it has a table of perturbations instead, they start as sparse
        combinations of known ones, whose coefficients are found between the vectors of ``perturbation_features``.

        Parameters
        ----------
        adata
            New cells, with the columns that were registered for the reference; they are registered by this. Their first
            genes are those of the reference in the same order; others may follow.
        reference_model
            A trained model, or the folder of one. It is not changed.
        perturbation_features
            A feature vector for each known and each new perturbation, a mapping or a data frame with names as index;
            for references that were registered without. A new perturbation starts as the sum of at most five known ones
            (orthogonal matching pursuit), and as their mean if it has no vector, or one that no known one resembles.
        accelerator, device
            As in :meth:`load`, for the folder of a model; another is on its device already.
        unfrozen
            Whether all weights are trained.

        Returns
        -------
        The model of the new cells. It generates at once, and learns by :meth:`train`. Library sizes are those of the
        reference's cells until then, and those of the new cells after it; responses that were measured, those of both,
        unless there are new genes. What is frozen is not saved with a model: one that is loaded trains all of its
        weights.

        Raises
        ------
        ValueError
            If genes of the reference are missing or in another order, it cannot be extended by what is new, or it has
            no use for the vectors.

        Examples
        --------
        >>> import scdiffgen
        >>> new_cells = adata[:50].copy()
        >>> new_cells.obs["cell_type"] = "new type"
        >>> query = scdiffgen.model.TokenDiffusion.load_query_data(new_cells, model)
        >>> query.train(max_epochs=1, enable_progress_bar=False)
        >>> query.generate({"cell_type": "new type"}, n_cells=2, n_steps=4, seed=0).shape
        (2, 765)
        """
        check_cells(adata, may_be_view=False)
        check_accelerator(accelerator)
        if isinstance(reference_model, cls):
            reference = reference_model
        else:
            reference = cls.load(reference_model, False, accelerator=accelerator, device=device)
        reference._require_training()
        registry = deepcopy(reference.registry)
        if registry.get("setup_method_name", "setup_anndata") != "setup_anndata":
            raise ValueError("`reference_model` was registered with MuData and cannot grow: pass one of AnnData.")
        options = deepcopy(reference.init_params_["non_kwargs"])
        check_new_features(registry, perturbation_features, reference.module.size.options.category_embedding)
        _check_genes(reference._gene_names(), pd.Index(adata.var_names))
        counts = registry["field_registries"][REGISTRY_KEYS.X]["state_registry"]
        counts["column_names"], counts["n_vars"] = np.asarray(adata.var_names), adata.n_vars
        cls.setup_anndata(adata, source_registry=registry, extend_categories=True, **registry["setup_args"])
        model = cls(adata, **options)
        model.to_device(reference.device)
        if model.module.n_vars > reference.module.n_vars:
            model._thinning("load_query_data with new genes")
        _check_hashes(reference.module, model.module)
        model.module.load_state_dict(grown_weights(reference.module, model.module))
        for known in reference.module.specs:
            if known.role == "intervention":
                combinations = combinations_of_known(model.registry, known.n_categories, perturbation_features)
                if combinations is not None:
                    start_as_combinations(model.module, known.name, combinations)
        for name, value in vars(reference).items():
            if name.endswith("_") and name not in NOT_REMEMBERED:
                setattr(model, name, deepcopy(value))
        model.reference_responses_ = getattr(model, "training_responses_", {})
        if model.module.n_vars > reference.module.n_vars:
            model._start_new_genes(reference.module.n_vars)
        if not unfrozen:
            freeze_known(model.module.denoiser, reference.module.denoiser)
            model._known_is_frozen = True
        model.module.eval()
        return model

    def _start_new_genes(self, n_known: int) -> None:
        """Let new genes be as frequent beside the known ones as they are in the cells, whatever the condition."""
        module = self._thinning("load_query_data with new genes")
        totals = torch.full((module.n_vars,), 0.5, dtype=torch.float64)
        for counts, _ in Cells(self, None, None, None, None):
            totals += column_sums(counts).cpu().double()
        log_share = (totals / totals.sum()).log()
        for denoiser in (module.denoiser, module.ema_denoiser):
            bias = cast("Tensor", denoiser.network.readout.bias).data
            share = log_share.to(bias)
            weight = share[:n_known].softmax(0)
            bias[n_known:] = share[n_known:] + (weight * (bias[:n_known] - share[:n_known])).sum()


def grown_weights(reference: DiffusionModule, grown: DiffusionModule) -> dict[str, Tensor]:
    """Weights of a module with more categories or genes, which follow on those of the reference along some axis.

    Both networks are the averaged one of the reference. In matrices, genes that are new get no weight. Other rows that
    are new get the mean of the known ones, unless they start at zero; what is not learned stays as it is in ``grown``,
    and so do weights that the reference does not have at all (interactions, if it had no combinations).
    """
    known, n_genes = reference.state_dict(), (reference.n_vars, grown.n_vars)
    weights = {}
    for name, new in grown.state_dict().items():
        averaged = f"ema_{name}" if name.startswith("denoiser.") else name
        if averaged not in known:
            weights[name] = new
            continue
        old = known[averaged].to(new.device)
        for axis in range(old.ndim):
            n_old, n_new = old.shape[axis], new.shape[axis]
            if n_old == n_new:
                continue
            tail = new.narrow(axis, n_old, n_new - n_old)
            if old.is_floating_point() and not name.endswith(".vectors"):
                in_logs = grown.size.options.readout.nonnegative and name.endswith("readout.gene_weights")
                if old.ndim > 1 and (n_old, n_new) == n_genes and not in_logs:
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


def freeze_known(grown: nn.Module, reference: nn.Module) -> None:
    """Let only those rows be trained that the reference does not have."""
    known = {name: weight.shape for name, weight in reference.named_parameters()}
    for name, weight in grown.named_parameters():
        if name not in known:
            continue
        if weight.shape == known[name]:
            weight.requires_grad_(False)
            continue
        is_new = torch.ones_like(weight)
        is_new[tuple(slice(0, size) for size in known[name])] = 0
        weight.register_hook(lambda gradient, is_new=is_new: gradient * is_new)


def _check_genes(known: pd.Index, genes: pd.Index) -> None:
    missing = known.difference(genes, sort=False)
    if len(missing):
        raise ValueError(
            f"`adata` lacks {len(missing)} of the {len(known)} genes of the reference ({listed(list(missing))}). Add "
            "them, with zeros where they were not seen, or train a reference on the genes that both have."
        )
    if not genes[: len(known)].equals(known):
        raise ValueError(
            "`adata` has the genes of the reference in another order, or others between them. Bring them in order: "
            "`adata = adata[:, [*known, *adata.var_names.difference(known)]].copy()`, with "
            "`known = reference.get_var_names()`."
        )


def _check_hashes(reference: DiffusionModule, grown: DiffusionModule) -> None:
    """Raise if categories are new whose rows are shared with others."""
    if reference.size.options.category_embedding != "hashed":
        return
    counts = [[spec.n_categories for spec in module.specs] for module in (reference, grown)]
    if counts[0] != counts[1]:
        raise ValueError(
            "`reference_model` has `category_embedding='hashed'`, whose categories share their weights, and cannot get "
            "new ones: make and train it with 'table' or 'code'."
        )
