"""Cells that cannot be judged, and tokens that cannot be drawn."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from anndata import AnnData
from bad_input import Bad, at, check, ids, nothing
from fingerprint import fingerprint

from scdiffgen import metrics, pl, tl


def judge(spoil: Callable[[AnnData], Any] = nothing, **options: Any) -> Callable[[AnnData], None]:
    """Compare with spoilt cells in place of generated ones."""

    def act(cells: AnnData) -> None:
        other = cells.copy()
        made = spoil(other)
        given = other if made is None else made
        before = fingerprint(cells), fingerprint(given)
        try:
            metrics.evaluate(cells, given, **{"n_bootstrap": 0, "metrics": ["mmd"], **options})
        finally:
            assert (fingerprint(cells), fingerprint(given)) == before

    return act


STORE = "model.write_back(adata)"
JUDGING = [
    Bad("generated genes are missing", judge(lambda c: c[:, :5].copy()), "`generated`", "gene5", "Pass the same genes"),
    Bad("generated NaN", judge(at(np.nan)), "`generated`", "1", "NaN or infinite"),
    Bad("generated scaled", judge(at(-1.0)), "`generated`", "-1", "Pass raw counts"),
    Bad("an unknown metric", judge(metrics=["mmdd"]), "metrics", "'mmdd'", "'mmd'"),
    Bad("an unknown group", judge(groupby="celltype"), "obs column", "'celltype'", "'cell_type'"),
    Bad("an unknown layer", judge(layer="raw"), "`layer`", "'raw'", "counts"),
    Bad(
        "two cells to judge by", lambda c: metrics.evaluate(c[:2].copy(), c), "`counts`", "(1, 12)", "at least 3 cells"
    ),
    Bad("tokens never stored", lambda c: pl.token_loadings(c), "`adata.uns`", "'scdiffgen'", STORE),
    Bad("genes of tokens never stored", lambda c: tl.rank_token_genes(c), "`adata.varm`", "'token_loadings'", STORE),
]


@pytest.mark.parametrize("row", ids(JUDGING))
def test_cells_that_cannot_be_judged_or_drawn(row: Bad, cells: AnnData) -> None:
    before = fingerprint(cells)
    check(row, cells)
    assert fingerprint(cells) == before
