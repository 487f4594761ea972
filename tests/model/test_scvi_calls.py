"""What scvi-tools calls on any of its models, called on ours: the list is in the developer guide."""

import logging
from collections.abc import Iterator
from pathlib import Path

import mudata
import numpy as np
import pytest
from anndata import AnnData
from scipy import sparse
from small_cells import QUIET, SMALL, simulated_cells

from scdiffgen.model import TokenDiffusion

KEYS = {"labels_key": "cell_type", "batch_key": "batch"}


@pytest.fixture(scope="module")
def model() -> TokenDiffusion:
    """A model trained on half of 80 cells; not to be changed."""
    adata = simulated_cells(80)
    TokenDiffusion.setup_anndata(adata, **KEYS)
    model = TokenDiffusion(adata, **SMALL)
    model.train(1, check_val_every_n_epoch=1, train_size=0.5, **QUIET)
    return model


@pytest.fixture
def own() -> TokenDiffusion:
    """A model of the same kind, to be trained and changed."""
    adata = simulated_cells(80)
    TokenDiffusion.setup_anndata(adata, **KEYS)
    return TokenDiffusion(adata, **SMALL)


def test_training_again_continues_the_history_and_its_split(own: TokenDiffusion) -> None:
    for _ in range(2):
        own.train(1, check_val_every_n_epoch=1, train_size=0.5, validation_size=0.3, **QUIET)
    assert own.is_trained and len(own.history["train_loss"]) == len(own.history["validation_loss"]) == 2
    split = [own.train_indices, own.validation_indices, own.test_indices]
    assert [len(part) for part in split] == [40, 24, 16]
    assert sorted(np.concatenate(split)) == list(range(80))


@pytest.mark.parametrize(
    "arguments",
    [
        {"train_size": 1.0, "datasplitter_kwargs": {"drop_last": True}, "batch_size": 32},
        {"datasplitter_kwargs": {"external_indexing": [np.arange(40), np.arange(40, 60), np.arange(60, 80)]}},
        {"plan_kwargs": {"lr": 1e-3}, "max_steps": 2},
        {"callbacks": [], "enable_checkpointing": False, "precision": "32-true"},
    ],
)
def test_arguments_of_training(own: TokenDiffusion, arguments: dict) -> None:
    own.train(max_epochs=2, **arguments, **QUIET)
    assert own.is_trained and np.isfinite(own.get_latent_representation(silent=True)).all()


@pytest.mark.parametrize("arguments", [{}, {"indices": [1, 2, 3]}, {"batch_size": 7}])
def test_reading_registered_and_other_cells(model: TokenDiffusion, other_cells: AnnData, arguments: dict) -> None:
    for cells in (None, other_cells):
        n_cells = len(arguments.get("indices", range(80 if cells is None else 40)))
        assert model.get_latent_representation(cells, **arguments).shape == (n_cells, 16)
        expression = model.get_normalized_expression(cells, transform_batch="y", library_size=10, **arguments)
        assert expression.shape == (n_cells, 20)
        np.testing.assert_allclose(expression.sum(axis=1), 10, rtol=1e-4)
        assert model.posterior_predictive_sample(cells, n_steps=2, **arguments).shape == (n_cells, 20)


@pytest.mark.parametrize(
    "arguments",
    [
        {"groupby": "cell_type", "group1": "a"},
        {"groupby": "cell_type", "group1": "a", "group2": "b", "mode": "change"},
        {"groupby": "cell_type"},
        {"idx1": [0, 1, 2], "idx2": [3, 4, 5]},
        {"idx1": [0, 1, 2]},
        {"groupby": "cell_type", "batch_correction": True, "batchid1": ["x"], "batchid2": ["y"]},
    ],
)
def test_differential_expression(model: TokenDiffusion, arguments: dict) -> None:
    found = model.differential_expression(**arguments, n_samples_overall=20, silent=True)
    assert {"scale1", "scale2", "bayes_factor", "raw_mean1", "non_zeros_proportion2"} <= set(found)
    assert set(found.index) == set(model.adata.var_names)


def test_pseudocounts_are_added_before_fold_changes(model: TokenDiffusion) -> None:
    options = {"groupby": "cell_type", "group1": "a", "mode": "change", "n_samples_overall": 20, "silent": True}
    few, many = (model.differential_expression(**options, pseudocounts=number) for number in (1e-6, 1e3))
    assert (few["pseudocounts"] == 1e-6).all() and (many["pseudocounts"] == 1e3).all()
    assert few["proba_de"].max() > 0.5 and many["proba_de"].max() == 0
    with pytest.raises(ValueError, match=r"`pseudocounts` is -1: pass a number above 0"):
        model.differential_expression(**options, pseudocounts=-1)


def test_default_number_of_cells_is_that_of_training_and_validation(model: TokenDiffusion) -> None:
    cells = model.generate(n_steps=2, silent=True)
    assert cells.n_obs == len(model.train_indices) + len(model.validation_indices) == 80
    assert model.generate({"cell_type": "a"}, n_steps=2).n_obs == 1


