"""Tables of tokens: ranked genes, names, matches between models, associations with annotations, and gene sets."""

import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import TypeAlias

import numpy as np
import pandas as pd
from anndata import AnnData
from scipy import stats
from scipy.optimize import linear_sum_assignment
from scipy.spatial.distance import cdist
from threadpoolctl import threadpool_limits

from scdiffgen._names import as_names
from scdiffgen._shared_docs import shared_docs
from scdiffgen._stored_tokens import (
    LOG_RATES_KEY,
    UNS_KEY,
    annotation_column,
    check_tokens,
    stored_about_tokens,
    token_activation,
    token_loadings,
    token_names,
)

Association = tuple[str | None, str, np.ndarray, np.ndarray]
"""Level, statistic, values and p-values ``(tokens,)`` of one annotation, or one of its levels."""

GeneSets: TypeAlias = Mapping[str, Iterable[str]] | pd.DataFrame | str | Path
SHIPPED = {"GO_BP": "GO_Biological_Process_2023", "KEGG": "KEGG_2021_Human"}  # files in blitzgsea


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


@shared_docs
def enrich_tokens(
    tokens: AnnData | pd.DataFrame,
    gene_sets: GeneSets = "GO_BP",
    *,
    gene_symbols: str | None = None,
    min_genes: int = 3,
    max_genes: int = 500,
    n_top_genes: int = 5,
) -> pd.DataFrame:
    """Test the enrichment of gene sets in the loadings of each token.

    The score is the t statistic of a univariate linear model of the loadings on the membership in the set (``ulm`` of
    decoupler, :cite:p:`badiaimompel2022decoupler`). The genes of the model are the background.

    Install the extra ``enrichment``: ``pip install 'scdiffgen[enrichment]'``.

    Parameters
    ----------
    {loadings}
    gene_sets
        A mapping from sets to genes; a table with the columns ``source`` (the set), ``target`` (a gene) and optionally
        ``weight``, such as ``decoupler.op.hallmark()``; the path of a GMT file; or ``"GO_BP"`` or ``"KEGG"``, human
        sets without a download. Gene names are compared ignoring case, so human sets also match mouse genes.
    min_genes, max_genes
        Minimum and maximum number of genes of a set in the model.
    n_top_genes
        Number of genes in ``top_genes``: genes of the set with the largest loadings in the direction of the score.

    Returns
    -------
    One row per token and set, sorted by token and significance: ``token``, ``gene_set``, ``score`` (positive if
    expression of the genes increases with the activation), ``fdr`` (Benjamini-Hochberg over the sets of a token),
    ``n_genes`` of the set in the model, and ``top_genes``.

    Raises
    ------
    ImportError
        If decoupler, or for the shipped sets blitzgsea, is not installed.
    ValueError
        If the sets have no genes of the model (the error suggests a column of ``.var`` that has them, if any), no set
        is within the size limits, or no token has varying loadings.

    Examples
    --------
    >>> sets = {"T cell": ["CD3D", "CD3E", "IL32", "LCK", "CD7"], "B cell": ["CD79A", "CD79B", "MS4A1"]}
    >>> enrich_tokens(adata, sets).columns.tolist()
    ['token', 'gene_set', 'score', 'fdr', 'n_genes', 'top_genes']
    """
    loadings = token_loadings(tokens, "tokens", gene_symbols)
    loadings = loadings[~loadings.index.str.upper().duplicated()]
    genes, loadings = loadings.index, loadings.set_axis(loadings.index.str.upper())
    sets = _gene_set_table(gene_sets)
    sets = sets.assign(target=sets["target"].astype(str).str.upper()).drop_duplicates(["source", "target"])
    in_model = sets[sets["target"].isin(loadings.index)]
    n_genes = in_model["source"].value_counts()
    if n_genes.empty:
        raise ValueError(_no_common_names(sets["target"], genes, tokens))
    table = in_model[in_model["source"].map(n_genes).between(min_genes, max_genes)]
    if table.empty:
        largest, n_largest = n_genes.index[0], (sets["source"] == n_genes.index[0]).sum()
        raise ValueError(
            f"`gene_sets` has no set with {min_genes} to {max_genes} genes of the model: its sets have {n_genes.min()} "
            f"to {n_genes.max()} (most: {largest!r}, {n_genes.max()} of {n_largest}; other genes are not in the "
            "model). Change `min_genes` or `max_genes`, or the sets."
        )
    varying = loadings.loc[:, loadings.nunique() > 1].astype(float)  # a token may have constant loadings
    if varying.empty:
        raise ValueError("`tokens` has no token whose loadings differ between genes: train the model for longer.")
    with threadpool_limits():  # restores OpenMP's number of threads (also PyTorch's), which numba sets
        scores, fdr = _decoupler().mt.ulm(data=varying.T, net=table, tmin=min_genes, empty=False)
    scores, fdr = scores.reindex(loadings.columns, fill_value=0.0), fdr.reindex(loadings.columns, fill_value=1.0)
    result = scores.stack().rename_axis(["token", "gene_set"]).rename("score").reset_index()
    result = result.assign(fdr=fdr[scores.columns].to_numpy().ravel(), n_genes=result["gene_set"].map(n_genes))
    result["token"] = pd.Categorical(result["token"], categories=loadings.columns)
    result = result.sort_values(["token", "fdr", "score"], ascending=[True, True, False], ignore_index=True)
    members = {name: loadings.index.get_indexer(targets) for name, targets in table.groupby("source")["target"]}
    top_genes = _top_genes(result, members, loadings.set_axis(genes), n_top_genes)
    return result.assign(token=result["token"].astype(str), top_genes=top_genes)


