"""Cells in files, opened: the same annotation and counts as anndata reads, with the counts left on disk."""

from pathlib import Path
from typing import Any

import anndata as ad
import numpy as np
import pandas as pd
import pytest
from scipy import sparse
from small_cells import QUIET, simulated_cells, small_model

from scdiffgen.data import _counts as counts_module
from scdiffgen.data import open_cells

FILES = ["one.h5ad", "two.zarr", "three.h5ad"]


@pytest.fixture
def written(tmp_path: Path) -> list[ad.AnnData]:
    """Three files, one of them dense, as they were written."""
    cells = []
    for number, name in enumerate(FILES):
        adata = simulated_cells(30 + number, seed=number)
        adata.obs_names = [f"{name}-{i}" for i in range(adata.n_obs)]
        adata.obs["cell_type"] = pd.Categorical(adata.obs["cell_type"])
        adata.obs["donor"] = pd.Categorical([f"d{number}"] * adata.n_obs)
        adata.layers["counts"] = sparse.csr_matrix(adata.X) if number else adata.X.copy()
        adata.X = np.log1p(adata.X)
        adata.uns["title"] = name
        (adata.write_zarr if name.endswith("zarr") else adata.write_h5ad)(tmp_path / name)
        cells.append(adata)
    return cells


def dense(matrix: Any) -> np.ndarray:
    return matrix.toarray() if sparse.issparse(matrix) else np.asarray(matrix)


@pytest.mark.parametrize("number", range(3))
def test_one_file_is_what_anndata_reads_with_the_counts_on_disk(
    number: int, written: list[ad.AnnData], tmp_path: Path
) -> None:
    cells = open_cells(tmp_path / FILES[number], layer="counts")
    pd.testing.assert_frame_equal(cells.obs, written[number].obs)
    assert cells.var_names.equals(written[number].var_names) and cells.uns["title"] == FILES[number]
    assert not isinstance(cells.X, np.ndarray) and not sparse.issparse(cells.X)
    np.testing.assert_array_equal(dense(cells.X[:]), dense(written[number].layers["counts"]))


def test_an_address_is_read_as_its_folder(written: list[ad.AnnData], tmp_path: Path) -> None:
    cells = open_cells((tmp_path / "two.zarr").as_uri(), layer="counts")
    pd.testing.assert_frame_equal(cells.obs, written[1].obs)
    np.testing.assert_array_equal(dense(cells.X[3:9]), dense(written[1].layers["counts"][3:9]))
    with pytest.raises(ValueError, match=r"`paths`: file://.*none.zarr is neither"):
        open_cells((tmp_path / "none.zarr").as_uri())


def test_several_files_are_their_concatenation(written: list[ad.AnnData], tmp_path: Path) -> None:
    cells = open_cells([tmp_path / name for name in FILES], layer="counts")
    expected = ad.concat(written)
    pd.testing.assert_frame_equal(cells.obs.drop(columns="file"), expected.obs)
    assert cells.obs["file"].tolist() == ["one"] * 30 + ["two"] * 31 + ["three"] * 32
    assert list(cells.obs["donor"].cat.categories) == ["d0", "d1", "d2"]
    np.testing.assert_array_equal(dense(cells.X[:]), np.vstack([dense(each.layers["counts"]) for each in written]))


@pytest.mark.parametrize(
    "index",
    [
        slice(25, 70),
        slice(None, None, 7),
        [92, 0, 31, 31, 60],
        np.arange(93) % 5 == 0,
        -1,
        (slice(28, 34), [3, 1]),
        slice(5, 5),
    ],
)
def test_rows_of_several_files_are_those_of_the_stacked_matrix(
    index: Any, written: list[ad.AnnData], tmp_path: Path
) -> None:
    stacked = open_cells([tmp_path / name for name in FILES], layer="counts").X
    expected = sparse.csr_matrix(np.vstack([dense(each.layers["counts"]) for each in written]))
    np.testing.assert_array_equal(stacked[index].toarray(), expected[index].toarray())
    assert stacked.shape == expected.shape and stacked.dtype == expected.dtype


