"""Methods of scvi-tools' models by draws of expression: predictive samples, correlations, differential expression."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal

import numpy as np
import pandas as pd
from anndata import AnnData
from mudata import MuData
from scvi.model.base import BaseModelClass

from scdiffgen._arguments import check_choice, check_whole_number, is_finite_number
from scdiffgen._shared_docs import shared_docs

from ._cell_request import under_batch
from ._cells import BATCH_SIZE, Cells, gcxs, generator_from
from ._differential_expression import MODES, ExpressionDraws, compare_expression, gene_correlations, groups_to_compare
from ._model_access import (
    batch_name,
    gene_names,
    gene_positions,
    registered,
    require_anndata,
    require_thinning,
    require_training,
    sampler_of,
)
from ._sampler import N_STEPS

if TYPE_CHECKING:
    from sparse import GCXS


class DrawingExpression(BaseModelClass):
    """Methods of scvi-tools' models that draw the expression of given cells."""

    @shared_docs
    def posterior_predictive_sample(
        self,
        adata: AnnData | MuData | None = None,
        indices: Sequence[int] | np.ndarray | None = None,
        transform_batch: str | None = None,
        n_samples: int = 1,
        gene_list: Sequence[str] | None = None,
        batch_size: int = BATCH_SIZE,
        *,
        n_steps: int = N_STEPS,
        seed: int | None = 0,
        silent: bool = True,
    ) -> GCXS | dict[str, GCXS]:
        """Sequence each given cell once more, as :class:`scvi.criticism.PosteriorPredictiveCheck` asks for.

        A sample has the library size of its cell, and holds the next molecules of the cell (:meth:`deepen`).

        Parameters
        ----------
        n_samples
            Samples of each cell.

        Returns
        -------
        Counts ``(cells, genes)``, or ``(cells, genes, n_samples)`` of several; of a MuData a mapping from modalities.

        {raises_cells}

        Examples
        --------
        >>> model.posterior_predictive_sample(indices=[0, 1], n_samples=3, n_steps=4).shape
        (2, 765, 3)
        """
        require_training(self)
        require_thinning(self, "posterior_predictive_sample")
        check_whole_number("n_samples", n_samples)
        columns, sampler = gene_positions(self, gene_list), sampler_of(self, n_steps, batch_size)
        shown, changes = None if silent else "Sampling", under_batch(self, transform_batch)
        cells = Cells(self, adata, indices, batch_size, shown, changes)
        samples = sampler.sequenced_again(cells, n_samples, generator_from(seed, self.device))
        return gcxs([counts[:, columns] for counts in samples], gene_names(self)[columns])

    @shared_docs
    def get_feature_correlation_matrix(
        self,
        adata: AnnData | None = None,
        indices: Sequence[int] | np.ndarray | None = None,
        *,
        n_samples: int = 10,
        transform_batch: str | None = None,
        correlation_type: Literal["spearman", "pearson"] = "spearman",
        batch_size: int = BATCH_SIZE,
        seed: int | None = 0,
        silent: bool = False,
    ) -> pd.DataFrame:
        """Correlations of the expression of genes over cells.

        Expression is :meth:`get_normalized_expression` of a random half of each cell's molecules, which keeps some of
        the uncertainty about a cell. It is smooth, so its correlations are stronger than those of counts.

        Parameters
        ----------
        n_samples
            Random halves of each cell.
        correlation_type
            Of ranks (``"spearman"``) or of expression (``"pearson"``).

        Returns
        -------
        Correlations ``(genes, genes)``; 0 of a gene that does not vary.

        {raises_cells}

        Examples
        --------
        >>> model.get_feature_correlation_matrix(indices=range(50), n_samples=2).shape
        (765, 765)
        """
        require_training(self)
        require_anndata(self, "get_feature_correlation_matrix")
        check_whole_number("n_samples", n_samples)
        check_choice("correlation_type", correlation_type, ("spearman", "pearson"))
        changes = under_batch(self, transform_batch)
        cells = Cells(self, adata, indices, batch_size, None if silent else "Expression", changes)
        correlations = gene_correlations(cells, n_samples, correlation_type, generator_from(seed, self.device))
        return pd.DataFrame(correlations, index=gene_names(self), columns=gene_names(self))

    @shared_docs
    def differential_expression(
        self,
        adata: AnnData | None = None,
        groupby: str | None = None,
        group1: str | Sequence[str] | None = None,
        group2: str | None = None,
        idx1: Sequence[int] | np.ndarray | str | None = None,
        idx2: Sequence[int] | np.ndarray | str | None = None,
        mode: Literal["vanilla", "change"] = "vanilla",
        delta: float = 0.25,
        batch_size: int = BATCH_SIZE,
        all_stats: bool = True,
        batch_correction: bool = False,
        batchid1: Sequence[str] | None = None,
        batchid2: Sequence[str] | None = None,
        fdr_target: float = 0.05,
        silent: bool = False,
        *,
        n_samples_overall: int = 5000,
        pseudocounts: float | None = None,
        seed: int | None = 0,
    ) -> pd.DataFrame:
        """Compare the expression of two groups of cells, measured or generated with all conditions, as scvi-tools.

        Draws are :meth:`get_normalized_expression` of random halves of the molecules of random cells of each group,
        compared by :class:`scvi.model.base.DifferentialComputation`. Probabilities are of differences between cells,
        not between means: replicates are not modelled.

        Parameters
        ----------
        groupby, group1, group2
            Column of ``adata.obs``; group or groups to compare, by default each; and with which, by default the rest.
        idx1, idx2
            Instead of them: positions, mask or query of ``adata.obs`` of both groups, the second by default the rest.
        mode, delta
            ``"vanilla"``: probability that expression is higher in the first group. ``"change"``: that it changes by a
            log2 fold change of at least ``delta``.
        all_stats
            Whether means and shares of the counts are added.
        batch_correction, batchid1, batchid2
            Whether all cells are seen under every batch, or under those that are named for each group.
        fdr_target
            Expected share of false discoveries among the genes of ``is_de_fdr_<fdr_target>`` (``mode="change"``).
        n_samples_overall
            Draws of each group.
        pseudocounts
            Added to expression before fold changes (``mode="change"``); ``None`` estimates it, as scvi-tools does.

        Returns
        -------
        A row a gene, and a comparison; columns as in :meth:`scvi.model.SCVI.differential_expression`.

        {raises_cells}

        Examples
        --------
        >>> found = model.differential_expression(adata, "cell_type", "Dendritic", mode="change", n_samples_overall=200)
        >>> found["comparison"].unique().tolist()
        ['Dendritic vs Rest']
        """
        require_training(self)
        require_anndata(self, "differential_expression")
        check_choice("mode", mode, MODES)
        check_whole_number("n_samples_overall", n_samples_overall, at_least=2)
        if pseudocounts is not None and not (is_finite_number(pseudocounts) and pseudocounts > 0):
            raise ValueError(f"`pseudocounts` is {pseudocounts!r}: pass a number above 0, such as 1e-6, or None.")
        if batch_correction:
            batch_name(self)
        batches = {"batchid1": batchid1, "batchid2": batchid2, "use_observed_batches": not batch_correction}
        draws = {"n_samples_overall": n_samples_overall, "pseudocounts": pseudocounts}
        comparison = {"mode": mode, "delta": delta, **draws, **batches}
        adata = registered(self, adata)
        groups = groups_to_compare(adata, groupby, group1, group2, idx1, idx2)
        draw = ExpressionDraws(self, batch_size, generator_from(seed, self.device))
        return compare_expression(self, groups, draw, adata, comparison, fdr_target, all_stats=all_stats, silent=silent)
