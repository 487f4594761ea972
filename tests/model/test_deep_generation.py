"""Deep modalities of generated cells, drawn by their regression on the generated others: against a simulated truth."""

import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from mudata import MuData
from mudata_cells import join, mosaic
from scipy import sparse
from small_cells import trained_model

from scdiffgen.datasets import simulate_cite
from scdiffgen.diffusion import Blocks
from scdiffgen.model import TokenDiffusion
from scdiffgen.model._cell_request import CellRequest
from scdiffgen.model._cells import generator_from
from scdiffgen.model._modality_imputer import ModalityImputer
from scdiffgen.model._model_access import sampler_of

OPTIONS: dict[str, Any] = {"n_steps": 8, "silent": True}


def part(mdata: MuData, rows: slice, names: tuple[str, ...]) -> MuData:
    cells = join({name: mdata[name][rows].copy() for name in names})
    cells.obs["cell_type"] = mdata.obs["cell_type"].iloc[rows].astype(str).to_numpy()
    return cells


@pytest.fixture(scope="module")
def simulated() -> MuData:
    """Cells whose protein follows an activity that types do not determine, and RNA does."""
    return simulate_cite(1_200, n_genes=40, n_proteins=6, seed=0)


@pytest.fixture(scope="module", params=[("rna", "protein"), ("protein", "rna")], ids="-".join)
def model(request: pytest.FixtureRequest, simulated: MuData) -> TokenDiffusion:
    """Not to be changed; modalities in either order."""
    return trained_model(part(simulated, slice(600), request.param), 60, 40, labels_key="cell_type")


def log_shares(cells: MuData, name: str) -> np.ndarray:
    counts = cells[name].X.toarray()
    return np.log1p(1e4 * counts / counts.sum(1, keepdims=True))


def across(cells: MuData) -> np.ndarray:
    """Correlations ``(genes, proteins)`` within types."""
    kinds = cells.obs["cell_type"].astype(str).to_numpy()
    values = np.hstack([log_shares(cells, "rna"), np.log1p(cells["protein"].X.toarray())])
    for kind in np.unique(kinds):
        values[kinds == kind] -= values[kinds == kind].mean(0)
    return np.corrcoef(values.T)[: cells["rna"].n_vars, cells["rna"].n_vars :]


def test_rna_and_protein_go_together_as_in_cells_that_no_model_saw(model: TokenDiffusion, simulated: MuData) -> None:
    real = part(simulated, slice(600, None), ("rna", "protein"))
    table = real.obs[["cell_type"]].reset_index(drop=True)
    cells = model.generate(table, seed=1, **OPTIONS)
    truth, found = across(real), across(cells)
    assert np.corrcoef(truth.ravel(), found.ravel())[0, 1] > 0.9
    drawn = cells.copy()
    errors = []
    for each in (cells, *(model.generate(table, seed=seed, **OPTIONS) for seed in (2, 3))):
        together = across(each)
        each["protein"].X = sparse.csr_matrix(np.roll(each["protein"].X.toarray(), 1, axis=0))  # a negative control
        errors.append([np.abs(found - truth).mean() for found in (together, across(each))])
    of_cells, of_control = np.mean(errors, axis=0)
    assert of_control > 1.9 * of_cells
    logs = [np.log1p(each["protein"].X.toarray()) for each in (real, drawn)]
    means, spreads = ([measure(values, axis=0) for values in logs] for measure in (np.mean, np.std))
    np.testing.assert_allclose(*means, atol=0.35)
    assert (spreads[1] > 0.5 * spreads[0]).all() and (spreads[1] < 1.2 * spreads[0]).all()  # after so short a training


def test_same_seed_same_cells_also_of_a_loaded_model(model: TokenDiffusion, tmp_path: Path) -> None:
    model.save(tmp_path / "model")
    loaded = TokenDiffusion.load(tmp_path / "model", False, accelerator="cpu")
    first, again, other = (
        which.generate(n_cells=30, seed=seed, **OPTIONS)["protein"].X.toarray()
        for which, seed in ((model, 3), (loaded, 3), (model, 4))
    )
    np.testing.assert_array_equal(first, again)
    assert (first != other).any()


