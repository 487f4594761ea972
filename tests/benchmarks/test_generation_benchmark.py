from pathlib import Path

import anndata
import numpy as np
import pandas as pd
import pytest
from anndata import AnnData
from benchmarks import _data, generation, render
from benchmarks._data import LABEL, Dataset, Split, split
from benchmarks._models import (
    Method,
    copies,
    external_methods,
    fit_scdiffgen,
    linear_methods,
    null_methods,
    real_cells,
    scdiffgen_methods,
)
from benchmarks._record import read_result, write_result
from benchmarks._scores import METRICS, Scorer, likelihoods, spread, wasserstein_by_label, zero_fraction_error
from benchmarks._scvi import fit_scvi, scvi_methods
from scipy import sparse, stats

N_GENES = 12
N_CELLS = {"a": 60, "b": 100, "c": 40}
LABELS = np.repeat(list(N_CELLS), list(N_CELLS.values()))


def synthetic(seed: int = 0) -> AnnData:
    """Cells that express only four genes each, those of their label: so the counts say the label."""
    rng = np.random.default_rng(seed)
    own = (np.arange(N_GENES) // 4)[None, :] == (np.unique(LABELS, return_inverse=True)[1])[:, None]
    counts = sparse.csr_matrix(rng.poisson(own * rng.uniform(3, 12, N_GENES)), dtype=np.float32)
    obs = pd.DataFrame({LABEL: pd.Categorical(LABELS)}, index=[f"cell_{i}" for i in range(len(LABELS))])
    return AnnData(counts, obs=obs, var=pd.DataFrame(index=[f"G{i}" for i in range(N_GENES)]))


def labels_said_by(counts: sparse.csr_matrix) -> np.ndarray:
    of_label = np.asarray(counts.toarray()).reshape(-1, 3, 4).sum(2)
    return np.array(list(N_CELLS))[of_label.argmax(1)]


@pytest.fixture(scope="module")
def parts() -> Split:
    return split(synthetic(), "synthetic", seed=0)


@pytest.fixture(scope="module")
def scorer(parts: Split) -> Scorer:
    return Scorer.fit(parts, n_trees=10)


@pytest.fixture(scope="module")
def methods(parts: Split) -> dict[str, Method]:
    ours, other = fit_scdiffgen(parts, max_epochs=1), fit_scvi(parts, max_epochs=1)
    every = [
        real_cells(parts),
        copies(parts),
        *null_methods(parts),
        *linear_methods(parts),
        *scdiffgen_methods(ours, [2, 4]),
        *scvi_methods(other),
    ]
    return {method.name: method for method in every}


def test_split_is_stratified_by_label(parts) -> None:
    names = [set(part.obs_names) for part in (parts.train, parts.held_out, parts.other)]
    assert sum(map(len, names)) == len(set.union(*names)) == len(LABELS)
    for part in (parts.held_out, parts.other):
        assert part.obs[LABEL].value_counts().to_dict() == {"a": 9, "b": 15, "c": 6}


def test_split_depends_on_the_seed_alone() -> None:
    first, again, second = (split(synthetic(), "synthetic", seed) for seed in (0, 0, 1))
    assert list(first.train.obs_names) == list(again.train.obs_names) != list(second.train.obs_names)


def test_held_out_cells_are_capped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_data, "HELD_OUT_CELLS", 20)
    assert split(synthetic(), "synthetic", 0).held_out.n_obs == 20


@pytest.mark.parametrize("n_train", [None, 35])
def test_genes_are_chosen_on_the_training_cells_alone(n_train: int | None) -> None:
    adata = synthetic()
    unused = ~adata.obs_names.isin(split(adata, "synthetic", 0, n_train=n_train).train.obs_names)
    changed, noise = adata.copy(), np.random.default_rng(1).poisson(9, adata.shape)
    changed.X = sparse.csr_matrix(np.where(unused[:, None], noise, adata.X.toarray()), dtype=np.float32)
    genes = [list(split(cells, "synthetic", 0, 5, n_train).train.var_names) for cells in (adata, changed)]
    assert genes[0] == genes[1] and len(genes[0]) < N_GENES


