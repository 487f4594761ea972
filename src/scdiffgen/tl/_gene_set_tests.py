"""Gene set enrichment of token loadings."""

from collections.abc import Iterable, Mapping
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import TypeAlias

import numpy as np
import pandas as pd
from anndata import AnnData
from threadpoolctl import threadpool_limits

from scdiffgen._names import as_names
from scdiffgen._shared_docs import shared_docs
from scdiffgen._stored_tokens import token_loadings

GeneSets: TypeAlias = Mapping[str, Iterable[str]] | pd.DataFrame | str | Path

SHIPPED = {"GO_BP": "GO_Biological_Process_2023", "KEGG": "KEGG_2021_Human"}  # files in blitzgsea


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