def test_minibatches_are_independent_of_later_ones_and_of_workers(model: TokenDiffusion) -> None:
    sampler, request = sampler_of(model, 4, 20), CellRequest(model, None, 40)
    conditions, sizes = request.completed(generator_from(0, model.device))
    whole = sampler.sample(conditions, sizes, generator_from(5, model.device))
    alone = pickle.loads(pickle.dumps(sampler))
    first = alone.sample(conditions.take(np.arange(20)), sizes[:20], generator_from(5, model.device))
    assert (whole[:20] != first).nnz == 0 and len(sampler.by_regression) == 1


def test_chosen_library_sizes_are_kept(model: TokenDiffusion) -> None:
    cells = model.generate(n_cells=4, library_size={"protein": 500, "rna": 70}, seed=0, **OPTIONS)
    assert cells["protein"].X.sum(1).A1.tolist() == [500] * 4 and cells["rna"].X.sum(1).A1.tolist() == [70] * 4


def test_matched_samples_keep_modalities_and_rna_depth() -> None:
    cells = mosaic(240)
    model = trained_model(cells, 2, 40)
    model.write_back(cells, keys=["X_generated"], n_steps=4, silent=True)
    for name in ("rna", "prot"):
        assert (sparse.csr_matrix(cells[name].obsm["X_generated"]).sum(1).A1 > 0).all()
    depths = [sparse.csr_matrix(matrix).sum(1).A1 for matrix in (cells["rna"].X, cells["rna"].obsm["X_generated"])]
    np.testing.assert_array_equal(*depths)
    lacks = ~cells["prot"].obs_names.isin(cells["rna"].obs_names)  # their protein is the network's, of their own depth
    tags = cells["prot"]
    of_network = [sparse.csr_matrix(matrix)[lacks].sum(1).A1 for matrix in (tags.X, tags.obsm["X_generated"])]
    np.testing.assert_array_equal(*of_network)


def test_effects_of_perturbations_come_from_the_network_not_the_regression() -> None:
    cells = mosaic(240)
    cells.obs["guide"] = np.resize(["ctrl", "A"], 240)
    assert not sampler_of(trained_model(cells, 1, 40, perturbation_key="guide", control="ctrl")).by_regression


@pytest.mark.parametrize("order", [["rna", "prot", "tags"], ["tags", "prot", "rna"]])
def test_each_deep_modality_follows_from_those_before_it_the_widest_first(order: list[str]) -> None:
    widths = {"rna": 90, "prot": 9, "tags": 4}
    keys = [tuple(n for n in order if n in of) for of in ({"rna"}, {"rna", "prot"}, {"rna", "tags"}, {"prot", "tags"})]
    fits: Any = {key: {name: f"{name} on {len(key)}" for name in order if name not in key} for key in keys}
    for of_key in fits.values():
        of_key.pop("rna", None)
    blocks = Blocks(tuple(widths[name] for name in order))
    draws = ModalityImputer({}, fits, {}).count_draws(order, blocks)
    assert [(order[draw.target], {order[i] for i in draw.given}) for draw in draws] == [
        ("prot", {"rna"}),
        ("tags", {"rna", "prot"}),
    ]
    del fits[keys[0]]  # then the network draws the wider one
    assert [draw.regression for draw in ModalityImputer({}, fits, {}).count_draws(order, blocks)] == ["tags on 2"]
    assert ModalityImputer({}, {}, {}).count_draws(order, blocks) == ()


def test_of_two_deep_modalities_and_no_other_the_narrower_is_regressed() -> None:
    fits: Any = {("panel",): {"prot": "a"}, ("prot",): {"panel": "b"}}
    assert ModalityImputer({}, fits, {}).count_draws(["panel", "prot"], Blocks((40, 9))) == ((1, [0], "a"),)
