"""What the fields share that code columns of ``adata.obs`` into one array of ``adata.obsm``."""

from __future__ import annotations

from typing import TYPE_CHECKING

import rich.table
from rich.markup import escape
from scvi.data.fields import BaseAnnDataField

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    import numpy as np
    from anndata import AnnData


class ObsmOfColumnsField(BaseAnnDataField):
    """A field that codes columns of ``adata.obs`` into ``adata.obsm["_scvi_<registry_key>"]``.

    Parameters
    ----------
    registry_key
        Name of the field in the registry.
    """

    def __init__(self, registry_key: str) -> None:
        super().__init__()
        self._registry_key = registry_key

    @property
    def registry_key(self) -> str:
        """Name of the field in the registry."""
        return self._registry_key

    @property
    def attr_name(self) -> str:
        """Where in AnnData the codes are: ``"obsm"``."""
        return "obsm"

    @property
    def attr_key(self) -> str:
        """Under which key the codes are."""
        return f"_scvi_{self.registry_key}"

    @property
    def is_empty(self) -> bool:
        """False: a field that was not asked for is not made."""
        return False

    def validate_field(self, adata: AnnData) -> None:
        """Raise nothing: registering reads and checks all columns before it writes.

        Parameters
        ----------
        adata
            Cells.
        """

    def _write(self, adata: AnnData, codes: np.ndarray) -> None:
        adata.obsm[self.attr_key] = codes


def state_table(registry_key: str, columns: Sequence[str], rows: Iterable[Sequence[str]]) -> rich.table.Table:
    """A table of a field's state, as scvi-tools prints one.

    Parameters
    ----------
    registry_key
        Name of the field.
    columns
        Titles of the columns.
    rows
        Their entries.

    Returns
    -------
    The table.

    Examples
    --------
    >>> state_table("hierarchy", ["Node", "Id"], [("blood", "0")]).row_count
    1
    """
    table = rich.table.Table(title=f"{registry_key} State Registry")
    for title in columns:
        table.add_column(title, justify="center", no_wrap=True, overflow="fold")
    for row in rows:
        table.add_row(*map(escape, row))  # names may hold brackets, which rich would read as markup
    return table