def _no_common_names(targets: pd.Series, genes: pd.Index, tokens: AnnData | pd.DataFrame) -> str:
    """Explain that sets and model share no gene, with names of both and a matching column of ``.var``."""
    shown = [", ".join(map(repr, names[:3])) for names in (targets.unique(), genes)]
    way_out = "Pass `gene_symbols=`, a column of `.var` with names like those of the sets, or other sets."
    var = tokens.var.astype(str) if isinstance(tokens, AnnData) else pd.DataFrame()
    shares = pd.Series({name: np.isin(targets.unique(), column.str.upper()).mean() for name, column in var.items()})
    if (shares > 0).any():
        best, share = shares.idxmax(), shares.max()
        way_out = f"Pass `gene_symbols={best!r}`: this column of `.var` has {share:.0%} of those of the sets."
    return (
        f"`gene_sets` has no gene of the model: its genes are called {shown[0]} (in capitals), the model's {shown[1]}. "
        f"{way_out}"
    )


def _top_genes(
    result: pd.DataFrame, members: Mapping[str, np.ndarray], loadings: pd.DataFrame, n_top_genes: int
) -> list[str]:
    """List genes of each row's set (positions ``members``) with the largest loadings in the direction of the score."""
    values = {token: column.to_numpy() for token, column in loadings.items()}
    named = []
    for token, gene_set, score in zip(result["token"], result["gene_set"], result["score"], strict=True):
        genes = members[gene_set]
        order = np.argsort(-np.copysign(1.0, score) * values[token][genes], kind="stable")
        named.append(", ".join(loadings.index[genes[order[:n_top_genes]]]))
    return named


def _decoupler() -> ModuleType:
    try:
        return import_module("decoupler")
    except ImportError as error:
        raise ImportError("`enrich_tokens` needs decoupler: `pip install 'scdiffgen[enrichment]'`.") from error


def _gene_set_table(gene_sets: GeneSets) -> pd.DataFrame:
    """Convert gene sets to a table with the columns ``source`` (the set), ``target`` (a gene) and ``weight``."""
    if isinstance(gene_sets, pd.DataFrame):
        absent = [column for column in ("source", "target") if column not in gene_sets]
        if absent:
            raise ValueError(f"`gene_sets` lacks the columns {absent}: pass sets in `source` and genes in `target`.")
        return pd.DataFrame({"weight": 1.0, **gene_sets}, columns=["source", "target", "weight"])
    if not isinstance(gene_sets, Mapping):
        gene_sets = _read_gmt(_shipped_file(str(gene_sets)) if gene_sets in SHIPPED else Path(gene_sets))
    pairs = [(name, gene) for name, genes in gene_sets.items() for gene in as_names(genes)]
    return pd.DataFrame(pairs, columns=["source", "target"]).assign(weight=1.0)


def _read_gmt(path: Path) -> dict[str, list[str]]:
    """Read a GMT file, one set per line: name, description and genes, separated by tabs."""
    if not path.is_file():
        raise ValueError(f"`gene_sets` is {str(path)!r}, which is neither a file nor one of {list(SHIPPED)}.")
    lines = (line.rstrip().split("\t") for line in path.read_text().splitlines() if "\t" in line)
    return {name: [gene for gene in genes if gene] for name, _, *genes in lines}


def _shipped_file(name: str) -> Path:
    """Return the path of a gene set file of blitzgsea, without importing blitzgsea."""
    spec = find_spec("blitzgsea")
    if spec is None or spec.origin is None:
        raise ImportError(
            f"The gene sets {name!r} come with blitzgsea: `pip install 'scdiffgen[enrichment]'`, or pass your own."
        )
    return Path(spec.origin).parent / "data" / SHIPPED[name]
