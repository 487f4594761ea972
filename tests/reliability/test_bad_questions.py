"""What a model cannot be asked: the message says why, and neither the model nor the cells change."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import pytest
from anndata import AnnData
from bad_input import Bad, check, ids, set_obs, set_x
from fingerprint import fingerprint, weights_of

from scdiffgen.model import TokenDiffusion

WHOLE = "whole number of at least 1"


def generate(conditions: Any = None, n_cells: Any = 2, **options: Any) -> Callable[[TokenDiffusion, AnnData], Any]:
    return lambda model, _: model.generate(conditions, n_cells, **{"n_steps": 2, **options})


def read(spoil: Callable[[AnnData], Any]) -> Callable[[TokenDiffusion, AnnData], None]:
    """Show spoilt cells to the model."""

    def act(model: TokenDiffusion, cells: AnnData) -> None:
        made = spoil(cells)
        given = cells if made is None else made
        before = fingerprint(given) if isinstance(given, AnnData) else None
        try:
            model.get_latent_representation(given)
        finally:
            assert before is None or fingerprint(given) == before

    return act


def renamed(cells: AnnData) -> None:
    cells.var_names = [f"ENSG{i}" for i in range(12)]


def empty_cell(x: np.ndarray) -> np.ndarray:
    return x * (np.arange(60) != 4)[:, None]


def without_labels(cells: AnnData) -> None:
    del cells.obs["cell_type"]


A = {"cell_type": "a"}
TWICE = pd.DataFrame([[*"ab"]], columns=["cell_type"] * 2)
LARGEST = "at most 16,777,216"
ASKING = [
    Bad("conditions as text", generate("a"), "`conditions`", "str", "a mapping, a DataFrame or None", TypeError),
    Bad("a misspelt condition", generate({"celltype": "a"}), "'celltype'", "registered condition", "mean 'cell_type'"),
    Bad("a category unseen", generate({"cell_type": "B"}), "'cell_type'", "'B'", "Did you mean 'b'?"),
    Bad("two categories", generate({"cell_type": [*"ab"]}), "`conditions['cell_type']`", "'a', 'b'", "a DataFrame"),
    Bad("a drug unseen", generate({"guide": "C", "dose": 1.0}), "'guide'", "'C'", "'A', 'B'"),
    Bad("a drug without dose", generate({"guide": "A"}), "'A' has no dose", "guide", "Pass one in 'dose'"),
    Bad("a dose without drug", generate({"dose": 1.0}), "dose 1.0", "has no perturbation", "'guide'"),
    Bad("an infinite age", generate({"age": np.inf}), "age", "inf", "finite numbers"),
    Bad("an age too large", generate({"age": 1e300}), "age", "1e+300", "finite numbers"),
    Bad("no rows", generate(pd.DataFrame({"cell_type": []}), None), "`conditions`", "no rows", "Give a row"),
    *(
        Bad(f"a dose of {dose!r}", generate({"guide": "A", "dose": dose}), "guide", text, way_out)
        for dose, text, way_out in [
            (1e300, "1e+300", "another unit"),
            (1e31, "1e+31", "another unit"),
            (1e-300, "1e-300", "another unit"),
            ("1e-40", "1e-40", "another unit"),
            ("1_0", "'1_0'", "no number"),
            (True, "True", "no number"),
        ]
    ),
    Bad("a trillion cells", generate(n_cells=1e12), "`n_cells`", "1,000,000,000,000", "at most 2,147,483,647"),
    Bad("half a cell", generate(n_cells=0.5), "`n_cells`", "0.5", "positive integer"),
    Bad("cells as text", generate(n_cells="10"), "`n_cells`", "'10'", "positive integer"),
    Bad("cells given twice", generate(pd.DataFrame({"n_cells": [1]})), "`n_cells=2`", "'n_cells'", "Give one of them"),
    Bad("no molecules", generate(library_size=0), "`library_size`", "0", "at least 1"),
    Bad("molecules by name", generate(library_size="deep"), "`library_size`", "<U4", "numbers of molecules"),
    Bad("too many molecules", generate(library_size=1e9), "`library_size`", "1e+09", LARGEST),
    Bad("a size too many", generate(library_size=[5, 5, 5]), "`library_size`", "(3,)", "one for each of 2 cells"),
    Bad("sizes that are lists", generate(library_size=[5, [5]]), "`library_size`", "[5, [5]]", "one number"),
    Bad("no steps", generate(n_steps=0), "`n_steps`", "0", WHOLE),
    Bad("steps without end", generate(n_steps=np.inf), "`n_steps`", "inf", WHOLE),
    Bad("a negative seed", generate(seed=-1), "`seed`", "-1", "at least 0"),
    Bad("a seed as text", generate(seed="0"), "`seed`", "'0'", "at least 0"),
    Bad("a seed too large", generate(seed=2**64), "`seed`", str(2**64), "at most"),
    *(
        Bad(f"guidance of {scale:g}", generate(A, guidance_scale=scale), "`guidance_scale`", str(scale), "1,000,000")
        for scale in (1e7, 1e38, 1e300)
    ),
    Bad("guidance that is NaN", generate(A, guidance_scale=np.nan), "`guidance_scale`", "nan", "at least 0"),
    Bad("other guidance", generate(A, guidance_scale={"batch": 2}), "`guidance_scale`", "'batch'", "['cell_type']"),
    Bad("a table read", read(lambda c: c.to_df()), "`adata`", "DataFrame", "pass an AnnData", TypeError),
    Bad("other genes", read(renamed), "`adata.var_names`", "'gene0'", "same type of identifier"),
    Bad("too few genes", read(lambda c: c[:, :5].copy()), "`adata.var_names`", "'gene5'", "prepare_query_anndata"),
    Bad("genes in another order", read(lambda c: c[:, ::-1].copy()), "`adata`", "another order", "get_var_names()"),
    Bad("no labels", read(without_labels), "`labels_key`", "'cell_type'", "'batch'", KeyError),
    Bad("labels unseen", read(set_obs("cell_type", "z")), "`labels_key='cell_type'`", "'z'", "Leave these cells out"),
    Bad("drugs unseen", read(set_obs("guide", "Z")), "`perturbation_key='guide'`", "'Z'", "Leave these cells out"),
    Bad("normalised cells", read(set_x(np.log1p)), "`adata.X`", "log-transformed", "Pass raw counts"),
    Bad("an empty cell", read(set_x(empty_cell)), "`adata.X`", "'cell4'", "filter_cells"),
    Bad("no cell", read(lambda c: c[:0].copy()), "`adata.X`", "(0, 12)", "filtered out?"),
    Bad("cells of no position", lambda m, _: m.get_nll_bound(indices=[60]), "`indices`", "60", "60 cells"),
    Bad("no cell chosen", lambda m, _: m.get_nll_bound(indices=[]), "`indices`", "no cell", "selects"),
    Bad(
        "a gene unseen", lambda m, _: m.get_normalized_expression(gene_list=["CD3"]), "`gene_list`", "'CD3'", "not know"
    ),
    Bad(
        "all molecules kept",
        lambda m, c: m.predict_perturbation(c, A, keep_fraction=1),
        "`keep_fraction`",
        "1",
        "[0, 1)",
    ),
    Bad("fewer molecules", lambda m, _: m.deepen(factor=0.5), "`factor`", "0.5", "at least 1"),
    Bad("no cells asked for", generate(n_cells=0), "`n_cells`", "0", "positive integer"),
    Bad("a missing number", generate(pd.DataFrame({"n_cells": [np.nan]}), None), "`n_cells`", "nan", "positive"),
    Bad("a column twice", generate(TWICE, None), "`conditions`", "'cell_type'", "twice"),
    Bad("molecules that are NaN", generate(library_size=np.nan), "`library_size`", "nan", "at least 1"),
    Bad("sizes of other cells", generate(library_size=lambda *_: [9]), "`library_size`", "(1,)", "for each of 2 cells"),
    Bad("negative guidance", generate(A, guidance_scale=-1), "`guidance_scale`", "-1", "1 is no guidance"),
    Bad("guidance in words", generate(A, guidance_scale="much"), "`guidance_scale`", "'much'", "1 is no guidance"),
    Bad("no cells at a time", generate(batch_size=0), "`batch_size`", "0", WHOLE),
    Bad(
        "cells by name",
        lambda m, _: m.get_nll_bound(indices=["cell0"]),
        "`indices`",
        "<U5",
        "positions of cells or a mask",
    ),
    Bad("a position before the first", lambda m, _: m.get_nll_bound(indices=[-61]), "`indices`", "-61", "60 cells"),
    Bad("a batch unseen", lambda m, c: m.transfer_batch(c, to="z"), "'batch'", "'z'", "'x', 'y'"),
    Bad(
        "expression in a batch unseen",
        lambda m, _: m.get_normalized_expression(transform_batch="z"),
        "'batch'",
        "'z'",
        "'x', 'y'",
    ),
    Bad(
        "expression of fewer than no molecules",
        lambda m, _: m.get_normalized_expression(library_size=-1),
        "`library_size`",
        "-1",
        "a positive number",
    ),
    Bad("another name", lambda m, c: m.predict_perturbation(c, {"drug": "A"}), "'drug'", "registered", "'guide'"),
    Bad(
        "a kept share that is NaN",
        lambda m, c: m.predict_perturbation(c, A, keep_fraction=np.nan),
        "`keep_fraction`",
        "nan",
        "[0, 1)",
    ),
    Bad("a negative dose", lambda m, _: m.dose_response(None, "A", [-1.0]), "dose", "-1 of 'A'", "at least 0"),
    Bad("a dose in words", lambda m, _: m.dose_response(None, "A", ["much"]), "dose", "'much'", "number"),
    Bad("a dose that is NaN", lambda m, _: m.dose_response(None, "A", [np.nan]), "dose", "'A' has no dose", "0.5 to 2"),
    Bad("doses of a drug unseen", lambda m, _: m.dose_response(None, "Z", [1.0]), "'guide'", "'Z'", "'A', 'B'"),
    Bad("an unknown method", lambda m, _: m.get_token_loadings(method="svd"), "`method`", "'svd'", "'readout'"),
    Bad("a token that is not there", lambda m, _: m.hold_tokens([7]), "`levels`", "[7]", "'token_1' to 'token_2'"),
    Bad("no tokens left", lambda m, _: m.truncate_tokens(0), "`n_tokens`", "0", WHOLE),
    Bad("no way", lambda m, _: m.interpolate(A, None, [2]), "`weights`", "[2]", "between 0 and 1"),
    Bad("results by an unknown name", lambda m, c: m.write_back(c, keys=["X_pca"]), "`keys`", "'X_pca'", "X_tokens"),
    Bad("no doses", lambda m, _: m.dose_response(None, "A", []), "`doses`", "empty", "at least one dose"),
    Bad(
        "vectors without a place",
        lambda m, _: m.add_perturbation_features({"C": [1.0]}),
        "feature vectors",
        "No",
        "`perturbation_features_key`",
    ),
]


@pytest.mark.parametrize("row", ids(ASKING))
def test_what_a_model_cannot_be_asked(row: Bad, tiny: TokenDiffusion, cells: AnnData) -> None:
    before = fingerprint(tiny.adata), weights_of(tiny)
    check(row, tiny, cells)
    assert (fingerprint(tiny.adata), weights_of(tiny)) == before
