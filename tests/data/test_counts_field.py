"""Counts are checked value by value, in every form in which AnnData holds them, and an error leaves them untouched."""

import pickle
import re
from collections.abc import Callable
from pathlib import Path

import anndata as ad
import numpy as np
import pandas as pd
import pytest
import scanpy as sc
from scipy import sparse

from scdiffgen.data import CountsField, Manager
from scdiffgen.data import _counts as counts_module
from scdiffgen.data._counts import blocks, check_counts
from scdiffgen.datasets import pbmc68k

COUNTS = np.random.default_rng(0).poisson(0.7, (60, 9)) + np.eye(60, 9, dtype=np.int64)
COUNTS[:, 0] += 1  # no empty cell
COUNTS[:, 4] = 0  # a gene that is never seen
COUNTS[20] = np.eye(9, dtype=np.int64)[3]  # a cell with one molecule

FORMS = {
    "dense": lambda x: x,
    "fortran": np.asfortranarray,
    "csr_matrix": sparse.csr_matrix,
    "csc_matrix": sparse.csc_matrix,
    "csr_array": sparse.csr_array,
    "csc_array": sparse.csc_array,
}


def annotated(x: object, **kwargs: object) -> ad.AnnData:
    n_obs, n_vars = x.shape
    obs = pd.DataFrame(index=[f"zelle_ß{i}" for i in range(n_obs)])
    return ad.AnnData(x, obs=obs, var=pd.DataFrame(index=[f"gen{i}" for i in range(n_vars)]), **kwargs)


def dense(x: object) -> np.ndarray:
    return x.toarray() if sparse.issparse(x) else np.asarray(x)


@pytest.mark.parametrize("dtype", ["int64", "int32", "uint16", "uint8", "float32", "float64", "bool"])
@pytest.mark.parametrize("form", FORMS)
def test_counts_of_every_form_and_type_are_accepted_and_unchanged(form: str, dtype: str) -> None:
    counts = COUNTS.astype(dtype)
    adata = annotated(FORMS[form](counts))
    manager = Manager(fields=[CountsField("X", layer=None)])
    manager.register_fields(adata)
    np.testing.assert_array_equal(dense(adata.X), counts)
    if sparse.issparse(adata.X):
        assert isinstance(adata.X, sparse.csr_matrix)
    batch = manager.create_torch_dataset()[[3, 1]]["X"]
    np.testing.assert_array_equal(batch, counts[[3, 1]].astype(np.float32))
    assert manager.summary_stats.n_vars == 9
    assert manager.summary_stats.n_cells == 60


def test_indices_get_one_type() -> None:
    """As in files that were written piece by piece; SciPy would copy all indices for each mini-batch."""
    x = sparse.csr_matrix(COUNTS.astype(np.float32))
    data, indices = x.data, x.indices
    x.indptr = x.indptr.astype(np.int64)
    adata = annotated(x)
    assert adata.X.indptr.dtype != adata.X.indices.dtype
    CountsField("X", layer=None).register_field(adata)
    assert adata.X.indptr.dtype == adata.X.indices.dtype
    assert np.shares_memory(adata.X.data, data) and np.shares_memory(adata.X.indices, indices)
    np.testing.assert_array_equal(adata.X.toarray(), COUNTS)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("block_values", [1, 20, 2**24])
