"""Scores against a physical truth: closed forms, planted cells, and the published rows that need no other program."""

from functools import partial
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from anndata import AnnData
from benchmarks import _physics_data, _physics_tables, physics, render
from benchmarks._data import FOLDER
from benchmarks._physics_data import AMOUNT, MIX, PLATES, WELLS, load_wells, published_denoising, thinned
from benchmarks._physics_depth import copula_of, paired, scaled_up
from benchmarks._physics_integration import (
    best_integrations,
    integration_scores,
    load_protocols,
    normalised,
    published_integration,
)
from benchmarks._physics_methods import (
    alra_shares,
    chosen,
    label_means,
    neighbour_smoothing,
    pooled_shares,
    with_own_molecules,
)
from benchmarks._physics_null import N_NEIGHBOURS, change_left, n_de_genes, neighbours_kept, planted_batch_effect
from benchmarks._physics_programs import FINDERS, plant, recovery
from benchmarks._physics_scores import (
    NORMALISATIONS,
    best_correlations,
    components,
    detection_gap,
    median_dispersion,
    nats_per_molecule,
    published_scores,
    r_squared,
    zeros_of,
)
from benchmarks._record import read_result, write_result
from scipy import sparse

needs_wells = pytest.mark.skipif(
    not all((FOLDER / file).exists() for file in (*WELLS.values(), _physics_data.DENOISING)),
    reason="needs the wells and published scores of Tian et al. (2019) in ../shared/data",
)


def counts_of(rates: np.ndarray, seed: int = 0) -> sparse.csr_matrix:
    return sparse.csr_matrix(np.random.default_rng(seed).poisson(rates))


@needs_wells
@pytest.mark.parametrize("protocol", WELLS)
def test_published_scores_without_imputation_are_reproduced(protocol: str) -> None:
    wells, published = load_wells(protocol), published_denoising().loc[PLATES[protocol]]
    counts, mix = wells.X.toarray().astype(np.float64), wells.obs[MIX].to_numpy(dtype=str)
    for name, normalise in {"none": lambda x: x, **NORMALISATIONS}.items():
        found = published_scores(normalise(counts), mix, wells.obs["total_count_per_cell"].to_numpy(dtype=float))
        assert found == pytest.approx(published.loc[(name, "no_imputation"), list(found)].to_dict(), abs=1e-6)


@needs_wells
def test_published_scores_without_integration_are_reproduced() -> None:
    wells, published = load_protocols(), published_integration()
    each = {protocol: load_wells(protocol) for protocol in WELLS}
    for name, normalise in {"none": lambda x: x, **NORMALISATIONS}.items():
        logs = [normalise(of.X.toarray().astype(float))[:, of.var_names.isin(wells.var_names)] for of in each.values()]
        genes = [of.var_names[of.var_names.isin(wells.var_names)] for of in each.values()]
        joined = np.vstack([logs[0], logs[1][:, genes[1].get_indexer(genes[0])]])
        found = integration_scores(components(joined)[0][:, :2], wells.obs)
        assert found == pytest.approx(published.loc[("no_imputation", "no_int", name), list(found)].to_dict(), abs=1e-6)


@needs_wells
def test_published_integrations_are_shown_with_and_without_imputation() -> None:
    best = {row["method"]: row["silhouette_dr"] for row in best_integrations()}
    assert best["MNN"] == pytest.approx(0.607825, abs=1e-6)
    assert best["MNN after kNN-smoothing"] == pytest.approx(0.664803, abs=1e-6) == max(best.values())


def test_wells_are_normalised_by_protocol() -> None:
    counts = np.random.default_rng(0).poisson(50.0, (20, 30)).astype(float)
    deeper = np.vstack([counts, 8 * counts])
    for _, values in normalised(deeper, np.repeat(["a", "b"], 20)):
        assert not np.isnan(values).any()
        np.testing.assert_allclose(values[:20] - values[:20].mean(), values[20:] - values[20:].mean(), atol=0.05)


def test_groups_are_wanted_and_depth_is_unwanted_variation() -> None:
    rng = np.random.default_rng(0)
    mix, total = np.repeat(["a", "b", "c"], 20), rng.uniform(10, 1000, 60)
    noise = 1e-3 * rng.normal(size=(60, 40))
    grouped = published_scores(noise + rng.normal(size=(3, 40))[np.repeat(range(3), 20)], mix, total)
    assert grouped["silhouette_mean"] > 0.99 and grouped["wanted_variation_corr"] > 0.99
    deep = published_scores(noise + np.log10(total)[:, None], mix, total)
    assert deep["unwanted_variation_corr"] > 0.99 and deep["wanted_variation_corr"] < 0.2


