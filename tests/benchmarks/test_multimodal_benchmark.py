"""The benchmark of RNA and protein: splits that share no cell, scores that tell good from torn cells, the whole run."""

from pathlib import Path

import numpy as np
import pytest
from benchmarks import _multimodal_methods, multimodal, render
from benchmarks._multimodal_data import PROTEIN, RNA, CiteSplit, simulated, split_cite
from benchmarks._multimodal_methods import counts_of, mean_imputes, real_cells, ridge_imputes
from benchmarks._multimodal_scores import METRICS, JointScorer, correlation, interval_coverage, pearson_by_protein
from benchmarks._record import read_result
from scipy import sparse


@pytest.fixture(scope="module")
def split() -> CiteSplit:
    return split_cite(simulated(), "simulated", seed=0)


def test_no_cell_is_in_two_parts_and_imputed_cells_are_seen_without_protein(split: CiteSplit) -> None:
    names = [set(part.obs_names) for part in (split.train, split.imputed, split.held_out, split.other)]
    assert sum(map(len, names)) == len(set.union(*names)) == 600
    seen = split.seen()
    assert set(seen.obs_names) == names[0] | names[1]
    assert set(seen[PROTEIN].obs_names) == names[0]
    assert (seen[RNA][split.imputed.obs_names].X != split.imputed[RNA].X).nnz == 0


def test_correlations_are_those_of_numpy() -> None:
    random = np.random.default_rng(0)
    x, y = random.normal(size=(50, 3)), random.normal(size=(50, 2))
    np.testing.assert_allclose(correlation(x, y), np.corrcoef(x.T, y.T)[:3, 3:])
    assert correlation(np.ones((50, 1)), y).tolist() == [[0, 0]]


def test_torn_cells_are_told_by_what_needs_both_modalities(split: CiteSplit) -> None:
    scorer = JointScorer.fit(split, n_trees=20)
    whole, torn = (scorer.score(method.sample(split.held_out.n_obs, 0)) for method in real_cells(split))
    assert whole.keys() == METRICS.keys()
    for metric in ("rna_mmd_x1000", "protein_mmd_x1000", "rna_auc_forest_pcs"):
        np.testing.assert_allclose(whole[metric], torn[metric], atol=0.15)
    assert torn["cross_correlation_error"] > 1.5 * whole["cross_correlation_error"]
    itself = scorer.score(counts_of(split.held_out))
    assert itself["cross_correlation_error"] == itself["library_correlation_error"] == 0


def test_imputing_is_scored_protein_by_protein(split: CiteSplit) -> None:
    real = split.imputed[PROTEIN].X.toarray()
    perfect = pearson_by_protein(split.imputed, real)
    assert list(perfect) == split.imputed[PROTEIN].var_names.tolist()
    np.testing.assert_allclose(list(perfect.values()), 1)
    guesses = ridge_imputes(split), ridge_imputes(split, kernel=True), mean_imputes(split)
    found = [pearson_by_protein(split.imputed, guess) for guess in guesses]
    ridge, kernel, mean = (np.mean(list(of_proteins.values())) for of_proteins in found)
    assert min(ridge, kernel) > mean + 0.2


def test_intervals_of_draws_from_the_truth_hold_four_in_five(split: CiteSplit) -> None:
    random, real = np.random.default_rng(0), split.imputed[PROTEIN].X.toarray()
    assert interval_coverage(split.imputed, np.stack([real, real])) == 1
    rates = random.gamma(5, 100, real.shape)
    truth = split.imputed.copy()
    truth[PROTEIN].X = sparse.csr_matrix(random.poisson(rates).astype(np.float32))
    assert abs(interval_coverage(truth, random.poisson(rates, (300, *real.shape))) - 0.8) < 0.02


@pytest.mark.filterwarnings("ignore::UserWarning", "ignore::FutureWarning")
def test_the_quick_run_writes_a_result_that_is_rendered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("N_DRAWS", "N_SAMPLES"):
        monkeypatch.setattr(_multimodal_methods, name, 2)
    multimodal.main(["--quick", "--seeds", "0", "--threads", "1", "--output", str(tmp_path)])
    result = read_result(tmp_path / "multimodal-simulated.json")
    assert {row["method"] for row in result["training"]} == {"scdiffgen", "totalVI"}
    assert [row["kind"] for row in result["rows"]] == ["limit", "null", "ours", "resampled"]
    assert all(value is not None for row in result["rows"] for value in row["scores"].values())
    assert all(len(row["pearson"]) == 10 for row in result["imputation"])
    before = [row for row in result["imputation"] if row["method"] == "totalVI"]
    options = ["--quick", "--seeds", "0", "--threads", "1", "--output", str(tmp_path)]
    multimodal.main([*options, "--imputation", str(tmp_path / "models")])
    multimodal.main([*options, "--imputation", str(tmp_path / "models")])  # with the model that was kept
    multimodal.main([*options, "--generation", str(tmp_path / "models")])
    result = read_result(tmp_path / "multimodal-simulated.json")
    assert sorted(row["kind"] for row in result["rows"]) == ["limit", "null", "ours", "resampled"]
    assert before == [row for row in result["imputation"] if row["method"] == "totalVI"]
    assert len(result["imputation"]) == 5
    assert "totalVI" in render.section("multimodal-simulated", result, tmp_path)