def test_a_model_is_registered_trained_and_asked_about_cells_in_several_files(
    written: list[ad.AnnData], tmp_path: Path
) -> None:
    """Where they come from is a condition like any other; answers are those about the cells in memory."""
    cells = open_cells([tmp_path / name for name in FILES], layer="counts")
    model = small_model(cells, labels_key="cell_type", batch_key="file")
    model.train(max_epochs=2, batch_size=16, **QUIET)
    assert model.generate({"file": "two"}, 3, n_steps=2, seed=0).obs["file"].tolist() == ["two"] * 3
    together = ad.concat(written)
    together.X, together.obs["file"] = together.layers["counts"], cells.obs["file"]
    np.testing.assert_allclose(
        model.get_latent_representation(cells, silent=True),
        model.get_latent_representation(together, silent=True),
        atol=1e-5,
    )


def test_names_of_cells_that_occur_twice_get_that_of_their_file(tmp_path: Path) -> None:
    for name in ("a.h5ad", "b.h5ad"):
        simulated_cells(10).write_h5ad(tmp_path / name)
    cells = open_cells([tmp_path / "a.h5ad", tmp_path / "b.h5ad"])
    assert cells.obs_names.is_unique and cells.obs_names[0] == "cell0-a" and cells.obs_names[10] == "cell0-b"


class Counted:
    """Counts the rows that are read of an array in memory."""

    def __init__(self, matrix: np.ndarray) -> None:
        self.matrix, self.shape, self.dtype, self.n_rows = matrix, matrix.shape, matrix.dtype, 0

    def __getitem__(self, rows: slice) -> np.ndarray:
        read = self.matrix[rows]
        self.n_rows += len(read)
        return read


def counted_cells(matrix: np.ndarray) -> tuple[ad.AnnData, Counted]:
    counted = Counted(matrix)
    from scdiffgen.data._open_cells import StackedRows

    return ad.AnnData(X=StackedRows([counted])), counted


def test_registration_reads_some_blocks_and_training_checks_all(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(counts_module, "BLOCK_VALUES", 20 * 10)  # blocks of ten cells
    matrix = simulated_cells(500).X
    adata, counted = counted_cells(matrix)
    model = small_model(adata, layer=None)
    assert counted.n_rows == 8 * 10
    matrix[333, 3] = 0.5
    with pytest.raises(ValueError, match=r"`adata.X`.*0\.5 in cell '333', gene '3'"):
        model.train(max_epochs=1, **QUIET)
    assert not model.is_trained_


def test_what_registration_does_read_is_checked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(counts_module, "BLOCK_VALUES", 20 * 10)
    matrix = simulated_cells(500).X
    matrix[499, 3] = -1
    with pytest.raises(ValueError, match=r"`adata.X`.*-1 in cell '499', gene '3'"):
        small_model(counted_cells(matrix)[0], layer=None)


@pytest.mark.parametrize(
    ("files", "layer", "error", "message"),
    [
        ([], None, ValueError, "`paths` is empty"),
        (["four.h5ad"], None, FileNotFoundError, r"`paths`: there is no .*four.h5ad"),
        (["text.h5ad"], None, ValueError, r"`paths`: .*text.h5ad is neither an .h5ad file nor a .zarr folder"),
        (["one.h5ad"], "count", KeyError, r"`layer='count'` is not in .*one.h5ad.*counts"),
        (["one.h5ad", "genes.h5ad"], None, ValueError, r"the genes of .*one.h5ad and .*genes.h5ad differ.*'gene0'"),
        (["one.h5ad", "order.h5ad"], None, ValueError, r"order.h5ad differ: another order"),
    ],
)
def test_what_cannot_be_opened_is_named(
    files: list[str], layer: str | None, error: type, message: str, written: list[ad.AnnData], tmp_path: Path
) -> None:
    (tmp_path / "text.h5ad").write_text("text")
    simulated_cells(5)[:, 1:].copy().write_h5ad(tmp_path / "genes.h5ad")
    simulated_cells(5)[:, ::-1].copy().write_h5ad(tmp_path / "order.h5ad")
    with pytest.raises(error, match=message):
        open_cells([tmp_path / name for name in files], layer=layer)