def test_r_squared_is_the_squared_correlation_of_one_variable() -> None:
    x, y = np.random.default_rng(0).normal(size=(2, 50))
    assert r_squared(y + x, x[:, None]) == pytest.approx(np.corrcoef(x, y + x)[0, 1] ** 2)


def test_nats_of_equal_shares_are_the_log_of_the_number_of_genes() -> None:
    assert nats_per_molecule(np.full((3, 20), 1 / 20), counts_of(np.full((3, 20), 2.0))) == pytest.approx(np.log(20))


def test_thinning_is_binomial() -> None:
    counts = sparse.csr_matrix(np.full((2000, 3), 40))
    kept = thinned(counts, np.repeat([0.25, 1.0], 1000), seed=0).toarray()
    assert (kept[1000:] == 40).all()
    assert kept[:1000].mean() == pytest.approx(10, abs=0.2) and kept[:1000].var() == pytest.approx(7.5, rel=0.1)


def test_dispersion_is_that_of_negative_binomial_counts_and_none_of_poisson_ones() -> None:
    rng, mix = np.random.default_rng(0), np.repeat(["a", "b"], 100)
    means = rng.uniform(20, 60, (2, 200))[np.repeat([0, 1], 100)] * rng.uniform(0.5, 2, (200, 1))
    poisson, varied = counts_of(means), counts_of(means * rng.gamma(1 / 0.2, 0.2, means.shape))
    assert median_dispersion(poisson, poisson, mix) == pytest.approx(0, abs=0.01)
    assert median_dispersion(varied, varied, mix) == pytest.approx(0.2, rel=0.15)


def test_detection_gap_is_the_mean_over_quantiles_of_genes() -> None:
    measured = counts_of(np.full((50, 40), 20.0))
    assert detection_gap(measured, measured) == 0
    lost = measured.toarray()
    lost[:25, np.argsort(lost.sum(axis=0), kind="stable")[:4]] = 0  # half of the wells lose a tenth of the genes
    assert detection_gap(sparse.csr_matrix(lost), measured) == pytest.approx(0.05)


def test_the_copula_draws_wells_of_their_mixtures_at_the_library_sizes() -> None:
    rates = np.random.default_rng(0).gamma(1, 50, (2, 30))
    deep = AnnData(
        counts_of(np.repeat(rates, 40, axis=0)), obs=pd.DataFrame({MIX: np.repeat(["a", "b"], 40)}, map(str, range(80)))
    )
    library = np.full(200, 1000.0)
    drawn = copula_of(deep, np.repeat(["b", "a"], 100), seed=0)(deep.X, library).toarray()
    shares = rates / rates.sum(axis=1, keepdims=True)
    assert drawn.sum(axis=1) == pytest.approx(library, rel=0.25)
    np.testing.assert_allclose(drawn[:100].mean(axis=0) / 1000, shares[1], atol=0.01)


def test_correlations_are_those_of_the_best_program() -> None:
    truth = pd.DataFrame({"x": np.arange(10.0), "y": np.tile([0.0, 1.0], 5)})
    programs = np.column_stack([np.arange(10) % 3, -np.exp(truth["x"]), truth["y"]])
    assert best_correlations(programs, truth) == pytest.approx({"x": 1, "y": 1})


@pytest.mark.parametrize(("share", "n_shared"), [(0.0, 0), (0.5, 15)])
def test_planted_programs_share_genes_in_pairs_and_are_recovered(share: float, n_shared: int) -> None:
    truth = plant(4, share, seed=0)
    common = truth.genes.T.astype(int) @ truth.genes
    assert (np.diag(common) == 30).all() and common[0, 1] == common[2, 3] == n_shared
    assert common[0, 2] == common[1, 2] == common[1, 3] == 0
    ordered = [2, 0, 3, 1]
    found = recovery(-truth.activity[:, ordered], -truth.genes[:, ordered].astype(float), truth)
    assert found == pytest.approx({"activity": 1, "genes": 1})
    noise = np.random.default_rng(0).normal(size=(len(truth.activity), 4))
    assert recovery(noise, truth.genes.astype(float), truth)["activity"] < 0.15
    raised = truth.cells.X.toarray()[:, truth.genes[:, 0]].sum(axis=1)
    assert np.corrcoef(raised, truth.activity[:, 0])[0, 1] > 0.5


