"""Gene correlations and differential expression, from expected expression of random halves of cells."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
import torch
from anndata import AnnData
from scipy import sparse
from scvi.model.base import BaseModelClass, DifferentialComputation
from scvi.utils import track

from scdiffgen._log_normalise import library_sizes
from scdiffgen._messages import unknown_name
from scdiffgen._registry_keys import REGISTRY_KEYS
from scdiffgen.diffusion import thin_to

from ._cell_request import under_batch
from ._cells import Cells
from ._checks import cell_positions
from ._model_access import gene_names

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


def _observed(counts: Any) -> dict[str, np.ndarray]:
    """Compute each gene's mean count, share of cells with the gene, and mean count per 10,000."""
    counts = sparse.csr_matrix(counts)
    shares = sparse.diags(1e4 / np.maximum(library_sizes(counts), 1)) @ counts
    return {
        "raw_mean": np.asarray(counts.mean(0)).ravel(),
        "non_zeros_proportion": np.asarray((counts > 0).mean(0)).ravel(),
        "raw_normalized_mean": np.asarray(shares.mean(0)).ravel(),
    }