def test_methods_without_training_draw_cells_of_the_labels_asked_for(methods: dict[str, Method], parts: Split) -> None:
    asked = parts.labels[::-1]
    linear = "linear Gaussian copula, no network"
    for name in ("other real cells", "training cells, resampled", "independent Poisson", "shuffled genes", linear):
        np.testing.assert_array_equal(labels_said_by(methods[name].sample(asked, 0)), asked)


def test_every_method_draws_counts_and_repeats_itself(methods: dict[str, Method], parts: Split) -> None:
    for method in methods.values():
        counts, again = (method.sample(parts.labels, 3) for _ in range(2))
        assert counts.shape == parts.held_out.shape
        assert (counts.data >= 0).all() and (counts.data == np.rint(counts.data)).all()
        assert (counts != again).nnz == 0


def test_other_real_cells_come_once_each(methods: dict[str, Method], parts: Split) -> None:
    drawn = methods["other real cells"].sample(parts.labels, 0).toarray()
    np.testing.assert_array_equal(np.unique(drawn, axis=0), np.unique(parts.other.X.toarray(), axis=0))


def test_copies_are_training_cells_and_scored_as_such(methods, scorer: Scorer, parts: Split) -> None:
    drawn = methods["training cells, resampled"].sample(parts.labels, 0)
    known = {row.tobytes() for row in parts.train.X.toarray()}
    assert all(row.tobytes() in known for row in drawn.toarray())
    scores, of_real = scorer.score(drawn), scorer.score(methods["other real cells"].sample(parts.labels, 0))
    assert scores["novelty"] == 0.0 and of_real["novelty"] == pytest.approx(1.0, abs=0.3)
    assert scores["mmd_x1000"] < 50


def test_variance_ratios_are_those_of_generated_over_real_cells() -> None:
    rng = np.random.default_rng(0)
    real, train = rng.normal(size=(2, 400, 3))
    scores = spread(real, real * [0.5, 1.0, 2.0], train)
    assert scores["least_variance_ratio"] == pytest.approx(0.25)
    assert scores["largest_variance_ratio"] == pytest.approx(4.0)
    assert scores["variance_error"] == pytest.approx(4 / 3)
    collapsed = spread(real, np.repeat(real[:40], 10, axis=0) + rng.normal(0, 1e-3, (400, 3)), train)
    assert collapsed["precision"] == 1.0 > 0.6 > collapsed["coverage"] and collapsed["recall"] < 0.2
    copied = spread(real, train[rng.integers(400, size=400)], train)
    assert copied["novelty"] == 0.0 and copied["coverage"] > 0.7


def test_fewer_training_cells_are_of_the_same_split_and_keep_rare_labels() -> None:
    whole, cut = (split(synthetic(), "synthetic", 0, n_train=n) for n in (None, 35))
    for part in ("held_out", "other"):
        assert list(getattr(whole, part).obs_names) == list(getattr(cut, part).obs_names)
    assert set(cut.train.obs_names) < set(whole.train.obs_names)
    assert cut.train.obs[LABEL].value_counts().to_dict() == {"a": 10, "b": 17, "c": 8}  # the share of c would be 7


def test_scvi_draws_library_sizes_of_training_cells_of_the_label(parts: Split) -> None:
    train = parts.train.copy()
    is_b = (train.obs[LABEL] == "b").to_numpy()
    train.X[is_b] *= 30
    expected = train.X[is_b].sum(1).mean() / train.X[(train.obs[LABEL] == "a").to_numpy()].sum(1).mean()
    other = Split("x", 0, train, parts.held_out, parts.other)
    for method in scvi_methods(fit_scvi(other, max_epochs=1)):
        sizes = method.sample(np.repeat(["a", "b"], 200), 0).sum(1).A1
        assert sizes[200:].mean() / sizes[:200].mean() == pytest.approx(expected, rel=0.2)


