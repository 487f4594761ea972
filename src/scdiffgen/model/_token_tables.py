"""Tokens in the forms that users get: a table of loadings, an AnnData of activations, a model with fewer of them."""

from __future__ import annotations

from dataclasses import replace
from typing import Literal, TypeVar

import numpy as np
import pandas as pd
from anndata import AnnData
from mudata import MuData
from scvi.model.base import BaseModelClass

from scdiffgen._stored_tokens import LOADINGS_KEY, UNS_KEY, annotation_column
from scdiffgen.module import token_basis

from ._cells import Cells, evenly_spread
from ._model_access import gene_names, registered, require_thinning
from ._token_reader import token_reader
from ._training_summary import moments_in_training, training_summary

GRADIENT_CELLS = 2_000
LoadingMethod = Literal["readout", "encoder", "gradient"]
Model = TypeVar("Model", bound=BaseModelClass)


def loadings_table(
    model: BaseModelClass, adata: AnnData | MuData | None, method: LoadingMethod, groupby: str | None, batch_size: int
) -> pd.DataFrame:
    """Loadings ``(genes, tokens)``, or ``(genes, groups and tokens)``."""
    reader = token_reader(model)
    if method not in ("readout", "encoder", "gradient"):
        raise ValueError(f"`method` is {method!r}: choose 'readout', 'encoder' or 'gradient'.")
    if method == "encoder" and groupby is not None:
        raise ValueError("`groupby` does not go with `method='encoder'`, whose weights are the same in all cells.")

    def found(indices: np.ndarray) -> np.ndarray:
        if method == "readout":
            return reader.loadings_in(Cells(model, adata, indices, batch_size))
        module = require_thinning(model, "get_token_loadings(method='gradient')")
        return reader.gradient_loadings(module, Cells(model, adata, evenly_spread(indices, GRADIENT_CELLS), batch_size))

    tokens = pd.Index(reader.names)
    if method == "encoder":
        values = reader.encoder_loadings(require_thinning(model, "get_token_loadings(method='encoder')"))
    elif groupby is not None:
        column = annotation_column(registered(model, adata), groupby)
        groups = {str(name): np.flatnonzero(column == name) for name in column.dropna().unique()}
        values = np.concatenate([found(indices) for indices in groups.values()], axis=1)
        tokens = pd.MultiIndex.from_product([groups, tokens], names=[groupby, "token"])
    elif method == "gradient":
        values = found(np.arange(registered(model, adata).n_obs))
    else:
        values = reader.basis.loadings
    loadings, basis = pd.DataFrame(values, index=gene_names(model), columns=tokens), reader.basis
    loadings.attrs = {"explained": basis.explained.tolist(), "first_direction": basis.first_direction.tolist()}
    return loadings


def tokens_as_variables(
    model: BaseModelClass, cells: AnnData | MuData, activation: pd.DataFrame, n_neighbors: int | None
) -> AnnData:
    """Cells by tokens, with what is known of both, and scanpy's graph of neighbours."""
    reader = token_reader(model)
    labels, basis = reader.annotation_in(cells), reader.basis
    var = pd.DataFrame(
        {
            "label": [labels.get(name, name) for name in activation.columns],
            "explained": basis.explained,
            "first_direction": basis.first_direction,
        },
        index=activation.columns,
    )
    drawn = {key: values.copy() for key, values in cells.obsm.items() if values.shape[1] in (2, 3)}
    uns = {key: values for key, values in cells.uns.items() if key.endswith("_colors")}
    tokens = AnnData(activation.to_numpy(), obs=cells.obs.copy(), var=var, obsm=drawn)
    tokens.varm[LOADINGS_KEY] = basis.loadings.T
    tokens.uns = {**uns, "genes": gene_names(model).to_numpy(dtype=object), UNS_KEY: reader.about(cells)}
    if n_neighbors is not None:
        import scanpy as sc

        sc.pp.neighbors(tokens, n_neighbors=n_neighbors, use_rep="X")
    return tokens


def truncated(model: Model, n_tokens: int) -> Model:
    """A model of the first tokens of a nested one."""
    arguments = {**model.init_params_["non_kwargs"], "n_tokens": n_tokens}
    cut = type(model)(registered(model), **arguments)
    for name, value in vars(model).items():
        if name.endswith("_") and name != "init_params_":
            setattr(cut, name, value)
    # In every tensor that depends on the number of tokens the first tokens come first.
    old, new = model.module.state_dict(), cut.module.state_dict()
    cut.module.load_state_dict({name: old[name][tuple(map(slice, new[name].shape))] for name in new})
    cut.module.eval()
    cut.to_device(model.device)
    known = np.concatenate([model.train_indices, model.validation_indices]).astype(int)
    basis = token_basis(moments_in_training(cut, known), cut.module.gene_weights().cpu().numpy())
    cut.training_summary_ = replace(training_summary(model), token_basis=basis).to_plain()
    return cut
