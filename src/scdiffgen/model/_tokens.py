"""What the model says of its tokens: loadings and activations."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from typing import Any, Literal

import numpy as np
import pandas as pd
import torch
from anndata import AnnData

from scdiffgen._stored_tokens import LOADINGS_KEY, UNS_KEY, annotation_column, numbered_tokens
from scdiffgen.module import (
    HiddenMoments,
    TokenBasis,
    activation_gradient,
    encoder_weights,
    loadings_in_group,
    token_basis,
)

from ._base import ModelBase
from ._cells import Cells

BASIS_CELLS = 20_000
NOT_ADDITIVE = (
    "The tokens of this model do not add up to the scores of the genes, so they have no loadings and activations: make "
    "and train one with `network=NetworkOptions(readout=ReadoutOptions())`."
)
GRADIENT_CELLS = 2_000
LoadingMethod = Literal["readout", "encoder", "gradient"]


class Tokens(ModelBase):
    """Loadings and activations of the tokens."""

    def get_token_activation(
        self,
        adata: AnnData | None = None,
        indices: Sequence[int] | None = None,
        *,
        batch_size: int | None = None,
        silent: bool = False,
    ) -> pd.DataFrame:
        """How active each token is in each cell, in standard deviations over the training cells.

        Parameters
        ----------
        adata
            Cells; by default those the model was made with.
        indices
            Cells to take, by default all.
        batch_size
            Cells a minibatch.
        silent
            Whether no progress bar is shown.

        Returns
        -------
        Activations ``(cells, tokens)``; tokens sorted by the variance that they explain.

        Examples
        --------
        >>> model.get_token_activation(indices=[0, 1]).columns[:2].tolist()
        ['token_1', 'token_2']
        """
        self._require_training()
        cells, basis = Cells(self, adata, indices, batch_size, None if silent else "Activation"), self._token_basis()
        rows = [basis.activation(self.module.hidden(*batch).cpu().numpy()) for batch in cells]
        return pd.DataFrame(cells.in_order(rows), index=cells.names, columns=self._token_names())

    def get_token_loadings(
        self, method: LoadingMethod = "readout", groupby: str | None = None, adata: AnnData | None = None
    ) -> pd.DataFrame:
        r"""What each token stands for: a number for each gene.

        Parameters
        ----------
        method
            - ``"readout"``: what the token does. Change of each gene's log-rate per standard deviation of the token's
              activation, along the first principal direction of the token's contribution.
            - ``"gradient"``: what the token reads. Derivative of its activation after :math:`\log(1 + \text{count})` of
              each gene, mean over (at most 2,000) cells.
            - ``"encoder"``: what the token reads, along the linear maps of the encoder alone, without the transformer
              and non-linearities. Needs no cells; its scale differs between tokens.
        groupby
            Column of ``adata.obs``: loadings within each of its groups, for ``"readout"`` and ``"gradient"``.
        adata
            Cells of the groups, or of the gradient; by default those the model was made with.

        Returns
        -------
        Loadings ``(genes, tokens)``; with ``groupby`` the columns are pairs of group and token. Tokens are sorted by
        the variance that they explain (nested tokens keep their order), of which ``attrs["explained"]`` holds the
        shares, and ``attrs["first_direction"]`` the share of each token's own variance that its first direction
        explains.

        Raises
        ------
        ValueError
            If the method is unknown, or ``groupby`` is given for ``"encoder"``.

        Examples
        --------
        >>> model.get_token_loadings().shape
        (765, 4)
        >>> model.get_token_loadings("gradient", groupby="cell_type")["Dendritic"].columns.tolist()
        ['token_1', 'token_2', 'token_3', 'token_4']
        """
        self._require_training()
        basis, tokens = self._token_basis(), self._token_names()
        if method not in ("readout", "encoder", "gradient"):
            raise ValueError(f"`method` is {method!r}: choose 'readout', 'encoder' or 'gradient'.")
        if method == "encoder" and groupby is not None:
            raise ValueError("`groupby` does not go with `method='encoder'`, whose weights are the same in all cells.")
        if method == "encoder":
            denoiser = self._thinning("get_token_loadings(method='encoder')").ema_denoiser
            values = encoder_weights(denoiser, self._directions()).cpu().numpy()[basis.order].T
        elif method == "readout" and groupby is None:
            values = basis.loadings
        else:
            groups = self._groups(adata, groupby)
            found = self._readout_of if method == "readout" else self._gradient_of
            values = np.concatenate([found(adata, indices) for indices in groups.values()], axis=1)
            if groupby is not None:
                tokens = pd.MultiIndex.from_product([groups, tokens], names=[groupby, "token"])
        loadings = pd.DataFrame(values, index=self._gene_names(), columns=tokens)
        loadings.attrs = {"explained": basis.explained.tolist(), "first_direction": basis.first_direction.tolist()}
        return loadings

    def get_token_adata(
        self,
        adata: AnnData | None = None,
        *,
        n_neighbors: int | None = 15,
        batch_size: int | None = None,
        silent: bool = False,
    ) -> AnnData:
        """Tokens as variables: an AnnData for scanpy's functions.

        Parameters
        ----------
        adata
            Cells; by default those the model was made with.
        n_neighbors
            Neighbours of each cell in the graph that :func:`scanpy.tl.umap` and :func:`scanpy.tl.leiden` need, by
            activation. ``None`` computes no graph.
        batch_size
            Cells a minibatch.
        silent
            Whether no progress bar is shown.

        Returns
        -------
        Cells by tokens: activations in ``.X``; ``.obs`` of the cells, and their embeddings of two or three dimensions
        (such as ``.obsm["X_umap"]``) and colours; in ``.var`` the label, if the token was annotated, and the shares of
        variance explained; in ``.varm["token_loadings"]`` the loadings ``(tokens, genes)``, whose genes are
        ``.uns["genes"]``.

        Examples
        --------
        >>> import scanpy as sc
        >>> tokens = model.get_token_adata(adata)
        >>> sc.tl.umap(tokens)
        >>> axes = sc.pl.umap(tokens, color=["token_1", "cell_type"], show=False)
        """
        activation = self.get_token_activation(adata, batch_size=batch_size, silent=silent)
        cells, basis = self._validate_anndata(adata), self._token_basis()
        labels = self._annotation_of(cells)
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
        tokens.uns = {**uns, "genes": self._gene_names().to_numpy(dtype=object), UNS_KEY: self._about_tokens(cells)}
        if n_neighbors is not None:
            import scanpy as sc

            sc.pp.neighbors(tokens, n_neighbors=n_neighbors, use_rep="X")
        return tokens

    def _about_tokens(self, adata: AnnData) -> dict[str, Any]:
        """What ``.uns["scdiffgen"]`` says of the tokens; names that the user gave to those of this model stay."""
        basis = self._token_basis()
        return {
            "tokens": np.asarray(self._token_names(), dtype=object),
            "explained": basis.explained,
            "first_direction": basis.first_direction,
            "method": "readout",
            "model_id": self._weights_id(),
            "annotation": self._annotation_of(adata),
        }

    def _annotation_of(self, adata: AnnData) -> dict[str, str]:
        stored = adata.uns.get(UNS_KEY, {})
        return dict(stored.get("annotation", {})) if stored.get("model_id") == self._weights_id() else {}

    def _groups(self, adata: AnnData | None, groupby: str | None) -> dict[str, np.ndarray]:
        """Positions of the cells of each group."""
        cells = self._validate_anndata(adata)
        if groupby is None:
            return {"": np.arange(cells.n_obs)}
        column = annotation_column(cells, groupby)
        return {str(name): np.flatnonzero(column == name) for name in column.dropna().unique()}

    def _readout_of(self, adata: AnnData | None, indices: np.ndarray) -> np.ndarray:
        """Loadings ``(genes, tokens)`` within some cells."""
        return loadings_in_group(self._token_basis(), self._moments(adata, indices), self._weights())

    def _gradient_of(self, adata: AnnData | None, indices: np.ndarray) -> np.ndarray:
        """Mean gradient of the activations over some cells ``(genes, tokens)``."""
        chosen, directions = spread(indices, GRADIENT_CELLS), self._directions()
        denoiser = self._thinning("get_token_loadings(method='gradient')").ema_denoiser
        cells = Cells(self, adata, chosen, None, None)
        sums = [activation_gradient(denoiser, *batch, directions).cpu().numpy() for batch in cells]
        return (np.sum(sums, axis=0) / len(chosen))[self._token_basis().order].T

    def _directions(self) -> torch.Tensor:
        """Directions ``(tokens, readout_dim)`` of the activations, in the network's order."""
        basis = self._token_basis()
        return torch.from_numpy(basis.directions[np.argsort(basis.order)]).float().to(self.device)

    def _weights(self) -> np.ndarray:
        """Weights of the genes on what the tokens say ``(tokens, readout_dim, genes)``."""
        weights = self.module.gene_weights()
        if weights is None:
            raise ValueError(NOT_ADDITIVE)
        return weights.cpu().numpy()

    def _moments(self, adata: AnnData | None, indices: np.ndarray) -> HiddenMoments:
        cells = Cells(self, adata, indices, None, None)
        return reduce(HiddenMoments.merge, (HiddenMoments.of(self.module.hidden(*c).cpu().numpy()) for c in cells))

    def _remember_token_basis(self, indices: np.ndarray) -> None:
        """Find directions and loadings of the tokens over (at most 20,000 of) the cells that were trained on.

        Without an additive read-out there are none.
        """
        if self.module.gene_weights() is None:
            return
        moments = self._moments(None, spread(np.sort(indices), BASIS_CELLS))
        self.token_basis_ = tuple(token_basis(moments, self._weights(), by_variance=not self.module.nested))

    def _require_sum(self) -> None:
        """Raise if tokens do not add up in the log-rates."""
        pooling = self.module.size.options.readout.pooling
        if pooling != "sum":
            raise ValueError(f"The tokens are pooled by {pooling!r}, so log-rates are no sum over them.")

    def _token_basis(self) -> TokenBasis:
        if self.module.gene_weights() is None:
            raise ValueError(NOT_ADDITIVE)
        return TokenBasis(*self.token_basis_)

    def _token_names(self) -> list[str]:
        return numbered_tokens(len(self.token_basis_[0]))


def spread(indices: np.ndarray, at_most: int) -> np.ndarray:
    """At most so many of the indices, evenly spread."""
    return indices[:: max(1, -(-len(indices) // at_most))]