def test_faults_are_counted_as_numpy_counts_them(form: str, block_values: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(counts_module, "BLOCK_VALUES", block_values)
    x = COUNTS.astype(np.float64)
    x[7, 2], x[9, 1], x[30, 8], x[31, 0], x[40] = -2, 0.25, np.nan, np.inf, 0
    report = check_counts(FORMS[form](x))
    assert report.faults == {"negative": 1, "fractional": 1, "not finite": 2}
    np.testing.assert_array_equal(report.empty_cells, np.flatnonzero(np.nansum(np.abs(x), axis=1) == 0))
    assert report.first is not None
    row, column, value = report.first
    assert (row, column) in {(7, 2), (9, 1), (30, 8), (31, 0)}
    np.testing.assert_equal(value, x[row, column])


def test_a_single_bad_value_among_many_is_found_where_it_is() -> None:
    rng = np.random.default_rng(1)
    x = sparse.csr_array(np.where(rng.random((5_000, 300)) < 0.05, rng.random((5_000, 300)), 0.0))
    x.data[:] = 1.0
    x.data[41_234] = 1.5
    row = int(np.searchsorted(x.indptr, 41_234, side="right")) - 1
    assert check_counts(x).first == (row, int(x.indices[41_234]), 1.5)


@pytest.mark.parametrize("by_column", [False, True])
@pytest.mark.parametrize("as_dense", [False, True])
def test_backed_counts_are_checked_in_pieces_and_stay_on_disk(
    tmp_path: Path, as_dense: bool, by_column: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    x = COUNTS.astype(np.float32)
    stored = x if as_dense else (sparse.csc_matrix(x) if by_column else sparse.csr_matrix(x))
    annotated(stored).write_h5ad(tmp_path / "cells.h5ad")
    monkeypatch.setattr(counts_module, "BLOCK_VALUES", 100)
    adata = ad.read_h5ad(tmp_path / "cells.h5ad", backed="r")
    try:
        assert sum(1 for _ in blocks(adata.X)) > 4
        manager = Manager(fields=[CountsField("X", layer=None)])
        if by_column and not as_dense:
            with pytest.warns(UserWarning, match="stored by columns on disk"):
                manager.register_fields(adata)
        else:
            manager.register_fields(adata)
        assert adata.isbacked
        np.testing.assert_array_equal(manager.create_torch_dataset()[[1, 3]]["X"], x[[1, 3]])
    finally:
        adata.file.close()


def test_bad_values_on_disk_are_found(tmp_path: Path) -> None:
    x = COUNTS.astype(np.float32)
    x[50, 5] = 2.5
    annotated(sparse.csr_matrix(x)).write_h5ad(tmp_path / "cells.h5ad")
    adata = ad.read_h5ad(tmp_path / "cells.h5ad", backed="r")
    try:
        with pytest.raises(ValueError, match=r"2\.5 in cell 'zelle_ß50', gene 'gen5'"):
            CountsField("X", layer=None).register_field(adata)
    finally:
        adata.file.close()


def normalised(counts: np.ndarray) -> ad.AnnData:
    adata = annotated(counts.astype(np.float32))
    sc.pp.normalize_total(adata, target_sum=1e4)
    return adata


def test_error_for_log_normalised_values_names_the_counts_layer() -> None:
    adata = normalised(COUNTS)
    sc.pp.log1p(adata)
    adata.layers["counts"] = COUNTS
    with pytest.raises(ValueError, match=r"do not round them\. Pass raw counts: 'counts' are in `adata\.layers`"):
        CountsField("X", layer=None).register_field(adata)


def test_scaled_values_are_recognised() -> None:
    adata = normalised(COUNTS)
    sc.pp.log1p(adata)
    sc.pp.scale(adata)
    with pytest.raises(ValueError, match="look scaled or centred"):
        CountsField("X", layer=None).register_field(adata)


@pytest.mark.parametrize("form", [np.asarray, sparse.csr_matrix, sparse.csr_array])
def test_estimated_counts_can_be_rounded_as_the_error_says(form: Callable[[np.ndarray], object]) -> None:
    estimated = COUNTS + np.random.default_rng(3).uniform(0.01, 0.3, COUNTS.shape) * (COUNTS > 0)
    adata = annotated(form(estimated))
    with pytest.raises(ValueError, match=r"np\.rint\(\.\.\.\)`, and `layer='counts'`"):
        CountsField("X", layer=None).register_field(adata)
    adata.layers["counts"] = np.rint(adata.X)
    CountsField("X", layer="counts").register_field(adata)
    np.testing.assert_array_equal(dense(adata.layers["counts"]), COUNTS)


def test_cells_without_molecules_are_named_and_filtering_them_helps() -> None:
    x = COUNTS.copy()
    x[[4, 11]] = 0
    adata = annotated(x)
    with pytest.raises(ValueError, match=r"2 cells without a molecule \('zelle_ß4', 'zelle_ß11'\).*filter_cells"):
        CountsField("X", layer=None).register_field(adata)
    sc.pp.filter_cells(adata, min_counts=1)
    assert CountsField("X", layer=None).register_field(adata)["n_obs"] == 58


@pytest.mark.parametrize("as_layer", [np.asarray, sparse.csr_matrix, sparse.csr_array])
def test_cells_without_molecules_in_a_layer_are_removed_by_that_layer(as_layer: Callable) -> None:
    x, other = COUNTS.copy(), COUNTS.copy()
    x[4], other[11] = 0, 0
    adata = annotated(other)
    adata.layers["counts"] = as_layer(x)
    with pytest.raises(ValueError, match="'zelle_ß4'.*Remove them first") as error:
        CountsField("X", layer="counts").register_field(adata)
    advised = str(error.value).split("`")[-2].removeprefix("adata = ")
    left = eval(advised, {"adata": adata})
    assert adata.obs_names.difference(left.obs_names).tolist() == ["zelle_ß4"]


def test_genes_must_be_the_registered_ones_in_their_order() -> None:
    adata = annotated(COUNTS)
    field = CountsField("X", layer=None)
    state = pickle.loads(pickle.dumps(field.register_field(adata)))
    field.transfer_field(state, annotated(COUNTS[:5]))
    with pytest.raises(ValueError, match="in another order"):
        field.transfer_field(state, adata[:, ::-1].copy())
    with pytest.raises(ValueError, match=r"1 gene of the 9 registered ones .*'gen8'.*TokenDiffusion.prepare_query"):
        field.transfer_field(state, adata[:, :8].copy())
    other = adata.copy()
    other.var_names = [f"ENSG{i}" for i in range(9)]
    with pytest.raises(ValueError, match=r"No registered gene is .*'ENSG0', registered: 'gen0'\).*type of identifier"):
        field.transfer_field(state, other)
    more = annotated(np.ones((3, 10)))
    with pytest.raises(ValueError, match="10 genes, 9 are registered"):
        field.transfer_field(state, more)
    field.transfer_field(state, more[:, list(state["column_names"])].copy())


WRAPPING = {
    "an underflow": (np.uint64, [2**64 - 3, 3]),  # the row sums to 0 modulo 2**64
    "an underflow of 32 bits": (np.uint32, [2**32 - 3, 3]),
    "two halves": (np.uint64, [2**63, 2**63]),
    "signed": (np.int64, [2**62, 2**62]),
    "near the largest": (np.int64, [2**63 - 1, 1]),
    "one beyond": (np.int64, [2**24 + 1, 0]),
}


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("case", WRAPPING)
def test_integers_whose_sum_wraps_are_no_counts(case: str, form: str) -> None:
    dtype, values = WRAPPING[case]
    x = COUNTS.astype(dtype)
    x[7, 2:4] = values
    adata = annotated(FORMS[form](x))
    message = (
        rf"larger than 16,777,216 of its values \(first: {re.escape(f'{values[0]:g}')} in cell 'zelle_ß7', gene 'gen2'"
    )
    with pytest.raises(ValueError, match=message):
        CountsField("X", layer=None).register_field(adata)
    np.testing.assert_array_equal(dense(adata.X), x)


@pytest.mark.parametrize("form", ["dense", "csr_matrix", "csc_matrix"])
def test_a_cell_just_beyond_what_single_precision_counts_is_found(form: str) -> None:
    x = COUNTS.astype(np.float32)
    x[7] = 0
    x[7, :3] = 2**24 - 2, 1, 1
    CountsField("X", layer=None).register_field(annotated(FORMS[form](x)))
    x[7, 3] = 1  # a sum in single precision would still be 2**24
    with pytest.raises(ValueError, match=r"1 cell with more than 16,777,216 molecules \('zelle_ß7'\)"):
        CountsField("X", layer=None).register_field(annotated(FORMS[form](x)))


@pytest.fixture(scope="module")
def blood() -> ad.AnnData:
    cells = pbmc68k()
    return ad.AnnData(cells.layers["counts"].astype(np.float32), var=cells.var[[]])


def deep(n_cells: int = 120, n_genes: int = 2000, depth: float = 8000.0) -> ad.AnnData:
    """Counts of cells with log-normal library sizes, overdispersed."""
    random = np.random.default_rng(0)
    shares = random.gamma(0.2, 1.0, n_genes)
    size = depth * random.lognormal(0, 0.5, (n_cells, 1))
    return annotated(random.poisson(size * shares / shares.sum() * random.gamma(2, 0.5, (n_cells, n_genes))) * 1.0)


@pytest.mark.parametrize("target", [1e4, 1e6, None])
@pytest.mark.parametrize("some_genes", [False, True])
@pytest.mark.parametrize("make", [np.rint, lambda x: sparse.csc_matrix(np.rint(x))])
def test_normalised_values_that_were_rounded_are_named(target: float | None, some_genes: bool, make: Callable) -> None:
    adata = deep()
    adata.layers["raw"] = adata.X.copy()
    sc.pp.normalize_total(adata, target_sum=target)
    adata.X = make(adata.X)
    adata = adata[:, ::2].copy() if some_genes else adata
    adata = adata[adata.X.sum(1) > 0].copy()
    with pytest.warns(UserWarning, match=r"`adata.X` \(`layer=None`\) looks normalised.*'raw' are in `adata.layers`"):
        CountsField("X", layer=None).register_field(adata)


def panel(n_cells: int = 120, n_genes: int = 60) -> np.ndarray:
    """Overdispersed counts of a dense panel of genes."""
    random = np.random.default_rng(0)
    means = np.exp(random.normal(2.5, 1, n_genes)) * random.lognormal(0, 0.4, (n_cells, 1))
    return random.poisson(means * random.gamma(5, 0.2, (n_cells, n_genes))) * 1.0


@pytest.mark.parametrize(
    ("transform", "sign"),
    [
        (lambda x, total: x / total * 1e6, "some whole numbers are missing below frequent ones, such as "),
        (
            lambda x, total: x / total * np.median(total),
            r"cells sum to 1,1\d\d with a standard deviation of only 3\.\d",
        ),
        (lambda x, total: np.log1p(x / total * 1e4), r"cells sum to 27\d with a standard deviation of only 6\.\d"),
        (lambda x, total: np.log1p(x), r"genes vary less than sampling allows \(median variance / mean: 0\.\d\d\)"),
        (lambda x, total: (x / (total + x[:, :1] * 50) * 1e6)[:, 1:], "some whole numbers are missing"),  # some genes
    ],
)
def test_rounded_values_of_a_dense_panel_are_named(transform: Callable, sign: str) -> None:
    counts = panel()
    adata = annotated(np.rint(transform(counts, counts.sum(1, keepdims=True))))
    adata.layers["raw"] = counts[:, : adata.n_vars]
    with pytest.warns(UserWarning, match=rf"`adata.X` .* looks normalised .*{sign}.*'raw' are in `adata.layers`"):
        CountsField("X", layer=None).register_field(adata)


@pytest.mark.parametrize(
    "counts",
    [panel(), panel(n_genes=14) * 100, panel(200).reshape(40, 5, 60).sum(1), panel(19), 1.0 * (panel() > 9)],
    ids=["dense", "proteins", "sums of cells", "few cells", "detected"],
)
def test_counts_of_dense_panels_do_not_look_rounded(counts: np.ndarray) -> None:
    CountsField("X", layer=None).register_field(annotated(counts[counts.sum(1) > 0]))
    thinned = annotated(counts[counts.sum(1) >= 40])
    sc.pp.downsample_counts(thinned, counts_per_cell=60, random_state=0)
    CountsField("X", layer=None).register_field(thinned)


def test_real_counts_do_not_look_rounded(blood: ad.AnnData) -> None:
    thinned = blood.copy()
    sc.pp.downsample_counts(thinned, counts_per_cell=300, random_state=0)
    assert np.ptp(np.asarray(thinned.X.sum(1))) == 0
    for adata in (blood.copy(), thinned, deep(), deep(depth=500_000.0), annotated(COUNTS)):
        CountsField("X", layer=None).register_field(adata)  # a warning of ours is an error
    random = np.random.default_rng(0)
    for x in (random.poisson(50, (60, 20)), random.poisson(2, (60, 500)), random.poisson(30, (60, 2000))):
        CountsField("X", layer=None).register_field(annotated(x))


def test_only_what_holds_counts_is_offered() -> None:
    estimated = normalised(COUNTS).X
    layers = {"scaled": estimated, "log": np.log1p(estimated), "spliced": COUNTS, "full": COUNTS * 2.0**24}
    adata = annotated(estimated, layers=layers)
    with pytest.raises(ValueError) as raised:
        CountsField("X", layer=None).register_field(adata)
    assert str(raised.value).endswith("Pass raw counts: 'spliced' are in `adata.layers` (pass `layer=`).")


@pytest.mark.parametrize("place", [None, "log"])
def test_counts_in_raw_and_x_are_offered_and_the_line_brings_them(place: str | None) -> None:
    adata = annotated(COUNTS.astype(np.float32))
    adata.raw = adata.copy()
    sc.pp.normalize_total(adata)
    adata.layers["log"] = np.log1p(adata.X)
    with pytest.raises(ValueError, match=r"raw counts: `adata.raw` holds counts \(register `adata.raw.to_adata\(\)`\)"):
        CountsField("X", layer=place).register_field(adata)
    brought = adata.raw.to_adata()
    CountsField("X", layer=None).register_field(brought)
    np.testing.assert_array_equal(dense(brought.X), COUNTS)
    assert list(brought.obs_names) == list(adata.obs_names)
    adata.X, adata.raw = COUNTS.astype(np.float32), None
    with pytest.raises(ValueError, match=r"raw counts: `adata.X` holds counts \(pass `layer=None`\)\."):
        CountsField("X", layer="log").register_field(adata)


def test_without_counts_anywhere_none_are_offered() -> None:
    adata = normalised(COUNTS)
    adata.raw = adata.copy()
    adata.layers["log"] = np.log1p(adata.X)
    with pytest.raises(ValueError, match=r"Pass raw counts, for example as a layer\.$"):
        CountsField("X", layer="log").register_field(adata)
