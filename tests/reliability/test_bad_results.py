"""Cells that cannot be judged, and tokens that cannot be drawn."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from anndata import AnnData
from bad_input import Bad, at, check, ids, nothing
from fingerprint import fingerprint

from scdiffgen import datasets, metrics, pl, tl


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
    Bad("components that are none", judge(n_pcs=0), "`n_pcs`", "0", "whole number of at least 1"),
    Bad("a single variable gene", judge(n_top_genes=1), "`n_top_genes`", "1", "at least 2"),
    Bad(
        "points in words",
        lambda c: metrics.energy_distance(c.X.astype(str), c.X),
        "`real`",
        "<U32",
        "Pass a numeric array",
    ),
    Bad("points of a line", lambda c: metrics.mmd(c.X[0], c.X[1]), "`real`", "(12,)", "(cells, dimensions)"),
    Bad(
        "points of two spaces",
        lambda c: metrics.mmd(c.X, c.X[:, :5]),
        "`generated`",
        "12 dimensions",
        "the same ExpressionSpace",
    ),
    Bad("points that are NaN", lambda c: metrics.mmd(c.X * np.nan, c.X), "`real`", "720 values", "NaN or infinite"),
    Bad(
        "labels of other cells",
        lambda c: metrics.null_poisson(c, ["a"], ["a"]),
        "`labels`",
        "(1,)",
        "each of the 60 cells",
    ),
    Bad(
        "a null of a label unseen",
        lambda c: metrics.null_poisson(c, c.obs["cell_type"], ["z"]),
        "`labels_out`",
        "z",
        "Known labels: a, b",
    ),
    Bad("cells that are none", lambda _: datasets.simulate(n_cells=0), "`n_cells`", "0", "at least 1"),
    Bad("genes that are none", lambda c: tl.rank_token_genes(c, n_genes=0), "`n_genes`", "0", "None for all"),
    Bad("no losses", lambda _: pl.training_history({}), "`history`", "[]", "model.history"),
    Bad(
        "a table of other things",
        lambda c: pl.dose_response(c.obs),
        "`frame`",
        "'gene'",
        "TokenDiffusion.dose_response",
    ),
    Bad("tokens never stored", lambda c: pl.token_loadings(c), "`adata.uns`", "'scdiffgen'", STORE),
    Bad("genes of tokens never stored", lambda c: tl.rank_token_genes(c), "`adata.varm`", "'token_loadings'", STORE),
]


@pytest.mark.parametrize("row", ids(JUDGING))
def test_cells_that_cannot_be_judged_or_drawn(row: Bad, cells: AnnData) -> None:
    before = fingerprint(cells)
    check(row, cells)
    assert fingerprint(cells) == before
