"""Activations, loadings and contributions of the tokens of a trained model."""

from collections import defaultdict
from collections.abc import Mapping
from copy import deepcopy
from dataclasses import replace
from functools import cached_property
from typing import Any, Literal, get_args

import numpy as np
import pandas as pd
import torch
from anndata import AnnData
from mudata import MuData
from scvi.model.base import BaseModelClass
from threadpoolctl import threadpool_limits
from torch import Tensor

from scdiffgen._arguments import check_choice, is_finite_number
from scdiffgen._messages import counted, warn_user
from scdiffgen._stored_tokens import LOADINGS_KEY, UNS_KEY, annotation_column, check_tokens
from scdiffgen.conditions import Conditions
from scdiffgen.data import FEWEST_CELLS, in_words
from scdiffgen.module import (
    DiffusionModule,
    activation_gradient,
    contributions,
    loadings_in_group,
    regression_loadings,
    token_basis,
)

from ._cells import Cells, evenly_spread
from ._model_access import gene_names, registered, weights_id
from ._training_data import RegisteredData
from ._training_summary import (
    REGRESSION_CELLS,
    activation_and_expression,
    genes_in_training,
    hidden_moments,
    moments_in_training,
    training_summary,
)

GRADIENT_CELLS = 2_000
LoadingMethod = Literal["regression", "readout", "gradient"]


class TokenReader:
    """Reader of the tokens of a trained model."""

    def __init__(self, model: BaseModelClass) -> None:
        self.basis, self.genes = training_summary(model).token_basis, training_summary(model).token_genes
        self.module = model.module
        self.names = [f"token_{i + 1}" for i in range(len(self.basis.explained))]  # from 1, as components in scanpy
        self.weights = self.module.gene_weights().cpu().numpy()  # (tokens, width, genes)
        self.directions = torch.from_numpy(self.basis.directions).float().to(self.module.device)  # (tokens, width)

    def activation(self, cells: Cells) -> np.ndarray:
        """Compute activations ``(cells, tokens)``."""
        return cells.in_order([self.activation_of(*batch) for batch in cells])

    def activation_of(self, counts: Tensor, conditions: Conditions[Tensor]) -> np.ndarray:
        """Compute activations ``(cells, tokens)`` of a minibatch."""
        return self.basis.activation(self.module.hidden(counts, conditions).cpu().numpy())

    def gradient_loadings(self, cells: Cells) -> np.ndarray:
        """Average gradients ``(genes, tokens)`` of the activations over cells."""
        sums = [activation_gradient(self.module, *batch, self.directions).cpu().numpy() for batch in cells]
        return (np.sum(sums, axis=0) / len(cells.indices)).T

    def contributions(self, cells: Cells, columns: np.ndarray) -> tuple[dict[str, np.ndarray], np.ndarray]:
        """Decompose log-rates ``X`` of some genes into terms ``(cells, genes)`` and a baseline ``(genes,)``."""
        chosen = torch.from_numpy(columns).to(self.module.device)
        centred = self.weights - self.weights.mean(2, keepdims=True)
        mean = np.einsum("trg,tr->tg", centred[:, :, columns], self.basis.mean)
        rows: dict[str, list[np.ndarray]] = defaultdict(list)
        for counts, conditions in cells:
            parts = contributions(self.module, counts, conditions, chosen)
            rows["X"].append(parts.total.cpu().numpy())
            token_terms = parts.tokens.cpu().numpy() - mean
            for name, added in zip(self.names, token_terms.swapaxes(0, 1), strict=True):
                rows[name].append(added.astype(np.float32))
            for name, added in parts.conditions.items():
                rows[name].append(added.cpu().numpy())
        terms = {name: cells.in_order(minibatches) for name, minibatches in rows.items()}
        return terms, parts.constant.cpu().numpy() + mean.sum(0)

    def held(self, levels: Mapping[str, float]) -> DiffusionModule:
        """Copy the module with tokens fixed at given activations."""
        check_tokens(list(levels), self.names, "levels")
        held = deepcopy(self.module)
        for token, level in levels.items():
            if not is_finite_number(level):
                raise ValueError(f"`levels` holds {level!r} for {token!r}: pass a number of standard deviations.")
            position = self.names.index(token)
            added = self.basis.mean[position] @ self.weights[position] + level * self.basis.loadings[:, position]
            held.readout().hold(position, torch.from_numpy(added).float().to(held.device))
        return held

    @property
    def statistics(self) -> dict[str, np.ndarray]:
        """Return shares of explained variance and stability of the tokens."""
        basis = self.basis
        return {
            "explained": basis.explained,
            "first_direction": basis.first_direction,
            "stability": self.genes.stability,
        }

    @cached_property
    def model_id(self) -> str:
        """Return an identifier of the weights."""
        return weights_id(self.module)

    def about(self, adata: AnnData | MuData) -> dict[str, Any]:
        """Build the contents of ``.uns["scdiffgen"]``; annotations of tokens of this model are kept."""
        names = np.asarray(self.names, dtype=object)
        stored = {"tokens": names, **self.statistics, "method": "regression", "model_id": self.model_id}
        return {**stored, "annotation": self.annotation_in(adata)}

    def annotation_in(self, adata: AnnData | MuData) -> dict[str, str]:
        """Return annotations of the tokens of this model."""
        stored = adata.uns.get(UNS_KEY, {})
        return dict(stored.get("annotation", {})) if stored.get("model_id") == self.model_id else {}