@pytest.fixture
def shown(capsys: pytest.CaptureFixture[str]) -> Iterator[list[str]]:
    """What was printed since the test began, when it is over."""
    lines: list[str] = []
    yield lines
    lines += capsys.readouterr().out.split("\n")
    assert any("cell_type" in line for line in lines)


def test_what_is_registered_is_shown(model: TokenDiffusion, shown: list[str], tmp_path: Path) -> None:
    model.view_anndata_setup()
    model.view_anndata_setup(hide_state_registries=True)
    model.view_setup_method_args()
    model.save(tmp_path / "model")
    TokenDiffusion.view_setup_args(str(tmp_path / "model"))


def test_managers_and_registries(model: TokenDiffusion) -> None:
    assert model.adata_manager.data_registry["batch"].attr_name == "obs"
    assert model.summary_stats.n_batch == model.summary_stats.n_labels == 2
    assert model.get_anndata_manager(model.adata, required=True) is model.adata_manager
    assert model.get_from_registry(model.adata, "X").shape == (80, 20)
    assert model.registry["setup_args"]["batch_key"] == "batch"
    loader = model._make_data_loader(model.adata, indices=[0, 1], batch_size=2)
    assert len(next(iter(loader))["X"]) == 2


def test_other_cells_may_take_the_place_of_the_models(
    own: TokenDiffusion, other_cells: AnnData, monkeypatch: pytest.MonkeyPatch
) -> None:
    # all other registrations are forgotten at the end, also those of models that other tests share
    monkeypatch.setattr(TokenDiffusion, "_setup_adata_manager_store", dict(TokenDiffusion._setup_adata_manager_store))
    own.train(1, **QUIET)
    before = own.get_latent_representation(other_cells, silent=True)
    own.adata = other_cells
    np.testing.assert_array_equal(own.get_latent_representation(silent=True), before)
    own.deregister_manager()


def with_genes(names: list[str], seed: int = 7) -> AnnData:
    """Cells of a new batch with some of the genes, and one that is not known, in this order."""
    adata = simulated_cells(30, n_genes=len(names), seed=seed)
    adata.var_names, adata.obs["batch"] = names, "new"
    adata.layers["counts"], adata.uns["about"] = adata.X.copy(), "kept"
    return adata


def test_query_cells_are_brought_to_the_genes_of_the_reference(model: TokenDiffusion, tmp_path: Path) -> None:
    model.save(tmp_path / "model")
    known = [f"gene{i}" for i in range(20)]
    query = with_genes([*known[:0:-1], "other"])  # without gene0
    names = TokenDiffusion.prepare_query_anndata(query, model, return_reference_var_names=True)
    assert list(names) == known and query.n_vars == 20
    counts, reordered = query.X.copy(), query.var_names
    new = TokenDiffusion.prepare_query_anndata(query, str(tmp_path / "model"), inplace=False)
    assert query.var_names.equals(reordered)
    TokenDiffusion.prepare_query_anndata(query, model)
    for cells in (new, query):
        assert list(cells.var_names) == known and cells.uns["about"] == "kept" and cells.X.dtype == np.float32
        dense = cells.X.toarray() if sparse.issparse(cells.X) else np.asarray(cells.X)
        np.testing.assert_array_equal(dense[:, 1:], counts[:, -2::-1])
        assert dense[:, 0].sum() == 0 and cells.layers["counts"].dtype == np.float32
    transferred = TokenDiffusion.load_query_data(query, str(tmp_path / "model"))
    transferred.train(1, **QUIET)
    assert transferred.summary_stats.n_batch == 3


def test_query_cells_may_be_reduced_on_the_way(model: TokenDiffusion) -> None:
    known = [f"gene{i}" for i in range(20)]
    query = with_genes(["other", *known[::-1]])
    assert list(TokenDiffusion.load_query_data(query, model, inplace_subset_query_vars=True).adata.var_names) == known
    with pytest.raises(ValueError, match="prepare_query_anndata"):
        TokenDiffusion.load_query_data(with_genes(known[1:]), model, inplace_subset_query_vars=True)


@pytest.mark.parametrize(
    ("method", "arguments", "hint"),
    [
        ("train", {"use_gpu": True}, "'use_gpu'"),
        ("setup_anndata", {"size_factor_key": "sf"}, "'size_factor_key'"),
        ("setup_anndata", {"perturbation": "drug"}, "'perturbation_key'"),
        ("setup_mudata", {"label_key": "cell_type"}, "Did you mean 'labels_key'"),
    ],
)
def test_arguments_that_we_lack_are_named(model: TokenDiffusion, method: str, arguments: dict, hint: str) -> None:
    cells = {"setup_anndata": model.adata.copy(), "setup_mudata": mudata.MuData({"rna": model.adata.copy()})}
    with pytest.raises(TypeError, match=f"`{method}` has no argument") as raised:
        getattr(model, method)(*([cells[method]] if method in cells else []), **arguments)
    assert hint in str(raised.value)


def test_nothing_is_logged_of_cells_that_are_registered_already(
    model: TokenDiffusion, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    model.get_latent_representation(silent=True)
    assert caplog.text == ""
