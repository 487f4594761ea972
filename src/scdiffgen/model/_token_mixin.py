"""Methods that interpret tokens by activations, loadings and contributions, and copies with fixed tokens."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from copy import copy, deepcopy
from dataclasses import replace
from functools import cached_property
from typing import Any, Literal, Self, TypeVar, get_args

import numpy as np
import pandas as pd
import torch
from anndata import AnnData
from mudata import MuData
from scvi.model.base import BaseModelClass
from threadpoolctl import threadpool_limits
from torch import Tensor

from scdiffgen._arguments import check_choice, check_whole_number, is_finite_number
from scdiffgen._messages import counted, warn_user
from scdiffgen._names import SYMBOLS_KEY
from scdiffgen._shared_docs import shared_docs
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

from ._cells import BATCH_SIZE, MOST_CELLS, Cells, evenly_spread
from ._modality_imputer import REGRESSION_CELLS
from ._model_access import gene_names, gene_positions, registered, require_anndata, require_training, weights_id
from ._query_model import freeze_known
from ._training_data import RegisteredData
from ._training_summary import activation_and_expression, genes_in_training, hidden_moments, rematch, training_summary

LoadingMethod = Literal["regression", "readout", "gradient"]
AnyModel = TypeVar("AnyModel", bound=BaseModelClass)


class TokenReader:
    """Reader of the tokens of a trained model."""

    def __init__(self, model: BaseModelClass) -> None:
        self.basis, self.genes = training_summary(model).token_basis, training_summary(model).token_genes
        self.module = model.module
        self.names = [f"token_{i + 1}" for i in range(len(self.basis.explained))]  # from 1, as components in scanpy
        self.weights = self.module.gene_weights().cpu().numpy()  # (tokens, width, genes)
        self.directions = torch.from_numpy(self.basis.directions).float().to(self.module.device)  # (tokens, width)

    def activation(self, cells: Cells) -> np.ndarray:
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
        at_most = REGRESSION_CELLS if method == "regression" else 2_000
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


def truncated(model: AnyModel, n_tokens: int) -> AnyModel:
    """Create a model of the first tokens of a model with nested tokens."""
    with torch.random.fork_rng(devices=[]):  # initial weights, which are replaced
        cut = type(model)(registered(model), **model.init_params_["non_kwargs"] | {"n_tokens": n_tokens})
    for name, value in vars(model).items():
        if name.endswith("_") and name != "init_params_":
            setattr(cut, name, value)
    # In each weight with an axis of tokens, the first tokens come first.
    old, new = model.module.state_dict(), cut.module.state_dict()
    whole = {name for name in new if name.startswith("code.")}  # tables of cells, which are longer than in a new model
    cut.module.load_state_dict(
        {name: old[name] if name in whole else old[name][tuple(map(slice, new[name].shape))] for name in new}
    )
    freeze_known(cut)
    cut.module.eval()
    cut.to_device(model.device)
    rematch(cut, data := RegisteredData(cut))
    basis = token_basis(hidden_moments(data.some(MOST_CELLS)), cut.module.gene_weights().cpu().numpy())
    basis, genes = genes_in_training(data, basis)
    cut.training_summary_ = replace(training_summary(model), token_basis=basis, token_genes=genes).to_plain()
    return cut


class TokenReading(BaseModelClass):
    """Mixin of loadings, activations and contributions of tokens, and of copies of the model with fixed tokens."""

    @shared_docs
    def get_token_activation(
        self,
        adata: AnnData | MuData | None = None,
        indices: Sequence[int] | np.ndarray | None = None,
        *,
        batch_size: int = BATCH_SIZE,
        silent: bool = False,
    ) -> pd.DataFrame:
        """Compute token activations of cells, in standard deviations over the training cells.

        Returns
        -------
        Activations ``(cells, tokens)``; tokens are sorted by explained variance.

        {raises_cells}

        Examples
        --------
        >>> model.get_token_activation(indices=[0, 1]).columns[:2].tolist()
        ['token_1', 'token_2']
        """
        require_training(self)
        cells = Cells(self, adata, indices, batch_size, None if silent else "Activation")
        reader = TokenReader(self)
        return pd.DataFrame(reader.activation(cells), index=cells.names, columns=reader.names)

    @shared_docs
    def get_token_loadings(
        self,
        adata: AnnData | MuData | None = None,
        *,
        method: LoadingMethod = "regression",
        groupby: str | None = None,
        batch_size: int = BATCH_SIZE,
    ) -> pd.DataFrame:
        r"""Compute loadings of genes on tokens.

        Parameters
        ----------
        adata
            Cells for ``groupby`` or ``"gradient"``; by default the cells that the model was created with.
        method
            - ``"regression"``: genes whose expression follows the token. Ridge regression (penalty 0.3) of standardised
              log-normalised expression on the standardised activations of all tokens, over at most 5,000 training
              cells. Genes that are rarely detected have small loadings.
            - ``"readout"``: effect of the token in the model. Change of each gene's log-rate per standard deviation of
              the token's activation, along the first principal direction of the token's contribution.
            - ``"gradient"``: genes to which the token responds. Derivative of its activation with respect to
              :math:`\log(1 + \text{count})` of each gene, averaged over at most 2,000 cells.
        groupby
            Column of ``adata.obs``: compute loadings within each group.

        Returns
        -------
        Loadings ``(genes, tokens)``; with ``groupby`` the columns are pairs of group and token. Tokens are sorted by
        explained variance. ``attrs`` holds ``"explained"``, the shares of explained
        variance; ``"first_direction"``, the share of a token's own variance along its first principal direction; and
        ``"stability"``, the mean absolute correlation of its regression loadings with those of the matching
        varimax-rotated principal component in half of the training cells (1 is perfect reproduction).

        {raises_cells}

        Examples
        --------
        >>> model.get_token_loadings().shape
        (765, 4)
        """
        require_training(self)
        return loadings_table(self, adata, method, groupby, batch_size)

    @shared_docs
    def get_token_adata(
        self,
        adata: AnnData | MuData | None = None,
        *,
        n_neighbors: int | None = 15,
        batch_size: int = BATCH_SIZE,
        silent: bool = False,
    ) -> AnnData:
        """Return an AnnData with tokens as variables, for functions of scanpy.

        Parameters
        ----------
        n_neighbors
            Number of neighbours per cell in the graph for :func:`scanpy.tl.umap`; ``None`` computes no graph.

        Returns
        -------
        Cells by tokens. ``.X`` holds activations; ``.obs``, two- or three-dimensional embeddings (such as
        ``.obsm["X_umap"]``) and colours are those of the cells. ``.var`` holds labels and shares of explained variance,
        ``.varm["token_loadings"]`` the loadings ``(tokens, genes)``, and ``.uns["genes"]`` their genes.

        {raises_cells}

        Examples
        --------
        >>> import scanpy as sc
        >>> tokens = model.get_token_adata(adata)
        >>> sc.tl.umap(tokens)
        >>> axes = sc.pl.umap(tokens, color=["token_1", "cell_type"], show=False)
        """
        require_training(self)
        cells = Cells(self, adata, None, batch_size, None if silent else "Activation")
        return tokens_as_variables(self, cells, n_neighbors)

    @shared_docs
    def get_token_contributions(
        self,
        adata: AnnData | None = None,
        indices: Sequence[int] | np.ndarray | None = None,
        *,
        gene_list: Sequence[str] | None = None,
        batch_size: int = BATCH_SIZE,
        silent: bool = False,
    ) -> AnnData:
        r"""Decompose the predicted log-expression of each gene in each cell exactly into contributions of tokens.

        The log-rate of gene :math:`g` is :math:`b_g + \sum_k W_{k,g}^\top h_k`, plus direct scores of the conditions.
        The contribution of a token is relative to its mean over the training cells,
        :math:`W_{k,g}^\top (h_k - \bar h_k)`. All terms are centred over the genes, because a constant added to the
        log-rates of all genes changes nothing. Gaussian diffusion has normal scores in place of log-rates; the term of
        its conditions holds the means of the cell's group.

        Parameters
        ----------
        gene_list
            Genes to return, by default all. Each token needs a matrix ``(cells, genes)``: pass few genes of many cells.

        Returns
        -------
        Cells by genes. ``.X`` holds the log-rates, centred over all genes. There is one layer per token, one for the
        labels if rare labels have offsets, and ``"conditions"``, the direct path to genes, if perturbations or batches
        are registered. ``.var`` holds the columns of ``adata.var`` and ``"baseline"``, the log-rates of the average
        training cell. Layers and baseline add up to ``.X``, whose softmax over all genes is the predicted expression.
        ``.uns["terms"]`` names the layers.

        {raises_cells}

        Examples
        --------
        >>> parts = model.get_token_contributions(indices=[0, 1], gene_list=["LYZ", "CD3E"])
        >>> parts.uns["terms"]
        ['token_1', 'token_2', 'token_3', 'token_4', 'cell_type']
        """
        require_training(self)
        require_anndata(self, "get_token_contributions")
        self.module.require("get_token_contributions", "contributions of tokens")
        reader = TokenReader(self)
        columns = gene_positions(self, gene_list)
        cells = Cells(self, adata, indices, batch_size, None if silent else "Contributions")
        terms, baseline = reader.contributions(cells, columns)
        return AnnData(
            terms.pop("X"),
            obs=cells.adata.obs.iloc[cells.indices].copy(),
            var=cells.adata.var.loc[gene_names(self)[columns]].assign(baseline=baseline),
            layers=terms,
            uns={
                **{key: name for key, name in cells.adata.uns.items() if key == SYMBOLS_KEY},
                "terms": list(terms),
                UNS_KEY: reader.about(cells.adata),
            },
        )

    @shared_docs
    def hold_tokens(self, levels: Mapping[str, float] | Sequence[str]) -> Self:
        """Fix tokens at given activations, to predict and generate without their information.

        A fixed token makes the same contribution in every cell: its mean contribution over the training cells plus its
        loadings times the level. Other tokens are unchanged and may hold some of the same information.

        Parameters
        ----------
        levels
            Activation of each token to fix, in standard deviations from its mean over the training cells, such as the
            mean of control cells; or names of tokens, which are fixed at 0.

        Returns
        -------
        A copy of the model; this model is not changed.

        Raises
        ------
        ValueError
            If a token is unknown.
        {raises_untrained}

        Examples
        --------
        >>> model.hold_tokens(["token_1"]).generate(n_cells=2, n_steps=4).shape
        (2, 765)
        """
        require_training(self)
        self.module.require("hold_tokens", "fixed tokens")
        reader = TokenReader(self)
        if not isinstance(levels, Mapping):
            levels = dict.fromkeys([levels] if isinstance(levels, str) else levels, 0.0)
        held = copy(self)
        held.module = reader.held(levels)
        return held

    @shared_docs
    def truncate_tokens(self, n_tokens: int) -> Self:
        """Cut the model to its first tokens, which makes it smaller and faster at some loss of quality.

        Parameters
        ----------
        n_tokens
            Number of tokens to keep, from 1 to the number of tokens of the model.

        Returns
        -------
        A new model with the same conditions and training cells; this model is not changed.

        Raises
        ------
        ValueError
            If the model was not created with ``NetworkOptions(nested_tokens=True)``, has fewer tokens, or its process
            is ``"latent"``, which generates all tokens at once.
        {raises_untrained}

        Examples
        --------
        >>> from scdiffgen.model import NetworkOptions, TokenDiffusion
        >>> nested = TokenDiffusion(adata, n_tokens=4, token_dim=16, network=NetworkOptions(nested_tokens=True))
        >>> nested.train(max_epochs=1, enable_progress_bar=False)
        >>> nested.truncate_tokens(2).get_token_activation().shape
        (700, 2)
        """
        require_training(self)
        check_whole_number("n_tokens", n_tokens)
        size = self.module.size
        if not size.options.nested_tokens or self.module.process_name == "latent":
            raise ValueError(
                "The tokens of this model are not nested: create and train a model with "
                "`network=NetworkOptions(nested_tokens=True)` and another process than 'latent'."
            )
        if n_tokens > size.n_tokens:
            raise ValueError(f"`n_tokens` is {n_tokens}, but the model has {size.n_tokens} tokens: pass fewer.")
        return truncated(self, n_tokens)
