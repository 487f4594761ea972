"""Token ablation: compare cells generated with and without a token."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd
from anndata import AnnData
from scipy import stats

from scdiffgen._log_normalise import TARGET_SUM, log_normalise
from scdiffgen._names import check_column, symbols_of
from scdiffgen._shared_docs import shared_docs
from scdiffgen._stored_tokens import annotation_column

if TYPE_CHECKING:
    from scdiffgen.model import TokenDiffusion

PSEUDOCOUNT = 0.1  # in molecules per 10,000


@shared_docs
def ablate_token(
    model: TokenDiffusion,
    token: str,
    adata: AnnData,
    groupby: str | None = None,
    *,
    level: float = 0.0,
    gene_symbols: str | None = None,
    max_cells: int = 200,
    n_steps: int | None = None,
    seed: int = 0,
) -> pd.DataFrame:
    """Ablate a token: compare gene expression of cells generated with and without the token.

    Matched samples are generated twice with the same conditions, library sizes and seed: by the model, and by the model
    with the token fixed (:meth:`~scdiffgen.model.TokenDiffusion.hold_tokens`).

    Parameters
    ----------
    model
        A trained model.
    token
        Name of the token.
    adata
        Cells to match, with the registered columns and genes of the model.
    groupby
        Column of ``adata.obs`` with the groups of cells to compare within; by default one group, ``"all"``.
    level
        Activation at which the token is fixed, in standard deviations from the mean of the training cells. The mean
        activation of control cells shows treated cells without the response of this token.
    max_cells
        Maximum number of cells per group, evenly spread.

    Returns
    -------
    One row per group and gene, sorted by ``score`` within groups: ``group``, ``gene``, ``mean`` and ``mean_without``
    (molecules per 10,000), ``log2_fold_change`` (without over with, pseudocount 0.1), ``score`` (paired t statistic of
    ``log1p`` of molecules per 10,000) and ``fdr`` (Benjamini-Hochberg over the genes of a group). Rare genes may have
    large fold changes by sampling noise alone, so select genes by ``fdr``.

    Examples
    --------
    >>> changed = ablate_token(model, "token_1", adata, "cell_type", max_cells=5, n_steps=4)
    >>> changed.columns.tolist()
    ['group', 'gene', 'mean', 'mean_without', 'log2_fold_change', 'score', 'fdr']
    """
    check_column("all" if groupby is None else groupby)
    column = pd.Series("all", adata.obs_names) if groupby is None else annotation_column(adata, groupby)
    groups = {str(name): np.flatnonzero(column == name) for name in column.dropna().unique()}
    chosen = {name: cells[:: -(-len(cells) // max_cells)] for name, cells in groups.items()}
    indices = np.concatenate(list(chosen.values()))
    labels = column.iloc[indices].astype(str).to_numpy()
    samples = [
        generator.predict_perturbation(adata, {}, indices=indices, keep_fraction=0.0, n_steps=n_steps, seed=seed)
        for generator in (model, model.hold_tokens({token: level}))
    ]
    counts, without = (np.asarray(cells.X.toarray(), dtype=np.float64) for cells in samples)
    symbols = dict(zip(adata.var_names, symbols_of(adata, gene_symbols), strict=True))
    genes = samples[0].var_names.map(lambda gene: symbols.get(gene, gene))
    changes = [_changes(counts[labels == name], without[labels == name], genes, name) for name in chosen]
    return pd.concat(changes, ignore_index=True)


def _changes(counts: np.ndarray, without: np.ndarray, genes: pd.Index, group: str) -> pd.DataFrame:
    """Tabulate the changes of one group of matched samples ``(cells, genes)``."""
    mean, mean_without = (TARGET_SUM * part.sum(0) / max(part.sum(), 1) for part in (counts, without))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # for one cell, and for genes with constant changes
        test = stats.ttest_rel(log_normalise(without), log_normalise(counts))
    p_values = np.nan_to_num(test.pvalue, nan=1.0)
    table = pd.DataFrame(
        {
            "group": group,
            "gene": genes,
            "mean": mean,
            "mean_without": mean_without,
            "log2_fold_change": np.log2(mean_without + PSEUDOCOUNT) - np.log2(mean + PSEUDOCOUNT),
            "score": np.nan_to_num(test.statistic, nan=0.0, posinf=np.inf, neginf=-np.inf),
            "fdr": stats.false_discovery_control(p_values),
        }
    )
    return table.iloc[np.lexsort([-table["log2_fold_change"].abs(), -table["score"].abs()])]
