"""Unusual input that is accepted, and its result."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from anndata import AnnData
from csr import doubled_entries
from scipy import sparse
from small_cells import QUIET, SMALL, simulated_cells, trained_model

from scdiffgen.model import TokenDiffusion

CONTAINERS: dict[str, Callable[[np.ndarray], Any]] = {
    **{dtype: lambda x, dtype=dtype: x.astype(dtype) for dtype in ("uint8", "int16", "int64", "float16", "float64")},
    "CSR": sparse.csr_matrix,
    "CSC": sparse.csc_matrix,
    "CSR array": sparse.csr_array,
    "integers in CSR": lambda x: sparse.csr_matrix(x.astype(np.int64)),
    "entries stored twice": doubled_entries,
    "by columns": np.asfortranarray,
    "negative zeros": lambda x: np.where(x == 0, np.float32(-0.0), x),
}


@pytest.mark.parametrize("name", CONTAINERS)
def test_counts_mean_the_same_in_every_container(name: str, tiny: TokenDiffusion, cells: AnnData) -> None:
    given = AnnData(CONTAINERS[name](cells.X), obs=cells.obs, var=cells.var)
    np.testing.assert_array_equal(tiny.get_latent_representation(given), tiny.get_latent_representation(cells.copy()))
    values = given.X.toarray() if sparse.issparse(given.X) else given.X
    np.testing.assert_array_equal(values, cells.X)  # CSC is stored by rows now, with the same values


def test_cells_without_layers_are_read_from_x(cells: AnnData) -> None:
    cells.layers["counts"], cells.X = cells.X, np.log1p(cells.X)
    model = trained_model(cells, layer="counts", labels_key="cell_type")
    made = model.generate({"cell_type": "a"}, 7, n_steps=2, seed=0)
    assert model.get_latent_representation(made).shape[0] == 7 and not made.layers
    logs = AnnData(cells.X, obs=cells.obs, var=cells.var)
    with (
        pytest.warns(UserWarning, match="counts are read from `adata.X`"),
        pytest.raises(ValueError, match=r"`adata.X` \(`layer=None`\) does not hold molecule counts"),
    ):
        model.get_latent_representation(logs)
    cells.layers["other"] = cells.layers.pop("counts")
    with pytest.raises(KeyError, match="`layer='counts'` is not in `adata.layers`"):
        model.get_latent_representation(cells.copy())


def test_missing_conditions_are_drawn_as_in_the_data(tiny: TokenDiffusion) -> None:
    requests = [None, {}, {"cell_type": None}, {"cell_type": np.nan, "age": None}]
    first, *others = (tiny.generate(conditions, 5, n_steps=3, seed=0).X.toarray() for conditions in requests)
    for other in others:
        np.testing.assert_array_equal(other, first)


def test_numbers_may_be_written_as_text(tiny: TokenDiffusion) -> None:
    asked = [{"age": 40, "guide": "A", "dose": 0.5}, {"age": "40", "guide": "A", "dose": "0.5"}]
    number, text = (tiny.generate(conditions, 5, n_steps=3, seed=0).X.toarray() for conditions in asked)
    np.testing.assert_array_equal(text, number)


def test_numbers_may_be_missing(tiny: TokenDiffusion, cells: AnnData) -> None:
    cells.obs["age"] = np.nan
    assert np.isfinite(tiny.get_latent_representation(cells)).all()


LABELS = {
    "unicode": ["naïve T γδ", "单核细胞 🧬"],
    "empty text": ["", "b"],
    "blanks": ["a", "a "],
    "signs of files and patterns": ["a/b\\c", ".*[+"],
    "truth values": [True, False],
    "numbers": [1.0, 2.5],
    "zero": [0, 1],
    "text and numbers": ["a", 1],
    "the word nan": ["nan", "None"],
}


def trained(adata: AnnData, **setup: Any) -> TokenDiffusion:
    TokenDiffusion.setup_anndata(adata, **setup)
    model = TokenDiffusion(adata, **SMALL)
    model.train(max_epochs=1, train_size=1.0, **QUIET)
    return model


@pytest.mark.filterwarnings("ignore:Total length of `list`", "ignore:.*'nan', 'None'|.*'None', 'nan'")
@pytest.mark.parametrize("name", LABELS)
def test_names_of_any_kind_come_back_as_they_were_given(name: str, tmp_path: Any) -> None:
    adata, labels = simulated_cells(20), LABELS[name]
    adata.obs["label"] = np.resize(np.array(labels, dtype=object), 20)
    adata.obs_names = [f"zelle-é/{i} β" for i in range(20)]
    adata.var_names = [f"基因 {i}/γ" for i in range(20)]
    model = trained(adata, labels_key="label")
    made = [model.generate({"label": label}, 1, n_steps=2, seed=0) for label in labels]
    assert [cell.obs["label"].tolist() for cell in made] == [[label] for label in labels]
    assert made[0].var_names.equals(adata.var_names)
    assert model.get_nll_bound().index.equals(adata.obs_names)
    model.save(tmp_path / "模型 γ")
    loaded = TokenDiffusion.load(tmp_path / "模型 γ", adata=False, accelerator="cpu")
    np.testing.assert_array_equal(
        loaded.generate({"label": labels[1]}, 1, n_steps=2, seed=0).X.toarray(), made[1].X.toarray()
    )


@pytest.mark.filterwarnings("ignore:Total length of `list`")
@pytest.mark.filterwarnings("ignore:Last batch will have a small size")
@pytest.mark.parametrize(("n_cells", "n_genes"), [(1, 20), (2, 20), (3, 20), (10, 1), (10, 2)])
def test_the_smallest_data_are_learned_from(n_cells: int, n_genes: int) -> None:
    adata = simulated_cells(n_cells, n_genes)
    model = trained(adata)
    made = model.generate(n_cells=2, n_steps=2, seed=0)
    assert made.shape == (2, n_genes) and (np.asarray(made.X.sum(1)) >= 1).all()
    assert np.isfinite(model.get_nll_bound(adata)).all(axis=None)
    assert np.isfinite(model.get_latent_representation(adata)).all()


@pytest.mark.filterwarnings("ignore:Total length of `list`")
def test_a_category_of_one_cell_is_warned_of_and_one_of_none_is_dropped() -> None:
    adata = simulated_cells(20)
    adata.obs["label"] = ["rare", *"ab" * 9, "a"]
    adata.obs["label"] = adata.obs["label"].astype("category").cat.add_categories("never")
    with pytest.warns(UserWarning, match=r"1 category with a single cell \('rare'\)"):
        model = trained(adata, labels_key="label")
    assert model.generate({"label": "rare"}, 2, n_steps=2, seed=0).n_obs == 2
    with pytest.raises(ValueError, match="'never' was not registered"):
        model.generate({"label": "never"}, 2)


@pytest.mark.filterwarnings("ignore:Total length of `list`")
def test_a_number_that_never_changes_is_allowed() -> None:
    adata = simulated_cells(20)
    adata.obs["age"] = 40.0
    model = trained(adata, continuous_covariate_keys=["age"])
    assert model.generate({"age": 40.0}, 2, n_steps=2, seed=0).n_obs == 2


def test_data_may_be_registered_again_and_copies_for_themselves(tiny: TokenDiffusion, cells: AnnData) -> None:
    TokenDiffusion.setup_anndata(cells, labels_key="cell_type")
    TokenDiffusion.setup_anndata(cells, labels_key="batch")
    copied = cells.copy()
    TokenDiffusion.setup_anndata(copied, labels_key="guide")
    assert [TokenDiffusion(each, **SMALL).module.specs[0].name for each in (cells, copied)] == ["batch", "guide"]
