"""The benchmark of RNA and chromatin: splits that share no cell, scores by other implementations, the whole run."""

from pathlib import Path

import numpy as np
import pytest
from benchmarks import chromatin, peaks, render
from benchmarks._chromatin_data import ATAC, OTHER, ChromatinSplit, labels_of, simulated, split_chromatin
from benchmarks._chromatin_methods import real_cells
from benchmarks._chromatin_scores import auc_by_column, contrast_pearson, imputation_scores, profile_auc
from benchmarks._multimodal_data import RNA, padded
from benchmarks._record import read_result
from scipy import sparse
from sklearn.metrics import roc_auc_score


@pytest.fixture(scope="module")
def split() -> ChromatinSplit:
    return split_chromatin(simulated(), "simulated", seed=0)


def test_no_cell_is_in_two_parts_and_what_is_imputed_is_not_seen(split: ChromatinSplit) -> None:
    names = [set(part.obs_names) for part in (split.train, *split.without.values(), split.held_out, split.other)]
    assert sum(map(len, names)) == len(set.union(*names)) == 400
    seen = split.seen()
    for key, other in OTHER.items():
        assert set(seen[key].obs_names) == set(split.train.obs_names) | set(split.without[other].obs_names)
    assert seen.obs["label"].to_dict() == simulated().obs["label"][seen.obs_names].to_dict()


def test_padding_keeps_what_was_measured_and_adds_zeros(split: ChromatinSplit) -> None:
    seen = split.seen()
    whole = padded(seen)
    for key in OTHER:
        assert whole[key].obs_names.tolist() == seen.obs_names.tolist()
        assert (whole[key][seen[key].obs_names].X != seen[key].X).nnz == 0
        assert whole[key][split.without[key].obs_names].X.nnz == 0


def test_areas_are_those_of_scikit_learn() -> None:
    random = np.random.default_rng(0)
    truth, scores = random.random((60, 4)) < 0.3, random.integers(0, 5, (60, 4)).astype(float)  # with ties
    expected = [roc_auc_score(truth[:, j], scores[:, j]) for j in range(4)]
    np.testing.assert_allclose(auc_by_column(truth, scores), expected)
    truth[:, 0] = False
    assert np.isnan(auc_by_column(truth, scores)[0])
    labels, opened = np.full(60, "a"), sparse.csr_matrix(truth.astype(float))
    pairs = np.broadcast_to(scores.mean(axis=0), truth.shape)
    np.testing.assert_allclose(profile_auc(opened, scores, labels), roc_auc_score(truth.ravel(), pairs.ravel()))


def test_the_truth_imputes_perfectly_and_cells_of_another_label_do_not(split: ChromatinSplit) -> None:
    for target in OTHER:
        cells = split.without[target]
        truth = cells[target].X.toarray().astype(np.float64)
        scores = imputation_scores(split, target, truth)
        np.testing.assert_allclose([value for key, value in scores.items() if key != "profile_auc"], 1)
        shifted = truth[np.argsort(np.argsort(labels_of(cells), kind="stable")) - len(truth) // 2]
        assert contrast_pearson(cells[target].X, shifted, labels_of(cells)) < 0.5


def test_real_cells_have_the_labels_of_the_held_out_ones(split: ChromatinSplit) -> None:
    whole, torn, poisson = (method.sample(split.held_out.n_obs, 0) for method in real_cells(split))
    assert (whole[RNA] != torn[RNA]).nnz == 0 < (whole[ATAC] != torn[ATAC]).nnz
    assert all(counts[key].shape == split.held_out[key].shape for counts in (whole, torn, poisson) for key in OTHER)


@pytest.mark.filterwarnings("ignore::UserWarning", "ignore::FutureWarning")
def test_the_quick_run_is_written_and_rendered(tmp_path: Path) -> None:
    chromatin.main(["--quick", "--seeds", "0", "--threads", "1", "--output", str(tmp_path / "results")])
    result = read_result(tmp_path / "results" / "chromatin-simulated.json")
    assert [row["epochs"] for row in result["training"]] == [2, 2]
    assert [row["kind"] for row in result["rows"]] == ["limit", "null", "null", "ours", "other", "resampled"]
    assert all(value is not None for row in result["rows"] + result["imputation"] for value in row["scores"].values())
    assert "MULTIVI" in render.section("chromatin-simulated", result, tmp_path)


def test_cost_by_peaks_is_written_and_rendered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(peaks, "in_own_process", lambda _, *arguments: peaks.measure(Path(arguments[-1])))
    peaks.main(["--quick", "--threads", "1", "--output", str(tmp_path / "results")])
    result = read_result(tmp_path / "results" / "peaks.json")
    rows = result["rows"]
    assert [row["n_peaks"] for row in rows] == [200, 200]
    assert all(value > 0 for row in rows for value in row.values())
    assert "a step, s" in render.section("peaks", result, tmp_path)