def test_programs_of_other_methods_have_a_column_each() -> None:
    cells = AnnData(counts_of(np.random.default_rng(0).gamma(1, 5, (60, 40))).astype(np.float32))
    for name in ("PCA", "NMF", "LDVAE"):
        activation, loadings = FINDERS[name](cells, 3, 0, 1)
        assert activation.shape == (60, 3) and loadings.shape == (40, 3)


def test_cells_that_stay_keep_neighbours_and_a_cell_on_top_of_another_has_it_as_nearest() -> None:
    old = np.random.default_rng(0).normal(size=(40, 3))
    moved = np.arange(40) < 20
    assert neighbours_kept(old, old, moved, old) == {"neighbours": 1.0, "rank": 1.0}
    new = np.where(moved[:, None], old[-1], old)
    found = neighbours_kept(old, new, moved, old)
    assert found["rank"] > 5 and found["neighbours"] < N_NEIGHBOURS / 20


def test_cells_that_all_move_alike_keep_neighbours_in_the_target_space_alone() -> None:
    old, moved = np.random.default_rng(0).normal(size=(40, 3)), np.arange(40) < 20
    assert neighbours_kept(old, old + 10, moved, old + 10)["neighbours"] == 1
    assert neighbours_kept(old, old + 10, moved, old)["neighbours"] < 1


def test_a_planted_gene_is_the_only_false_discovery() -> None:
    rates = np.full((200, 30), 5.0)
    moved = np.arange(200) < 100
    assert n_de_genes(counts_of(rates), moved) == 0
    rates[:100, 0] *= 3
    assert n_de_genes(counts_of(rates), moved) == 1


def test_a_planted_difference_halves_a_tenth_of_the_genes() -> None:
    cells, moved = AnnData(counts_of(np.full((400, 100), 4.0)).astype(np.float32)), np.arange(400) < 200
    changed, genes = planted_batch_effect(cells, moved, seed=0)
    assert 0 < genes.sum() < 30 and (changed.X.toarray() <= cells.X.toarray()).all()
    assert change_left(changed.X, moved, genes) == pytest.approx(-1 + np.log2(1 / (1 - genes.mean() / 2)), abs=0.1)
    assert change_left(cells.X, moved, genes) == pytest.approx(0, abs=0.1)


def test_wells_are_paired_by_mixture_and_each_is_used_once() -> None:
    obs = pd.DataFrame({MIX: ["a", "b"] * 10, AMOUNT: [3.75] * 6 + [30.0] * 14}, index=map(str, range(20)))
    pairs = paired(AnnData(np.ones((20, 1)), obs=obs), seed=0)
    used = np.concatenate(pairs)
    mix = obs[MIX].to_numpy()
    assert (mix[pairs.shallow] == mix[pairs.deep]).all() and (mix[pairs.shallow] == mix[pairs.other]).all()
    assert len(np.unique(used)) == len(used) == 18 and (used >= 0).all()


def test_scaled_counts_reach_the_library_sizes() -> None:
    found = scaled_up(sparse.csr_matrix(np.array([[1, 3], [2, 0]])), np.array([40, 7]))
    assert found.toarray().tolist() == [[10, 30], [7, 0]]


def test_cross_validation_chooses_the_shares_that_predict_hidden_molecules() -> None:
    labels = np.repeat(["a", "b"], 50)
    rates = np.random.default_rng(0).gamma(1, 5, (2, 80))[np.repeat([0, 1], 50)]
    counts = counts_of(rates)
    setting, shares = chosen(counts, partial(label_means, labels=labels), seed=0)
    assert setting == "pooled 0.01"  # cells of a label do not differ, so their own molecules do not help
    np.testing.assert_allclose(shares.sum(axis=1), 1)
    own = with_own_molecules(counts, shares, 1e-9)
    np.testing.assert_allclose(own, counts.toarray() / counts.sum(axis=1).A1[:, None], atol=1e-6)
    smooth = chosen(counts, neighbour_smoothing, seed=0)[1]
    assert nats_per_molecule(smooth, counts_of(rates, 1)) < nats_per_molecule(
        np.repeat(pooled_shares(counts), 100, axis=0), counts_of(rates, 1)
    )


def test_alra_keeps_absent_genes_absent_and_restores_lost_ones() -> None:
    rng = np.random.default_rng(0)
    programs = rng.gamma(1, 8, (3, 200)) * (rng.random((3, 200)) < 0.5)
    rates = programs[rng.integers(3, size=400)] + 1e-9
    counts = counts_of(rates, 1)
    shares, lost = alra_shares(counts, seed=0), (counts.toarray() == 0) & (rates > 1)
    np.testing.assert_allclose(shares.sum(axis=1), 1)
    assert (shares[lost] > 0).mean() > 0.7 and (shares[rates < 1] > 0).mean() < 0.1
    assert (shares[counts.toarray() > 0] > 0).all()


