"""What a token is needed for: cells generated with it and without."""

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

PSEUDOCOUNT = 0.1  # molecules per 10,000


@shared_docs
def ablate_token(
    model: TokenDiffusion,
    token: str,
    adata: AnnData,
    groupby: str,
    *,
    level: float = 0.0,
    gene_symbols: str | None = None,
    max_cells: int = 200,
    n_steps: int = 32,
    seed: int = 0,
) -> pd.DataFrame:
    """Generate cells with a token and without it: which genes change, in which groups of cells.

    Samples matched to measured cells are generated twice, with the same conditions, library sizes and seed: by the
    model, and by the model in which the token is held.

    Parameters
    ----------
    model
        The model.
    token
        Name of the token.
    adata
        Cells to match, registered as those the model was made with.
    groupby
        Column of ``adata.obs``.
    level
        Activation at which the token is held, in standard deviations; 0 is the mean of the training cells. The mean
        activation of control cells shows what treated cells are without this token's response.
    max_cells
        Cells of each group to take, evenly spread.

    Returns
    -------
    A row for each group and gene, in each group from the clearest change on: ``group``, ``gene``, ``mean`` and
    ``mean_without`` (molecules per 10,000), ``log2_fold_change`` of the second over the first, with 0.1 added to both;
    ``score`` (t statistic of the matched pairs, ``log1p`` of molecules per 10,000) and ``fdr`` (Benjamini-Hochberg,
    over the genes of a group), which say whether the change stands out of the chance in drawing molecules. Rare genes
    may have large fold changes by chance alone, so choose by ``fdr``.

    Examples
    --------
    >>> changed = ablate_token(model, "token_1", adata, "cell_type", max_cells=5, n_steps=4)
    >>> changed.columns.tolist()
    ['group', 'gene', 'mean', 'mean_without', 'log2_fold_change', 'score', 'fdr']
    """
    check_column(groupby)
    column = annotation_column(adata, groupby)
    groups = {str(name): np.flatnonzero(column == name) for name in column.dropna().unique()}
    chosen = {name: cells[:: -(-len(cells) // max_cells)] for name, cells in groups.items()}
    indices = np.concatenate(list(chosen.values()))
    labels = column.iloc[indices].astype(str).to_numpy()
    samples = [
        each.predict_perturbation(adata, {}, indices=indices, keep=0.0, n_steps=n_steps, seed=seed)
        for each in (model, model.hold_tokens({token: level}))
    ]
    counts, without = (np.asarray(cells.X.toarray(), dtype=np.float64) for cells in samples)
    symbols = dict(zip(adata.var_names, symbols_of(adata, gene_symbols), strict=True))
    genes = samples[0].var_names.map(lambda gene: symbols.get(gene, gene))
    changes = [_changes(counts[labels == name], without[labels == name], genes, name) for name in chosen]
    return pd.concat(changes, ignore_index=True)


def _changes(counts: np.ndarray, without: np.ndarray, genes: pd.Index, group: str) -> pd.DataFrame:
    """Rows of one group of matched samples ``(cells, genes)``."""
    mean, mean_without = (TARGET_SUM * part.sum(0) / max(part.sum(), 1) for part in (counts, without))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # of one cell, and of genes that change alike in all cells
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
