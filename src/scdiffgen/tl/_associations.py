"""Associations of token activations with annotations of cells."""

import warnings
from collections.abc import Iterator, Sequence

import numpy as np
import pandas as pd
from anndata import AnnData
from scipy import stats

from scdiffgen._names import as_names
from scdiffgen._shared_docs import shared_docs
from scdiffgen._stored_tokens import annotation_column, token_activation

Association = tuple[str | None, str, np.ndarray, np.ndarray]
"""Level, statistic, values and p-values ``(tokens,)`` of one annotation, or one of its levels."""


@shared_docs
def token_associations(adata: AnnData, keys: str | Sequence[str]) -> pd.DataFrame:
    r"""Test the association of token activations with annotations of the cells.

    - For categories or booleans: :math:`\eta^2`, the share of the activation's variance between the categories, with
      the F test of a one-way analysis of variance; and for each category the area under the ROC curve (AUC) of its
      cells against all other cells, with the two-sided Mann-Whitney test. The AUC is 1 if the token is more active in
      all cells of the category, 0 if less active in all, and 0.5 without a difference.
    - For numbers: Spearman's rank correlation, ``rho``.

    The tests treat cells as independent, although cells of one donor or batch are not. With thousands of cells nearly
    every association is significant, so compare tokens by ``value``. ``fdr`` is Benjamini-Hochberg over the table.

    Parameters
    ----------
    {stored}
    keys
        Columns of ``adata.obs``. Cells without a value are excluded per column.

    Returns
    -------
    One row per token, key and statistic: ``token``, ``key``, ``level`` (the category of an AUC, else ``None``),
    ``statistic`` (``"eta_squared"``, ``"auc"`` or ``"rho"``), ``value``, ``p_value``, ``fdr``.

    Raises
    ------
    ValueError
        If a column is missing or has fewer than two distinct values.

    Examples
    --------
    >>> table = token_associations(adata, "cell_type")
    >>> table.columns.tolist()
    ['token', 'key', 'level', 'statistic', 'value', 'p_value', 'fdr']
    >>> table[table["statistic"] == "eta_squared"].nlargest(1, "value")["p_value"].item() < 0.05
    True
    """
    activation = token_activation(adata)
    rows = []
    for key in as_names(keys):
        column = annotation_column(adata, key)
        present = column.notna().to_numpy()
        if column[present].nunique() < 2:
            raise ValueError(f"`keys` names {key!r}, which has the same value in all cells: choose another column.")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", RuntimeWarning)  # a token with constant activation has NaN
            tests = list(_associate(activation[present].to_numpy(np.float64), column[present]))
        for level, statistic, values, p_values in tests:
            table = pd.DataFrame({"token": activation.columns, "key": key, "level": level, "statistic": statistic})
            rows.append(table.assign(value=np.nan_to_num(values), p_value=np.nan_to_num(p_values, nan=1.0)))
    result = pd.concat(rows, ignore_index=True)
    result["level"] = result["level"].astype(object).where(result["level"].notna(), None)
    return result.assign(fdr=stats.false_discovery_control(result["p_value"]))


def _associate(activation: np.ndarray, column: pd.Series) -> Iterator[Association]:
    """Test associations of activations ``(cells, tokens)`` with one annotation."""
    if pd.api.types.is_numeric_dtype(column) and not pd.api.types.is_bool_dtype(column):
        tests = [stats.spearmanr(token, column) for token in activation.T]
        yield None, "rho", np.array([t.statistic for t in tests]), np.array([t.pvalue for t in tests])
        return
    codes, levels = pd.factorize(column.astype(str), sort=True)
    yield _eta_squared(activation, codes)
    for code, level in enumerate(levels):
        yield _auc(activation, codes == code, level)


def _eta_squared(activation: np.ndarray, codes: np.ndarray) -> Association:
    """Compute the share of variance between groups from the F test."""
    between, within = codes.max(), len(codes) - codes.max() - 1
    test = stats.f_oneway(*(activation[codes == code] for code in range(between + 1)), axis=0)
    with np.errstate(divide="ignore"):
        return None, "eta_squared", 1 / (1 + within / (between * test.statistic)), test.pvalue


def _auc(activation: np.ndarray, inside: np.ndarray, level: str) -> Association:
    """Compute the AUC of cells inside against cells outside; ties count half."""
    test = stats.mannwhitneyu(activation[inside], activation[~inside], axis=0)
    return level, "auc", test.statistic / (inside.sum() * (~inside).sum()), test.pvalue