def test_external_cells_are_taken_by_label_and_gene_name(parts: Split, tmp_path: Path) -> None:
    there = synthetic(seed=5)[:, ::-1].copy()
    there.write_h5ad(tmp_path / "synthetic-seed0.h5ad")
    (method,) = external_methods({"mine": tmp_path}, parts)
    assert (method.name, method.kind) == ("mine", "other")
    np.testing.assert_array_equal(labels_said_by(method.sample(parts.labels, 0)), parts.labels)


def test_a_folder_without_the_file_is_left_out_and_named(parts: Split, tmp_path: Path, capsys) -> None:
    assert external_methods({"mine": tmp_path}, parts) == []
    assert f"mine is left out: {tmp_path} has no synthetic-seed0.h5ad" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (lambda cells: cells[cells.obs[LABEL] != "c"], "too few cells of 'c': 6 are needed"),
        (lambda cells: cells[:, 1:], "lacks 1 genes .first: 'G0'"),
        (lambda cells: AnnData(cells.X.log1p(), cells.obs, cells.var), "in .X, which is not a count"),
        (lambda cells: AnnData(cells.X, cells.obs.rename(columns={LABEL: "type"}), cells.var), "no obs column 'label'"),
    ],
)
def test_external_cells_that_cannot_be_scored_are_named(spoil, message: str, parts: Split, tmp_path: Path) -> None:
    spoil(synthetic()).copy().write_h5ad(tmp_path / "synthetic-seed0.h5ad")
    with pytest.raises(ValueError, match=message):
        external_methods({"mine": tmp_path}, parts)


def test_scores_know_real_cells_from_cells_of_other_labels(scorer: Scorer, parts: Split) -> None:
    real = scorer.score(real_cells(parts).sample(parts.labels, 0))
    wrong = scorer.score(real_cells(parts).sample(np.resize(["a"], len(parts.labels)), 0))
    assert set(real) == set(METRICS)
    assert real["label_accuracy"] == 1.0
    assert wrong["label_accuracy"] == pytest.approx(9 / 30)
    assert wrong["mmd_x1000"] > 100 > 50 > abs(real["mmd_x1000"])
    assert wrong["auc_forest_pcs"] > 0.75
    assert wrong["wasserstein_by_label"] > 2 * real["wasserstein_by_label"]


def test_the_distance_within_labels_is_a_mean_weighted_by_cells() -> None:
    real = np.random.default_rng(0).normal(size=(10, 2))
    labels = np.repeat(["a", "b"], [8, 2])
    moved = real + np.where(labels[:, None] == "b", [3.0, 4.0], 0.0)
    assert wasserstein_by_label(real, moved, labels) == pytest.approx(0.2 * 5.0)


def test_the_error_of_zeros_is_the_mean_absolute_error_over_genes() -> None:
    real, generated = sparse.csr_matrix([[0, 1, 5], [0, 0, 2]]), sparse.csr_matrix([[0, 0, 0], [1, 0, 3]])
    assert zero_fraction_error(real, generated) == pytest.approx((0.5 + 0.5 + 0.5) / 3)


def test_the_likelihood_of_the_label_mean_is_scipys(parts: Split) -> None:
    counts, labels = parts.held_out.X.toarray(), parts.labels
    train, known = parts.train.X.toarray(), parts.train.obs[LABEL].to_numpy(dtype=str)
    expected = 0.0
    for label in np.unique(labels):
        shares = train[known == label].sum(0) + 1.0
        cells = counts[labels == label]
        expected -= stats.multinomial.logpmf(cells, cells.sum(1).astype(int), shares / shares.sum()).sum()
    found = likelihoods(fit_scdiffgen(parts, max_epochs=1), parts, seed=0)
    assert found["multinomial at the label mean"] == pytest.approx(expected / counts.sum(), rel=1e-5)
    assert np.isfinite(found["scdiffgen"])
    # molecules of these cells are Poisson, so that cells of a label do not vary beyond it
    assert found["Dirichlet-multinomial at the label mean"] == pytest.approx(expected / counts.sum(), rel=1e-2)


