"""Which tokens of two models are the same."""

from __future__ import annotations

import numpy as np
import pandas as pd
from anndata import AnnData
from scipy.optimize import linear_sum_assignment

from scdiffgen._stored_tokens import token_loadings


def token_similarity(first: AnnData | pd.DataFrame, second: AnnData | pd.DataFrame) -> pd.DataFrame:
    r"""Match the tokens of two models one to one, so that their loadings correlate best.

    The matching maximises :math:`\sum_k |r_{k, \pi(k)}|` over all :math:`\pi` (the assignment problem, which
    :func:`scipy.optimize.linear_sum_assignment` solves exactly). The sign of a correlation is reported and does not
    matter for the matching.

    Parameters
    ----------
    first, second
        Cells with stored tokens, or loadings ``(genes, tokens)`` with the genes as index. Their common genes are
        compared.

    Returns
    -------
    A row for each token of ``first`` that has a partner, in its order: ``match``, the token of ``second``, and
    ``correlation``. As many rows as the smaller model has tokens.

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
    correlations = _correlations(one.loc[genes].to_numpy(), other.loc[genes].to_numpy())
    rows, columns = linear_sum_assignment(np.abs(correlations), maximize=True)
    return pd.DataFrame(
        {"match": other.columns[columns], "correlation": correlations[rows, columns]}, index=one.columns[rows]
    )


def _correlations(one: np.ndarray, other: np.ndarray) -> np.ndarray:
    """Pearson correlations ``(tokens of one, tokens of other)``; 0 for a token that is constant."""
    return _standardise(one).T @ _standardise(other)


def _standardise(loadings: np.ndarray) -> np.ndarray:
    centred = loadings.astype(np.float64) - loadings.mean(0, dtype=np.float64)
    length = np.linalg.norm(centred, axis=0)
    return centred / np.where(length > 0, length, np.inf)
