"""What the model says of measured cells: likelihood, expression, latent representation."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd
import torch

from scdiffgen.conditions import request_table
from scdiffgen.diffusion import row_sums, with_values

from ._cells import Cells, generator_from
from ._checks import check_positive_integer, is_finite_number
from ._extension import Extension

if TYPE_CHECKING:
    from anndata import AnnData


class Representation(Extension):
    """Likelihood, expression and latent representation of measured cells."""

    def get_nll(
        self,
        adata: AnnData | None = None,
        indices: Sequence[int] | np.ndarray | None = None,
        *,
        n_draws: int = 8,
        batch_size: int | None = None,
        seed: int | None = None,
        silent: bool = False,
    ) -> pd.DataFrame:
        r"""Bound on the negative log-likelihood of each cell given its library size and conditions.

        The any-order autoregressive bound :cite:p:`hoogeboom2022autoregressive`: an unbiased estimate of an upper bound
        on :math:`-\log p(x \mid L, c)`, comparable between models of counts.

        Parameters
        ----------
        adata
            Cells; by default those the model was made with.
        indices
            Cells to take, by default all.
        n_draws
            Random draws a cell; the error falls with its square root.
        batch_size
            Cells a minibatch.
        seed
            Same seed, same draws.
        silent
            Whether no progress bar is shown.

        Returns
        -------
        A row a cell: ``nll`` in nats, and ``nll_per_molecule``, which is ``nll`` over the library size.

        Examples
        --------
        >>> model.get_nll(indices=[0, 1], seed=0).shape
        (2, 2)
        """
        self._require_training()
        module = self._thinning("get_nll")
        check_positive_integer("n_draws", n_draws)
        cells = Cells(self, adata, indices, batch_size, None if silent else "Likelihood")
        generator = generator_from(seed, self.device)
        rows = []
        for counts, conditions in cells:
            draws = torch.stack([module.nll_bound(counts, conditions, generator) for _ in range(n_draws)])
            nll = draws.mean(0)
            n_molecules = row_sums(counts, counts.values())
            rows.append(torch.stack([nll, nll / n_molecules], dim=1).cpu().numpy())
        return pd.DataFrame(cells.in_order(rows), index=cells.names, columns=["nll", "nll_per_molecule"])

    def get_normalized_expression(
        self,
        adata: AnnData | None = None,
        indices: Sequence[int] | None = None,
        *,
        gene_list: Sequence[str] | None = None,
        library_size: float = 1.0,
        transform_batch: str | None = None,
        batch_size: int | None = None,
        return_numpy: bool = False,
        silent: bool = False,
    ) -> pd.DataFrame | np.ndarray:
        """Expected expression of cells: where their next molecules would fall.

        Parameters
        ----------
        adata
            Cells; by default those the model was made with.
        indices
            Cells to take, by default all.
        gene_list
            Genes to return, by default all.
        library_size
            What the expression of a cell sums to over all genes (of a modality): 1 for shares, 1e4 for counts per
            10,000.
        transform_batch
            Batch under which all cells are seen; by default each under its own.
        batch_size
            Cells a minibatch.
        return_numpy
            Whether an array is returned instead of a data frame.
        silent
            Whether no progress bar is shown.

        Returns
        -------
        Expression ``(cells, genes)``, float32; of a MuData the columns are pairs of modality and gene.

        Raises
        ------
        ValueError
            If a gene is unknown, ``transform_batch`` is not registered or no batch was, ``library_size`` is not
            positive, ``adata`` lacks genes or holds categories that are not registered, or ``indices`` chooses no cell
            or one that is not there.
        KeyError
            If ``adata`` lacks a column that was registered.
        TypeError
            If ``adata`` is of another type.
        RuntimeError
            If the model is not trained.

        Examples
        --------
        >>> model.get_normalized_expression(indices=[0, 1], library_size=1e4).sum(axis=1).round().tolist()
        [10000.0, 10000.0]
        """
        self._require_training()
        if not (is_finite_number(library_size) and library_size > 0):
            raise ValueError(f"`library_size` is {library_size!r}: pass a positive number.")
        genes = self._gene_names()
        columns = np.arange(len(genes)) if gene_list is None else self._gene_positions(gene_list, "gene_list")
        cells = Cells(self, adata, indices, batch_size, None if silent else "Expression")
        seen_as = {} if transform_batch is None else {self._batch_name(): transform_batch}
        changes = self._encode(request_table(seen_as)).given_only()
        rows = []
        for counts, own in cells:
            conditions = own.replace(changes.take(np.zeros(len(counts), dtype=int)).to(self.device))
            rows.append((self.module.expression(counts, conditions)[:, columns] * library_size).cpu().numpy())
        expression = cells.in_order(rows)
        return expression if return_numpy else pd.DataFrame(expression, index=cells.names, columns=genes[columns])

    def get_latent_representation(
        self,
        adata: AnnData | None = None,
        indices: Sequence[int] | None = None,
        *,
        genes: Sequence[str] | None = None,
        batch_size: int | None = None,
        silent: bool = False,
    ) -> np.ndarray:
        """Tokens of cells.

        Parameters
        ----------
        adata
            Cells; by default those the model was made with.
        indices
            Cells to take, by default all.
        genes
            Genes to read, as if no other had been measured; by default all. The model must have been made with
            ``NetworkOptions(encoder="cross_attention")``.
        batch_size
            Cells a minibatch.
        silent
            Whether no progress bar is shown.

        Returns
        -------
        Tokens side by side, ``(cells, n_tokens * token_dim)``, float32.

        Examples
        --------
        >>> adata.obsm["X_tokens"] = model.get_latent_representation()
        """
        self._require_training()
        cells = Cells(self, adata, indices, batch_size, None if silent else "Tokens")
        read = torch.from_numpy(self._genes_to_read(genes)).to(self.device)
        rows = []
        for counts, conditions in cells:
            tokens = self.module.tokens(with_values(counts, counts.values() * read[counts.col_indices()]), conditions)
            rows.append(tokens.flatten(1).cpu().numpy())
        return cells.in_order(rows)

    def _genes_to_read(self, genes: Sequence[str] | None) -> np.ndarray:
        """1 for each gene that is read, 0 for others ``(genes,)``."""
        if genes is None:
            return np.ones(len(self._gene_names()), dtype=np.float32)
        if self.module.size.options.encoder != "cross_attention":
            raise ValueError(
                "`genes` needs an encoder that can do with any of them: make and train a model with "
                "`network=NetworkOptions(encoder='cross_attention')`."
            )
        read = np.zeros(len(self._gene_names()), dtype=np.float32)
        read[self._gene_positions(genes, "genes")] = 1
        return read
