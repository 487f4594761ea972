"""Annotation of tokens, ranking of their genes, and matching of tokens between models."""

from collections.abc import Mapping

import numpy as np
import pandas as pd
from anndata import AnnData
from scipy.optimize import linear_sum_assignment
from scipy.spatial.distance import cdist

from scdiffgen._shared_docs import shared_docs
from scdiffgen._stored_tokens import (
    LOG_RATES_KEY,
    UNS_KEY,
    check_tokens,
    stored_about_tokens,
    token_loadings,
    token_names,
)


def annotate_tokens(adata: AnnData, names: Mapping[str, str]) -> None:
    """Annotate tokens with names, which figures then show.

    Parameters
    ----------
    adata
        Cells with stored tokens. The names are added to ``.uns["scdiffgen"]["annotation"]``.
    names
        Mapping from tokens to names, such as ``{"token_3": "interferon response"}``.

    Raises
    ------
    ValueError
        If no tokens are stored, or a token is unknown.

    Examples
    --------
    >>> annotate_tokens(adata, {"token_2": "cytotoxicity"})
    >>> adata.uns["scdiffgen"]["annotation"]
    {'token_2': 'cytotoxicity'}
    """
    stored = stored_about_tokens(adata)
    check_tokens(list(names), token_names(adata), "names")
    annotation = {**stored.get("annotation", {}), **{token: str(name) for token, name in names.items()}}
    adata.uns[UNS_KEY] = {**stored, "annotation": annotation}


@shared_docs
def rank_token_genes(
    adata: AnnData, n_genes: int | None = None, key_added: str = "rank_token_genes", *, gene_symbols: str | None = None
) -> None:
    """Rank the genes of each token by their loadings, the largest first.

    ``scores`` are the loadings in ``.varm["token_loadings"]``. ``logfoldchanges`` are token effects on the log-rates,
    in base 2 per standard deviation of activation. They are not tests: ``pvals`` and ``pvals_adj`` are NaN.
    ``adata.uns[key_added]["params"]["stability"]`` holds the stability of the tokens
    (:meth:`scdiffgen.model.TokenDiffusion.get_token_loadings`).

    Parameters
    ----------
    {stored}
    n_genes
        Number of genes to keep per token; by default all.
    key_added
        Key of ``adata.uns`` for the result, in the format of :func:`scanpy.tl.rank_genes_groups` with tokens as groups.
        :func:`scanpy.get.rank_genes_groups_df` and :func:`scanpy.pl.rank_genes_groups` read it, given this key.

    Raises
    ------
    ValueError
        If ``n_genes`` is not a whole number of at least 1, no tokens are stored, or ``.var`` lacks ``gene_symbols``.

    Examples
    --------
    >>> import scanpy as sc
    >>> rank_token_genes(adata)
    >>> sc.get.rank_genes_groups_df(adata, "token_1", key="rank_token_genes")[["names", "scores"]].shape
    (765, 2)
    """
    if n_genes is not None and (not isinstance(n_genes, int | np.integer) or n_genes < 1):
        raise ValueError(f"`n_genes` is {n_genes!r}: pass a whole number of at least 1, or None for all.")
    loadings = token_loadings(adata, gene_symbols=gene_symbols)
    order = np.argsort(-loadings.to_numpy(), axis=0, kind="stable")[:n_genes]
    scores = np.take_along_axis(loadings.to_numpy(), order, axis=0)
    log_rates = np.asarray(adata.varm.get(LOG_RATES_KEY, np.full(loadings.shape, np.nan)))
    untested = np.full(scores.shape, np.nan)
    tables = {
        "names": (loadings.index.to_numpy(dtype=object)[order], "O"),
        "scores": (scores, "float32"),
        "logfoldchanges": (np.take_along_axis(log_rates, order, axis=0) / np.log(2), "float32"),
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
            "stability": np.asarray(stored_about_tokens(adata).get("stability", [])),
        }
    }
    for name, (values, dtype) in tables.items():
        table = pd.DataFrame(values, columns=loadings.columns)
        adata.uns[key_added][name] = table.to_records(index=False, column_dtypes=dtype)


def token_similarity(first: AnnData | pd.DataFrame, second: AnnData | pd.DataFrame) -> pd.DataFrame:
    r"""Match the tokens of two models one to one by the correlation of their loadings.

    The matching maximises :math:`\sum_k |r_{k, \pi(k)}|` over all :math:`\pi` (the assignment problem, which
    :func:`scipy.optimize.linear_sum_assignment` solves exactly). The matching ignores the sign of a correlation, which
    is reported.

    Parameters
    ----------
    first, second
        Cells with stored tokens, or loadings ``(genes, tokens)`` with the genes as index. Their common genes are
        compared.

    Returns
    -------
    One row per matched token of ``first``, in its order: ``match``, the token of ``second``, and ``correlation``. There
    are as many rows as the smaller model has tokens.

    Raises
    ------
    ValueError
        If fewer than 3 genes are in both.

    Examples
    --------
    >>> import pandas as pd
    >>> first = pd.DataFrame({"token_1": [3.0, 0, 1], "token_2": [0.0, 1, 5]}, index=["CD3E", "LYZ", "NKG7"])
    >>> second = first.rename(columns={"token_1": "token_2", "token_2": "token_1"})
    >>> token_similarity(first, second)["match"].to_dict()
    {'token_1': 'token_2', 'token_2': 'token_1'}
    """
    one, other = token_loadings(first, "first"), token_loadings(second, "second")
    genes = one.index.intersection(other.index)
    if len(genes) < 3:
        raise ValueError(f"`first` and `second` have {len(genes)} genes in common: pass loadings of the same genes.")
    correlations = 1 - cdist(one.loc[genes].T, other.loc[genes].T, "correlation")
    correlations = np.nan_to_num(correlations)  # NaN for constant tokens
    rows, columns = linear_sum_assignment(np.abs(correlations), maximize=True)
    return pd.DataFrame(
        {"match": other.columns[columns], "correlation": correlations[rows, columns]}, index=one.columns[rows]
    )
