"""Methods of scvi-tools' models: predictive samples and differential expression."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import pandas as pd
import torch
from anndata import AnnData
from mudata import MuData
from scipy import sparse
from scvi.model.base import BaseModelClass, DifferentialComputation
from scvi.utils import track

from scdiffgen._arguments import check_choice, check_whole_number, is_finite_number
from scdiffgen._log_normalise import library_sizes
from scdiffgen._messages import unknown_name
from scdiffgen._registry_keys import REGISTRY_KEYS
from scdiffgen._shared_docs import shared_docs
from scdiffgen.diffusion import thin_to

from ._cell_request import under_batch
from ._cells import BATCH_SIZE, Cells, gcxs, generator_from
from ._checks import cell_positions
from ._model_access import (
    batch_name,
    gene_names,
    gene_positions,
    registered,
    require_anndata,
    require_training,
    sampler_of,
)

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
        n_steps: int | None = None,
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


MODES = ("vanilla", "change")
REST = "Rest"  # scvi-tools' name for all other cells


def expression_of(cells: Cells, columns: np.ndarray, generator: torch.Generator | None = None) -> np.ndarray:
    """Compute expected expression of some genes as shares; with a generator, from a random half of the molecules."""
    rows = []
    for counts, conditions in cells:
        if generator is not None:  # a half without replacement has the variance of a bootstrap over all molecules
            counts = thin_to(counts, (cells.module.library(counts) / 2).ceil(), generator).state
        rows.append(cells.module.expression(counts, conditions)[:, columns].cpu().numpy())
    return cells.in_order(rows)


def groups_to_compare(
    adata: AnnData, groupby: str | None, group1: Any, group2: Any, idx1: Any, idx2: Any
) -> list[tuple[Any, Any, np.ndarray, np.ndarray]]:
    """Return both group names and cell positions of each comparison; raise if a group is empty."""
    if (groupby is None) == (idx1 is None):
        raise ValueError(
            "Pass either `groupby`, a column of `adata.obs`, or `idx1`, the cells of the first group, but not both."
        )
    if idx1 is not None:
        chosen = {"one": ("idx1", idx1)} | ({} if idx2 is None else {"two": ("idx2", idx2)})
        cells = {name: _positions(adata, indices, argument) for name, (argument, indices) in chosen.items()}
        firsts, second = ["one"], None if idx2 is None else "two"
    else:
        if groupby not in adata.obs:
            raise KeyError(f"`groupby`: {unknown_name('column of `adata.obs`', groupby, list(adata.obs))}")
        labels = adata.obs[groupby].astype("category")
        cells = {name: np.flatnonzero(labels == name) for name in labels.cat.categories.tolist()}
        firsts = list(cells) if group1 is None else [group1] if np.ndim(group1) == 0 else list(group1)
        second = group2
        for name in [*firsts, *([] if second is None else [second])]:
            if name not in cells:
                raise ValueError(unknown_name(f"group of `adata.obs[{groupby!r}]`", name, list(cells)))
    pairs = []
    for first in firsts:
        rest = np.setdiff1d(np.arange(adata.n_obs), cells[first]) if second is None else cells[second]
        pairs.append((first, REST if second is None else second, cells[first], rest))
        if not (len(cells[first]) and len(rest)):
            sizes = f"{first!r} has {len(cells[first])} cells, and {pairs[-1][1]!r} {len(rest)}"
            raise ValueError(f"Nothing to compare: {sizes}.")
    return pairs


def _positions(adata: AnnData, chosen: Any, argument: str) -> np.ndarray:
    """Convert positions, a mask or a query of ``.obs`` to positions of cells."""
    if isinstance(chosen, str):
        chosen = adata.obs.index.isin(adata.obs.query(chosen).index)
    return cell_positions(chosen, adata.n_obs, argument)


class ExpressionDraws:
    """Sampler of expression of random cells of a group, with the interface that scvi-tools expects."""

    def __init__(self, model: BaseModelClass, batch_size: int, generator: torch.Generator) -> None:
        self.model, self.batch_size, self.generator = model, batch_size, generator
        self.random = np.random.default_rng(generator.initial_seed())

    def __call__(
        self, adata: AnnData, indices: np.ndarray, transform_batch: str | None, n_samples_overall: int
    ) -> np.ndarray:
        """Draw expression ``(draws, genes)`` in random order; each cell equally often, up to one draw."""
        changes, columns = under_batch(self.model, transform_batch), np.arange(self.model.module.n_vars)
        n_rounds = -(-n_samples_overall // len(indices))
        rounds = [self.random.permutation(indices) for _ in range(n_rounds)]  # one pass, as groups may be small
        cells = Cells(self.model, adata, np.concatenate(rounds)[:n_samples_overall], self.batch_size, changes=changes)
        return self.random.permutation(expression_of(cells, columns, self.generator))


def compare_expression(
    model: BaseModelClass,
    groups: Sequence[tuple[Any, Any, np.ndarray, np.ndarray]],
    draw: ExpressionDraws,
    adata: AnnData,
    comparison: Mapping[str, Any],
    fdr_target: float,
    *,
    all_stats: bool,
    silent: bool,
) -> pd.DataFrame:
    """Tabulate each gene and comparison by scvi-tools' differential computation."""
    manager = model.get_anndata_manager(adata, required=True)
    computation = DifferentialComputation(draw, None, manager)
    counts = manager.get_from_registry(REGISTRY_KEYS.X) if all_stats else None
    tables = []
    for name1, name2, first, second in track(groups, description="DE...", disable=silent):
        columns = computation.get_bayes_factors(first, second, **comparison)
        if counts is not None:
            for number, chosen in enumerate((first, second), 1):
                columns |= {f"{name}{number}": value for name, value in _observed(counts[chosen]).items()}
        table = pd.DataFrame(columns, index=gene_names(model))
        if comparison["mode"] == "change":
            table = table.sort_values("proba_de", ascending=False, kind="stable")
            expected = (1 - table["proba_de"]).cumsum() / np.arange(1, len(table) + 1)
            table[f"is_de_fdr_{fdr_target}"] = np.arange(len(table)) < int((expected <= fdr_target).sum())
        else:
            table = table.sort_values("bayes_factor", ascending=False, kind="stable")
        tables.append(table.assign(comparison=f"{name1} vs {name2}", group1=name1, group2=name2))
    return pd.concat(tables)


def _observed(counts: np.ndarray | sparse.spmatrix) -> dict[str, np.ndarray]:
    """Compute each gene's mean count, share of cells with the gene, and mean count per 10,000."""
    counts = sparse.csr_matrix(counts)
    shares = sparse.diags(1e4 / np.maximum(library_sizes(counts), 1)) @ counts
    return {
        "raw_mean": np.asarray(counts.mean(0)).ravel(),
        "non_zeros_proportion": np.asarray((counts > 0).mean(0)).ravel(),
        "raw_normalized_mean": np.asarray(shares.mean(0)).ravel(),
    }
