"""Arguments that are names: lists of names, and the name of one column."""

from __future__ import annotations

from collections.abc import Iterable
from reprlib import repr as shortened
from typing import TYPE_CHECKING, TypeVar

import pandas as pd

if TYPE_CHECKING:
    from anndata import AnnData

Name = TypeVar("Name", bound=str)


def as_names(names: Iterable[Name] | Name) -> list[Name]:
    """Convert to a list of names; a string is one name."""
    return [names] if isinstance(names, str) else list(names)


def symbols_of(adata: AnnData, gene_symbols: str | None, argument: str = "adata") -> pd.Index:
    """Read gene symbols from a column of ``.var``; missing entries and the default are ``.var_names``."""
    if gene_symbols is None:
        return adata.var_names
    if gene_symbols not in adata.var:
        raise ValueError(
            f"`gene_symbols` is {gene_symbols!r}, which is no column of `{argument}.var`: choose from "
            f"{list(adata.var.columns)}, or leave it out if `.var_names` are the symbols."
        )
    column = adata.var[gene_symbols].astype(object)
    return pd.Index(column.where(column.notna(), adata.var_names).astype(str))


def check_column(key: object, argument: str = "groupby") -> None:
    """Raise unless the argument is the name of one column."""
    if not isinstance(key, str):
        given = shortened(key) if isinstance(key, list | tuple) else f"of type {type(key).__name__}"
        raise TypeError(
            f"`{argument}` is {given}: pass the name of one column of `.obs`. To group by several, join them into one."
        )
