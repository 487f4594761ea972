"""Gene sets from wherever a user has them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import TypeAlias

import pandas as pd

from scdiffgen._names import as_names

GeneSets: TypeAlias = Mapping[str, Iterable[str]] | pd.DataFrame | str | Path

SHIPPED = {"GO_BP": "GO_Biological_Process_2023", "KEGG": "KEGG_2021_Human"}  # files of blitzgsea


def gene_set_table(gene_sets: GeneSets) -> pd.DataFrame:
    """Gene sets as a table with the columns ``source`` (the set), ``target`` (a gene) and ``weight``.

    Parameters
    ----------
    gene_sets
        A mapping from sets to genes, a table with ``source`` and ``target``, a path to a GMT file, or a name of
        ``SHIPPED``.
    """
    if isinstance(gene_sets, pd.DataFrame):
        return _checked(gene_sets)
    if not isinstance(gene_sets, Mapping):
        gene_sets = read_gmt(_shipped_file(str(gene_sets)) if gene_sets in SHIPPED else Path(gene_sets))
    pairs = [(name, gene) for name, genes in gene_sets.items() for gene in dict.fromkeys(as_names(genes))]
    return pd.DataFrame(pairs, columns=["source", "target"]).assign(weight=1.0)


def read_gmt(path: Path) -> dict[str, list[str]]:
    """Read a GMT file: a line a set, with its name, a description and its genes between tabs."""
    if not path.is_file():
        raise ValueError(f"`gene_sets` is {str(path)!r}, which is neither a file nor one of {list(SHIPPED)}.")
    lines = (line.rstrip().split("\t") for line in path.read_text().splitlines() if "\t" in line)
    return {name: [gene for gene in genes if gene] for name, _, *genes in lines}


def _checked(table: pd.DataFrame) -> pd.DataFrame:
    absent = [column for column in ("source", "target") if column not in table]
    if absent:
        raise ValueError(f"`gene_sets` lacks the columns {absent}: pass a set in `source` and a gene in `target`.")
    table = table if "weight" in table else table.assign(weight=1.0)
    return table[["source", "target", "weight"]].drop_duplicates(["source", "target"])


def _shipped_file(name: str) -> Path:
    """Where blitzgsea has its gene sets; it is not imported, only its files are read."""
    found = find_spec("blitzgsea")
    if found is None or found.origin is None:
        raise ImportError(
            f"The gene sets {name!r} come with blitzgsea: `pip install 'scdiffgen[enrichment]'`, or pass your own."
        )
    return Path(found.origin).parent / "data" / SHIPPED[name]
