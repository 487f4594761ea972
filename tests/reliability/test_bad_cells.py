"""Cells that cannot be registered: the message names what is wrong, and they stay as they were."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import pytest
from anndata import AnnData
from bad_input import Bad, at, check, double_names, ids, one_row, set_obs, set_uns, set_x
from fingerprint import fingerprint
from mudata import MuData
from small_cells import QUIET, simulated_cells, small_model
from treated_cells import SETUP

from scdiffgen.model import TokenDiffusion


def register(spoil: Callable[[AnnData], Any] | None = None, **setup: Any) -> Callable[[AnnData], None]:
    """Spoil the cells, or make something else of them; then register them, which must leave them as they are then."""

    def act(cells: AnnData) -> None:
        made = spoil(cells) if spoil else None
        given = cells if made is None else made
        before = fingerprint(given) if isinstance(given, AnnData) else None
        annotation = {*given.obs, *given.obsm} if before else None
        try:
            TokenDiffusion.setup_anndata(given, **{**SETUP, **setup})
        finally:
            if before:
                assert fingerprint(given) == before
                assert {*given.obs, *given.obsm} == annotation

    return act


def set_obsm(key: str, value: Any) -> Callable[[AnnData], None]:
    def spoil(cells: AnnData) -> None:
        cells.obsm[key] = np.full((cells.n_obs, 1), value)

    return spoil


def rename_obs(old: str, new: str) -> Callable[[AnnData], None]:
    def spoil(cells: AnnData) -> None:
        cells.obs = cells.obs.rename(columns={old: new})

    return spoil


def double_column(cells: AnnData) -> None:
    cells.obs = pd.concat([cells.obs, cells.obs[["cell_type"]]], axis=1)


def wrapped(x: np.ndarray) -> np.ndarray:
    """Counts of which one went below 0 in an unsigned type, so that the row still has its sum modulo 2**64."""
    counts = x.astype(np.uint64)
    counts[3, 5:7] -= np.array([counts[3, 5] + 3, 0], dtype=np.uint64)
    return counts


def empty_cell(x: np.ndarray) -> np.ndarray:
    return x * (np.arange(60) != 4)[:, None]


LABELS, AGE = "`labels_key='cell_type'`", "`continuous_covariate_keys='age'`"
AS_TEXT = "adata.obs['cell_type'].astype(str)"
PARTS = "+".join(map(str, range(3000)))
FEATURES = "`perturbation_features_key='vectors'`"
WITH_VECTORS = {"perturbation_features_key": "vectors"}
REGISTRATION = [
    Bad("a data frame", register(lambda c: c.to_df()), "`adata`", "DataFrame", "anndata.AnnData(", TypeError),
    Bad("an array", register(lambda c: c.X), "`adata`", "ndarray", "pass an AnnData", TypeError),
    Bad("a path", register(lambda _: "cells.h5ad"), "`adata`", "str", "read_h5ad(path)", TypeError),
    Bad("a MuData", register(lambda c: MuData({"rna": c})), "`adata`", "MuData", "mdata['rna']", TypeError),
    Bad("a view", register(lambda c: c[:30]), "`adata`", "view", "adata.copy()"),
    Bad("no counts at all", register(lambda c: AnnData(obs=c.obs, var=c.var)), "`adata.X`", "empty", "`layer=`"),
    Bad("text as counts", register(set_x(lambda x: x.astype(str))), "`adata.X`", "<U32", "numeric array"),
    Bad("objects as counts", register(set_x(lambda x: x.astype(object))), "`adata.X`", "object", "numeric array"),
    Bad("complex counts", register(set_x(lambda x: x.astype(complex))), "`adata.X`", "complex128", "numeric array"),
    Bad("NaN", register(at(np.nan)), "`adata.X`", "nan in cell 'cell3', gene 'gene5'", "Pass raw counts"),
    Bad("an infinite count", register(at(np.inf)), "`adata.X`", "inf in cell 'cell3'", "Pass raw counts"),
    Bad("a negative count", register(at(-1)), "`adata.X`", "-1 in cell 'cell3'", "Pass raw counts"),
    Bad("a fraction", register(at(0.5)), "`adata.X`", "0.5 in cell 'cell3'", "'counts' are in `adata.layers`"),
    Bad("log-normalised", register(set_x(np.log1p)), "`adata.X`", "log-transformed", "'counts' are in `adata.layers`"),
    Bad("sums of a million cells", register(at(3e7)), "`adata.X`", "'cell3'", "sc.pp.downsample_counts"),
    Bad(
        "differences that wrapped", register(set_x(wrapped)), "`adata.X`", "1.84467e+19 in cell 'cell3'", "signed type"
    ),
    Bad(
        "a cell without molecules",
        register(set_x(empty_cell)),
        "`adata.X`",
        "'cell4'",
        "filter_cells(adata, min_counts",
    ),
    Bad("no cells", register(lambda c: c[:0].copy()), "`adata.X`", "(0, 12)", "filtered out?"),
    Bad("no genes", register(lambda c: c[:, :0].copy()), "`adata.X`", "(60, 0)", "filtered out?"),
    Bad("double cells", register(double_names("obs")), "`adata.obs_names`", "'cell1'", "obs_names_make_unique()"),
    Bad("double genes", register(double_names("var")), "`adata.var_names`", "'gene1'", "var_names_make_unique()"),
    Bad("a missing layer", register(layer="count"), "`layer='count'`", "'counts'", "Did you mean 'counts'?", KeyError),
    Bad("a layer by number", register(layer=0), "`layer`", "0", "as text", TypeError),
    Bad(
        "a misspelt column", register(labels_key="celltype"), "`labels_key`", "'celltype'", "mean 'cell_type'", KeyError
    ),
    Bad(
        "a misspelt argument", register(label_key="x"), "`setup_anndata`", "'label_key'", "mean 'labels_key'", TypeError
    ),
    Bad("two columns for one", register(labels_key=["x"]), "`labels_key`", "['x']", "one name", TypeError),
    Bad("text for a list", register(continuous_covariate_keys="age"), AGE, "age", "covariate_keys=['age']", TypeError),
    Bad("a double column", register(double_column), LABELS, "2 columns", "Rename"),
    Bad("a column for two things", register(batch_key="cell_type"), "'cell_type'", "more than one condition", "once"),
    Bad("a cell without label", register(one_row("cell_type", None)), LABELS, "'cell1'", "'unknown'"),
    *(
        Bad(f"{name} as labels", register(set_obs("cell_type", labels)), LABELS, found, AS_TEXT)
        for name, labels, found in [
            ("lists", pd.Series([["a"]] * 60).to_numpy(), "['a'] is a list"),
            ("dates", pd.to_datetime(["2020-01-01"] * 60), "Timestamp"),
            ("intervals", pd.cut(np.arange(60), 3), "is a Interval"),
            ("periods", pd.period_range("2020-01-01", periods=60), "is a Period"),
        ]
    ),
    Bad("text as a number", register(one_row("age", "old")), AGE, "'old' in cell 'cell1'", "finite numbers"),
    Bad("an infinite number", register(one_row("age", -np.inf)), AGE, "-inf", "finite"),
    Bad("a number too large", register(one_row("age", 1e300)), AGE, "1e+300", "finite"),
    Bad("complex numbers", register(set_obs("age", 1j)), AGE, "1j", "finite numbers"),
    Bad("no number at all", register(set_obs("age", np.nan)), "`continuous_covariate_keys`", "'age'", "Leave it out"),
    Bad("a dose without a number", register(one_row("dose", "much")), "guide", "'much'", "`dose_unit`"),
    Bad("a negative dose", register(one_row("dose", -0.5)), "guide", "-0.5", "at least 0"),
    Bad("a dose of the control", register(one_row("dose", 1.0, row=0)), "guide", "dose 1 of the control", "dose 0"),
    Bad("two doses for one drug", register(one_row("dose", "1+2")), "guide", "2 doses for 1 perturbation", "'0.5+0.5'"),
    *(
        Bad(f"a dose of {dose!r}", register(one_row("dose", dose)), "guide", text, way_out)
        for dose, text, way_out in [
            (1e300, "1e+300", "another unit"),
            (1e-300, "1e-300", "another unit"),
            ("1_0", "'1_0'", "no number"),
            (True, "True", "no number"),
        ]
    ),
    *(
        Bad(f"a column {column}", register(set_obs(column, "mine")), f"adata.obs['{column}']", "overwritten", "Rename")
        for column in ("_scvi_labels", "_scvi_batch")
    ),
    Bad("an entry of ours", register(set_obsm("_scvi_perturbation", "mine")), "adata.obsm", "overwritten", "Rename"),
    Bad(
        "a condition of ours",
        register(rename_obs("cell_type", "_scvi_x"), labels_key="_scvi_x"),
        "'_scvi_x'",
        "codes",
        "Rename",
    ),
    Bad(
        "the column that marks generated cells",
        register(rename_obs("cell_type", "unseen_in_training"), labels_key="unseen_in_training"),
        "'unseen_in_training'",
        "more than one condition",
        "rename",
    ),
    Bad("masked counts", register(set_x(lambda x: np.ma.masked_array(x, x == 1))), "`adata.X`", "masked", "filled(0)"),
    Bad("a column without a name", register(labels_key=""), "`labels_key`", "''", "'cell_type'", KeyError),
    Bad("doses of nothing", register(perturbation_key=None), "`dose_key=['dose']`", "dose", "needs `perturbation_key`"),
    Bad("a drug twice", register(one_row("guide", "A+A"), dose_key=None), "guide", "'A' occurs twice", "name it once"),
    *(
        Bad(f"a name {name}", register(one_row("guide", name), dose_key=None), "guide", name, "`perturbation_sep='")
        for name in ("(+)-JQ1", "atenolol-(+|-)", "CC[N+](C)C", "IL-2+")
    ),
    *(
        Bad(f"{name!r} as a perturbation", register(one_row("guide", name)), "guide", repr(name), "`control=['ctrl', ")
        for name in ("nan", "None")
    ),
    Bad(
        "thousands of parts", register(one_row("guide", PARTS), dose_key=None), "guide", "3,000", "Leave such cells out"
    ),
    Bad("a combination cut short", register(one_row("guide", "A+")), "guide", "'A+'", "a part is empty"),
    Bad("only controls", register(set_obs("guide", "ctrl"), dose_key=None), "guide", "'ctrl'", "Leave it out"),
    Bad("a control that is no name", register(control=0), "`control`", "0", "as text", TypeError),
    Bad("no control", register(control=[]), "`control`", "nothing", "control='ctrl'"),
    Bad("no separator", register(perturbation_sep=""), "`perturbation_sep`", "''", "visible character"),
    Bad(
        "a branch without a root",
        register(one_row("organ", None), hierarchy_keys=["organ", "tissue"]),
        "`hierarchy_keys`",
        "'cell1'",
        "below the root",
    ),
    Bad("a drug without a vector", register(one_row("guide", "C"), **WITH_VECTORS), FEATURES, "'C'", "needs one"),
    *(
        Bad(name, register(set_uns("vectors", {"A": vector, "B": [1.0]}), **WITH_VECTORS), FEATURES, value, way_out)
        for name, vector, value, way_out in [
            ("vectors of two lengths", [1.0, 2.0], "length 1", "same length"),
            ("a vector with NaN", [np.nan], "'A'", "finite"),
            ("a vector that overflows", [1e20], "1e+20", "at most 1e+15"),
        ]
    ),
    Bad("no vectors", register(perturbation_features_key="vector"), "features_key`", "'vector'", "'vectors'", KeyError),
]


@pytest.mark.parametrize("row", ids(REGISTRATION))
def test_cells_that_cannot_be_registered(row: Bad, cells: AnnData) -> None:
    check(row, cells)


@pytest.mark.parametrize(("registered", "asked", "meant"), [([0, 1], ["0", "1"], "0"), (["0", "1"], [0, 1], "'0'")])
def test_query_batches_of_another_type_are_not_new_batches(registered: list, asked: list, meant: str) -> None:
    adata, query = simulated_cells(40), simulated_cells(40)
    adata.obs["batch"], query.obs["batch"] = np.resize(registered, 40), np.resize(asked, 40)
    reference = small_model(adata, batch_key="batch")
    reference.train(1, **QUIET)
    before = fingerprint(query)
    for load in (TokenDiffusion.load_query_data, lambda cells, model: model.get_nll_bound(cells, silent=True)):
        with pytest.raises(ValueError, match=rf"`batch_key.*Did you mean {meant}\?"):
            load(query, reference)
        assert fingerprint(query) == before
    query.obs["batch"] = query.obs["batch"].astype(type(registered[0]))
    known = TokenDiffusion.load_query_data(query, reference)
    assert known.adata.obs["_scvi_batch"].tolist() == adata.obs["_scvi_batch"].tolist()