def loadings_table(
    model: BaseModelClass, adata: AnnData | MuData | None, method: LoadingMethod, groupby: str | None, batch_size: int
) -> pd.DataFrame:
    """Tabulate loadings ``(genes, tokens)``, or ``(genes, groups and tokens)``."""
    reader = TokenReader(model)
    check_choice("method", method, get_args(LoadingMethod))
    if method == "gradient":
        reader.module.require("get_token_loadings(method='gradient')", "gradients of tokens")

    def loadings(indices: np.ndarray) -> np.ndarray:
        if method == "readout":
            moments = hidden_moments(Cells(model, adata, indices, batch_size))
            return loadings_in_group(reader.basis, moments, reader.weights)
        at_most = REGRESSION_CELLS if method == "regression" else GRADIENT_CELLS
        cells = Cells(model, adata, evenly_spread(indices, at_most), batch_size)
        if method == "regression":
            return regression_loadings(*activation_and_expression(cells, reader.basis))
        return reader.gradient_loadings(cells)

    tokens = pd.Index(reader.names)
    if groupby is not None:
        groups = _groups(registered(model, adata), groupby)
        values = np.concatenate([loadings(indices) for indices in groups.values()], axis=1)
        tokens = pd.MultiIndex.from_product([groups, tokens], names=[groupby, "token"])
    elif method == "gradient":
        values = loadings(np.arange(registered(model, adata).n_obs))
    else:
        values = reader.genes.loadings if method == "regression" else reader.basis.loadings
    table = pd.DataFrame(values, index=gene_names(model), columns=tokens)
    table.attrs = {name: shares.tolist() for name, shares in reader.statistics.items()}
    return table


def _groups(adata: AnnData | MuData, groupby: str) -> dict[str, np.ndarray]:
    """Return positions of the cells of each group; warn of small groups."""
    column = annotation_column(adata, groupby)
    groups = {str(name): np.flatnonzero(column == name) for name in column.dropna().unique()}
    few = {name: len(indices) for name, indices in groups.items() if len(indices) < FEWEST_CELLS}
    if few:
        warn_user(
            f"Loadings within {counted(len(few), 'group')} of fewer than {FEWEST_CELLS} cells are mostly noise: "
            f"{in_words(pd.DataFrame({groupby: list(few)}), list(few.values()))}."
        )
    return groups


def tokens_as_variables(model: BaseModelClass, cells: Cells, n_neighbors: int | None) -> AnnData:
    """Build an AnnData of cells by tokens, with annotations and scanpy's neighbour graph."""
    reader, adata = TokenReader(model), cells.adata
    labels = reader.annotation_in(adata)
    var = pd.DataFrame({"label": [labels.get(name, name) for name in reader.names], **reader.statistics}, reader.names)
    tokens = AnnData(reader.activation(cells), obs=adata.obs.copy(), var=var)
    for key, values in adata.obsm.items():
        if values.shape[1] in (2, 3):
            tokens.obsm[key] = values.copy()
    tokens.varm[LOADINGS_KEY] = reader.genes.loadings.T
    tokens.uns = {key: values for key, values in adata.uns.items() if key.endswith("_colors")}
    tokens.uns |= {"genes": gene_names(model).to_numpy(dtype=object), UNS_KEY: reader.about(adata)}
    if n_neighbors is not None:
        import scanpy as sc

        with threadpool_limits():  # restores OpenMP's number of threads (also PyTorch's), which numba sets
            sc.pp.neighbors(tokens, n_neighbors=n_neighbors, use_rep="X")
    return tokens


def truncated(model: BaseModelClass, n_tokens: int) -> Any:
    """Create a model of the first tokens of a model with nested tokens."""
    with torch.random.fork_rng(devices=[]):  # initial weights, which are replaced
        cut = type(model)(registered(model), **model.init_params_["non_kwargs"] | {"n_tokens": n_tokens})
    for name, value in vars(model).items():
        if name.endswith("_") and name != "init_params_":
            setattr(cut, name, value)
    # In each weight with an axis of tokens, the first tokens come first.
    old, new = model.module.state_dict(), cut.module.state_dict()
    cut.module.load_state_dict({name: old[name][tuple(map(slice, new[name].shape))] for name in new})
    cut.module.eval()
    cut.to_device(model.device)
    data = RegisteredData(cut)
    basis = token_basis(moments_in_training(data), cut.module.gene_weights().cpu().numpy())
    basis, genes = genes_in_training(data, basis)
    cut.training_summary_ = replace(training_summary(model), token_basis=basis, token_genes=genes).to_plain()
    return cut
