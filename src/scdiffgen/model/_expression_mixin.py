"""Methods of scvi-tools' models: predictive samples and differential expression."""

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
from ._differential_expression import MODES, ExpressionDraws, compare_expression, groups_to_compare
from ._model_access import (
    batch_name,
    gene_names,
    gene_positions,
    registered,
    require_anndata,
    require_training,
    sampler_of,
)
from ._sampler import N_STEPS

if TYPE_CHECKING:
    from sparse import GCXS


class DrawingExpression(BaseModelClass):
    """Mixin of posterior predictive samples and differential expression, with the interface of scvi-tools' models."""

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
        silent: bool = False,
    ) -> GCXS | dict[str, GCXS]:
        """Draw posterior predictive samples, as :class:`scvi.criticism.PosteriorPredictiveCheck` needs them.

        A sample sequences the cell once more: it has the library size of the cell, drawn as in :meth:`deepen`.

        Parameters
        ----------
        n_samples
            Number of samples per cell.

        Returns
        -------
        Counts ``(cells, genes)``, or ``(cells, genes, n_samples)``; for a MuData a mapping from modalities to counts.

        {raises_cells}

        Examples
        --------
        >>> model.posterior_predictive_sample(indices=[0, 1], n_samples=3, n_steps=4).shape
        (2, 765, 3)
        """
        require_training(self)
        self.module.require("posterior_predictive_sample", "adding molecules")
        check_whole_number("n_samples", n_samples)
        columns, sampler = gene_positions(self, gene_list), sampler_of(self, n_steps, batch_size)
        shown, changes = None if silent else "Sampling", under_batch(self, transform_batch)
        cells = Cells(self, adata, indices, batch_size, shown, changes)
        samples = sampler.sequenced_again(cells, n_samples, generator_from(seed, self.device))
        return gcxs([counts[:, columns] for counts in samples], gene_names(self)[columns])

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
        """Test differential expression between two groups of cells, as in scvi-tools.

        Cells may be measured, or generated with all conditions. :class:`scvi.model.base.DifferentialComputation`
        compares draws: :meth:`get_normalized_expression` of random halves of the molecules of random cells. The
        probabilities concern differences between cells, not between means: replicates are not modelled.

        Parameters
        ----------
        groupby, group1, group2
            Column of ``adata.obs``; group or groups to compare (default: each); reference group (default: the rest).
        idx1, idx2
            Alternative to groups: positions, masks or queries of ``adata.obs``; by default ``idx2`` is the rest.
        mode, delta
            ``"vanilla"``: probability that expression is higher in the first group. ``"change"``: probability that the
            absolute log2 fold change is at least ``delta``.
        all_stats
            Whether to add means and detection rates of the counts.
        batch_correction, batchid1, batchid2
            Whether to evaluate all cells under every batch, or under the batches that are named for each group.
        fdr_target
            Expected share of false discoveries among the genes of ``is_de_fdr_<fdr_target>`` (``mode="change"``).
        n_samples_overall
            Number of draws per group.
        pseudocounts
            Added to expression before fold changes (``mode="change"``); ``None`` estimates it, as scvi-tools does.

        Returns
        -------
        One row per gene and comparison; columns as in :meth:`scvi.model.SCVI.differential_expression`.

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
