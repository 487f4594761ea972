"""Arguments that are names: lists of names, and the name of one column."""

from __future__ import annotations

from collections.abc import Iterable
from reprlib import repr as shortened
from typing import TYPE_CHECKING, TypeVar

import pandas as pd

if TYPE_CHECKING:
    from anndata import AnnData
    from mudata import MuData

Name = TypeVar("Name", bound=str)
SYMBOLS_KEY = "scdiffgen_gene_symbols"  # .uns, the column of .var that was registered


def as_names(names: Iterable[Name] | Name) -> list[Name]:
    """Convert to a list of names; a string is one name."""
    return [names] if isinstance(names, str) else list(names)


def symbols_of(adata: AnnData, gene_symbols: str | None, argument: str = "adata") -> pd.Index:
    """Read gene symbols from a column of ``.var``, by default the registered one or ``.var_names``."""
    if gene_symbols is None and (gene_symbols := adata.uns.get(SYMBOLS_KEY)) not in adata.var:
        return adata.var_names
    if gene_symbols not in adata.var:
        raise ValueError(
            f"`gene_symbols` is {gene_symbols!r}, which is no column of `{argument}.var`: choose from "
            f"{list(adata.var.columns)}, or leave it out if `.var_names` are the symbols."
        )
    column = adata.var[gene_symbols].astype(object)
    return pd.Index(column.where(column.notna(), adata.var_names).astype(str))


def remember_symbols(data: AnnData | MuData, gene_symbols: str | None, *, required: bool) -> None:
    """Store the column of gene symbols as the default of :func:`symbols_of`; raise if a ``required`` one is missing."""
    parts = list(getattr(data, "mod", {"": data}).values())
    if required and not any(gene_symbols in part.var for part in parts):
        symbols_of(parts[0], gene_symbols)  # raises, unless no column is named
    for part in parts:
        part.uns.pop(SYMBOLS_KEY, None)
        if gene_symbols in part.var:
            part.uns[SYMBOLS_KEY] = gene_symbols


def check_column(key: object, argument: str = "groupby") -> None:
    """Raise unless the argument is the name of one column."""
    if not isinstance(key, str):
        given = shortened(key) if isinstance(key, list | tuple) else f"of type {type(key).__name__}"
        raise TypeError(
            f"`{argument}` is {given}: pass the name of one column of `.obs`. To group by several, join them into one."
        )
