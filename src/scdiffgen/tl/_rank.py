"""Genes of each token in the layout of scanpy's differential expression."""

from __future__ import annotations

import numpy as np
import pandas as pd
from anndata import AnnData

from scdiffgen._stored_tokens import token_loadings


def rank_token_genes(adata: AnnData, n_genes: int | None = None, key_added: str = "rank_token_genes") -> None:
    """Rank the genes of each token by their loadings.

    Loadings are changes of log-rate a standard deviation of activation, so ``logfoldchanges`` are those in base 2. They
    are no tests: ``pvals`` and ``pvals_adj`` are NaN.

    Parameters
    ----------
    adata
        Cells with stored tokens.
    n_genes
        Genes of each token to keep, from the largest loading on; by default all.
    key_added
        The result is ``adata.uns[key_added]``, in the layout of :func:`scanpy.tl.rank_genes_groups`: so
        :func:`scanpy.get.rank_genes_groups_df` and :func:`scanpy.pl.rank_genes_groups` read it, given this key. Tokens
        are the groups.

    Raises
    ------
    ValueError
        If ``n_genes`` is no whole number of at least 1, or no tokens are stored.

    Examples
    --------
    >>> import scanpy as sc
    >>> rank_token_genes(adata)
    >>> sc.get.rank_genes_groups_df(adata, "token_1", key="rank_token_genes")[["names", "scores"]].shape
    (765, 2)
    """
    if n_genes is not None and (not isinstance(n_genes, int | np.integer) or n_genes < 1):
        raise ValueError(f"`n_genes` is {n_genes!r}: pass a whole number of at least 1, or None for all.")
    loadings = token_loadings(adata)
    order = np.argsort(-loadings.to_numpy(), axis=0, kind="stable")[:n_genes]
    scores = np.take_along_axis(loadings.to_numpy(), order, axis=0)
    untested = np.full(scores.shape, np.nan)
    columns = {
        "names": (loadings.index.to_numpy(dtype=object)[order], "O"),
        "scores": (scores, "float32"),
        "logfoldchanges": (scores / np.log(2), "float32"),
        "pvals": (untested, "float64"),
        "pvals_adj": (untested, "float64"),
    }
    adata.uns[key_added] = {
        "params": {
            "groupby": "token",
            "reference": "average cell",
            "method": "token_loadings",
            "use_raw": False,
            "layer": None,
            "corr_method": "none",
        }
    } | {name: _records(values, list(loadings.columns), dtype) for name, (values, dtype) in columns.items()}


def _records(values: np.ndarray, tokens: list[str], dtype: str) -> np.recarray:
    """A field a token."""
    table = pd.DataFrame(values, columns=tokens)
    return table.to_records(index=False, column_dtypes=dict.fromkeys(tokens, dtype))