def test_zeros_beyond_those_of_counting_are_seen() -> None:
    rng, rates = np.random.default_rng(0), np.tile([0.2, 1.0, 3.0], (4000, 1))
    counted, bursting = (sparse.csr_matrix(rng.poisson(of)) for of in (rates, rates * rng.gamma(0.5, 2, rates.shape)))
    expected = np.exp([-0.2, -1.0, -3.0]).mean()
    assert zeros_of(counted) == pytest.approx({"molecules": 1.4, "zeros": expected, "poisson": expected}, abs=0.02)
    negative_binomial = ((1 + rates[0] / 0.5) ** -0.5).mean()
    found = zeros_of(bursting)
    assert found["zeros"] == pytest.approx(negative_binomial, abs=0.02) and found["poisson"] < found["zeros"] - 0.1


def test_a_run_writes_parts_once_and_pages_show_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def few() -> AnnData:
        cells = physics.load_pbmc68k()[::4]
        return cells[:, np.sort(np.argsort(-cells.X.sum(0).A1)[:100])].copy()

    monkeypatch.setitem(_physics_data.CELLS, physics.BUNDLED, few)
    arguments = ["--quick", "--threads", "1", "--output", str(tmp_path), "--tasks", "molecules"]
    physics.main([*arguments, "--parts", "mean of all cells", "mean of the label", "kNN smoothing", physics.OURS])
    rows = read_result(tmp_path / "physics-molecules.json")["rows"]
    assert [row["part"] for row in rows] == [physics.OURS, "mean of all cells", "mean of the label", "kNN smoothing"]
    assert all(0 < row["nats"] < np.log(100) + 1 for row in rows)
    physics.main([*arguments, "--parts", "mean of all cells"])
    assert read_result(tmp_path / "physics-molecules.json")["rows"] == rows
    scores = {"auc_pcs": 0.6, "auc_genes": 0.7, "zeros": 0.5, "detection": 0.2, "dispersion": 0.1}
    row = {"data": "CEL-seq2", "seed": 0, "part": "all", "method": "scdiffgen", "question": "thinned"}
    environments = read_result(tmp_path / "physics-molecules.json")["environments"]
    result = {"benchmark": "physics-depth", "data": {"description": "Deeper cells"}, "rows": [row | scores]}
    write_result(tmp_path, "physics-depth", {**result, "environments": environments})
    page = render.render(tmp_path, tmp_path / "docs")["physics.md"].read_text()
    assert "| CEL-seq2: scdiffgen | 0.600 | 0.700 | 0.500 | 0.2000 | 0.100 |" in page and "kNN smoothing" in page


def test_many_seeds_are_a_range() -> None:
    rows = [{"data": "a set", "seed": seed} for seed in range(25)]
    assert _physics_tables.seeds_of({"rows": rows}) == "Seeds: 0 to 24."
    assert _physics_tables.seeds_of({"rows": [*rows[:2], rows[24]]}) == "Seeds: 0, 1, 24."


def test_tables_of_protocols_and_programs_show_methods_and_the_best() -> None:
    common = {"data": "a set", "seed": 0}
    of = {"ours": (physics.OURS, physics.EXPECTED, 0.4), "published": (physics.PUBLISHED, "MNN", 0.6)}
    rows = [
        {
            **common,
            "part": part,
            "method": name,
            "normalisation": "logCPM",
            "silhouette_dr": x,
            "silhouette_dr_batch": 0,
        }
        for part, name, x in of.values()
    ]
    _, table = _physics_tables.integration({"rows": rows})
    assert (
        f"| **{physics.EXPECTED}, logCPM** | 0.400 | **0.000** |" in table
        and "| MNN, best (published) | 0.600 ▲ |" in table
    )
    (line,) = _physics_tables.integration_lines({"rows": rows})
    assert line.leader("ours") == (physics.EXPECTED, 0.4) and line.leader("other") == ("MNN", 0.6)
    scores = {physics.OURS: 0.7, "cNMF": 0.5, physics.PLANTED_ACTIVITY: 0.8}
    rows = [{**common, "part": name, "activity": x, "genes": x} for name, x in scores.items()]
    assert "| a set | **0.700** | 0.500 | 0.800 |" in "".join(_physics_tables.programs({"rows": rows}))
    assert [line.leader("limit") for line in _physics_tables.programs_lines({"rows": rows})] == [
        (physics.PLANTED_ACTIVITY, 0.8)
    ] * 2
