"""Places of the cells in a hierarchy (organism, tissue, cell type, state), as ids from root to leaf."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any

from scvi import settings

from scdiffgen._messages import counted, did_you_mean, listed
from scdiffgen.data._columns import obs_column
from scdiffgen.data._hierarchy import Path, encode_paths, nodes_of, paths_of
from scdiffgen.data._obsm_field import ObsmOfColumnsField, state_table

if TYPE_CHECKING:
    from collections.abc import Sequence

    from anndata import AnnData
    from rich.table import Table


class HierarchyField(ObsmOfColumnsField):
    """The place of each cell in a hierarchy, known down to some level.

    Parameters
    ----------
    registry_key
        Name of the field in the registry; ids are written to ``adata.obsm["_scvi_<registry_key>"]``, -1 where a level
        is not known.
    columns
        Columns of ``adata.obs``, the root first.

    Examples
    --------
    >>> import anndata as ad, numpy as np, pandas as pd
    >>> obs = pd.DataFrame({"tissue": ["lung", "blood"], "type": [None, "B"]}, index=["x", "y"])
    >>> cells = ad.AnnData(np.ones((2, 1)), obs=obs)
    >>> HierarchyField("hierarchy", ["tissue", "type"]).register_field(cells)["nodes"]
    [('blood',), ('lung',), ('blood', 'B')]
    >>> cells.obsm["_scvi_hierarchy"].tolist()
    [[1, -1], [0, 2]]
    """

    _argument = "hierarchy_keys"

    def __init__(self, registry_key: str, columns: Sequence[str]) -> None:
        super().__init__(registry_key)
        self._columns = list(columns)

    def register_field(self, adata: AnnData) -> dict[str, Any]:
        """Number the nodes that occur.

        Parameters
        ----------
        adata
            Cells.

        Returns
        -------
        The field's state: columns, and nodes in the order of their ids.
        """
        paths = self._read(adata)
        return self._code(adata, paths, nodes_of(paths))

    def transfer_field(
        self, state_registry: dict[str, Any], adata_target: AnnData, extend_categories: bool = False, **kwargs: Any
    ) -> dict[str, Any]:
        """Code other cells by the nodes registered before.

        An unseen node stays at its last known parent, with a warning; an unseen root raises.

        Parameters
        ----------
        state_registry
            The field's state on the cells it was first registered on.
        adata_target
            The other cells.
        extend_categories
            Whether unseen nodes are appended.
        **kwargs
            What the manager tells other fields; not looked at.

        Returns
        -------
        The field's state on these cells.
        """
        paths = self._read(adata_target)
        nodes = [tuple(node) for node in state_registry["nodes"]]
        known = set(nodes)
        unseen = [node for node in nodes_of(paths) if node not in known]
        if extend_categories:
            nodes += unseen
        elif unseen:
            self._report(unseen, [node[0] for node in nodes if len(node) == 1])
        return self._code(adata_target, paths, nodes)

    def get_summary_stats(self, state_registry: dict[str, Any]) -> dict[str, int]:
        """Count the nodes.

        Parameters
        ----------
        state_registry
            The field's state.

        Returns
        -------
        ``n_<registry_key>``.
        """
        return {f"n_{self.registry_key}": len(state_registry["nodes"])}

    def view_state_registry(self, state_registry: dict[str, Any]) -> Table:
        """Show levels and nodes.

        Parameters
        ----------
        state_registry
            The field's state.

        Returns
        -------
        A table to print.
        """
        rows = [
            (f"adata.obs[{self._columns[len(node) - 1]!r}]", " > ".join(map(str, node)), str(code))
            for code, node in enumerate(state_registry["nodes"])
        ]
        return state_table(self.registry_key, ("Source location", "Node", "Code"), rows)

    def _read(self, adata: AnnData) -> list[Path]:
        return paths_of([obs_column(adata, key, self._argument) for key in self._columns], self._argument)

    def _code(self, adata: AnnData, paths: Sequence[Path], nodes: list[Path]) -> dict[str, Any]:
        self._write(adata, encode_paths(paths, nodes, len(self._columns)))
        return {"columns": list(self._columns), "nodes": nodes}

    def _report(self, unseen: Sequence[Path], roots: Sequence[Any]) -> None:
        unseen_roots = [node[0] for node in unseen if len(node) == 1]
        if unseen_roots:
            raise ValueError(
                f"`{self._argument}`: {counted(len(unseen_roots), 'unseen root')} ({listed(unseen_roots)}) in column "
                f"{self._columns[0]!r}; the registered ones are {listed(roots)}.{did_you_mean(unseen_roots[0], roots)} "
                "Leave these cells out, or rename the place."
            )
        warnings.warn(
            f"`{self._argument}`: {counted(len(unseen), 'unseen place')} ({listed(unseen)}); these cells stay at the "
            "parent that is known.",
            UserWarning,
            stacklevel=settings.warnings_stacklevel,
        )
