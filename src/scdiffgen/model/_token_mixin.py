"""Methods that interpret tokens, and copies of the model with fixed tokens."""

from collections.abc import Mapping, Sequence
from copy import copy
from typing import Self

import numpy as np
import pandas as pd
from anndata import AnnData
from mudata import MuData
from scvi.model.base import BaseModelClass

from scdiffgen._arguments import check_whole_number
from scdiffgen._shared_docs import shared_docs
from scdiffgen._stored_tokens import UNS_KEY

from ._cells import BATCH_SIZE, Cells
from ._model_access import gene_names, gene_positions, require_anndata, require_training
from ._token_reader import LoadingMethod, TokenReader, loadings_table, tokens_as_variables, truncated


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
        labels if rare labels have offsets, and ``"conditions"``, the direct path to genes, if perturbations are
        registered. ``.var`` holds the columns of ``adata.var`` and ``"baseline"``, the log-rates of the average
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
            uns={"terms": list(terms), UNS_KEY: reader.about(cells.adata)},
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