@pytest.fixture
def synthetic_data(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(_data.DATASETS, "synthetic", Dataset("synthetic cells", synthetic))


def test_a_whole_run_is_written_and_rendered(synthetic_data: None, tmp_path: Path) -> None:
    (tmp_path / "theirs").mkdir()
    synthetic(seed=5).write_h5ad(tmp_path / "theirs/synthetic-seed0.h5ad")
    external = {"theirs": tmp_path / "theirs"}
    settings = generation.Settings(seeds=(0,), steps=(2,), threads=1, max_epochs=1, n_trees=5, external=external)
    generation.run("synthetic", settings, tmp_path / "results")
    result = read_result(tmp_path / "results" / "generation-synthetic.json")
    kinds = [row["kind"] for row in result["rows"]]
    assert kinds == ["limit", "copies", "null", "null", "other", "other", "ours", "other", "other", "resampled"]
    assert result["data"]["n_held_out"] == 30
    assert result["environment"]["seeds"] == [0]
    assert {row["method"] for row in result["training"]} == {"scdiffgen", "scVI"}
    page = render.render(tmp_path / "results", tmp_path)["generation.md"].read_text()
    assert "| theirs |" in page
    assert (tmp_path / "benchmarks/pages/figures/generation-synthetic.png").stat().st_size > 10_000


def test_rows_of_other_programs_are_added_to_a_run_in_place_of_older_ones(synthetic_data: None, tmp_path: Path) -> None:
    for folder, seed in (("first", 5), ("second", 6)):
        (tmp_path / folder).mkdir()
        synthetic(seed).write_h5ad(tmp_path / folder / "synthetic-seed0.h5ad")
    scored = {"seconds": 0.0, "scores": dict.fromkeys(METRICS, 0.5)}
    kept = {"seed": 0, "method": "scdiffgen, 32 steps", "kind": "ours", **scored}
    result = {"settings": {"n_trees": 5}, "metrics": {}, "rows": [kept], "environment": {"commit": "abc"}}
    write_result(tmp_path, "generation-synthetic", result)
    scores = []
    for folder in ("first", "second"):
        settings = generation.Settings((0,), threads=1, external={"theirs": tmp_path / folder})
        added = generation.add("synthetic", settings, tmp_path)
        methods = [row["method"] for row in added["rows"]]
        assert (methods[0], methods[-2:]) == (kept["method"], ["linear Gaussian copula, no network", "theirs"])
        assert {"other real cells", "shuffled genes"} < set(methods) and len(set(methods)) == len(methods) == 7
        assert (added["rows"][0], added["environment"]) == (kept, {"commit": "abc"})
        scores.append(added["rows"][-1]["scores"]["wasserstein"])
    assert scores[0] != scores[1]


def test_exported_cells_can_be_taken_back(synthetic_data: None, tmp_path: Path) -> None:
    generation.export(["synthetic"], [0], tmp_path)
    train = anndata.read_h5ad(tmp_path / "synthetic-seed0-train.h5ad")
    wanted = pd.read_csv(tmp_path / "synthetic-seed0-labels.csv", index_col=0)["n_cells"]
    assert (train.n_obs, wanted.to_dict()) == (140, {"a": 9, "b": 15, "c": 6})


def test_data_that_are_not_there_are_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(_data, "FOLDER", tmp_path)
    assert _data.available() == ["pbmc68k"]
    with pytest.raises(_data.MissingData, match="kang2018_pbmc_ifnb.h5ad is not in ../shared/data"):
        _data.load_split("kang", 0)
