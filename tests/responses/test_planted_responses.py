"""Planted responses: one gene among many, arms of unequal depth, and treatments that are confounded with time."""

import numpy as np
import pytest
from scipy import sparse
from simulated_responses import log_mean

from scdiffgen.conditions import GroupTable
from scdiffgen.responses import PseudobulkSums, ResponseEstimator, ResponsePredictor

N_GENES, N_CELLS = 600, 150


def drawn(rng: np.random.Generator, rates: np.ndarray, depth: float, n_cells: int = N_CELLS) -> np.ndarray:
    """Overdispersed counts ``(cells, genes)`` with a mean depth."""
    return rng.poisson(depth * rates / rates.sum() * rng.gamma(6, 1 / 6, (n_cells, len(rates))))


@pytest.mark.parametrize("n_treated", [1, 2, 3, 5])
def test_a_knocked_out_gene_is_lost_in_measured_and_in_new_types(n_treated: int) -> None:
    rng, counts, labels = np.random.default_rng(0), [], []
    base = rng.gamma(1.5, 1, N_GENES) + 0.2
    base[-1] = 3
    for kind in range(6):
        rates = base * np.where(np.arange(N_GENES) == kind, 20, 1)
        for arm in ("control", "KO"):
            if arm == "control" or kind < n_treated:
                after = rates * np.where((np.arange(N_GENES) == N_GENES - 1) & (arm == "KO"), 0, 1)
                counts.append(drawn(rng, after, 3000))
                labels += [(kind, arm)] * N_CELLS
    context, treatment = zip(*labels, strict=True)
    estimator = ResponseEstimator.fit(np.vstack(counts), context, None, treatment)
    for kind in (0, 5):
        before = counts[2 * kind] if kind == 0 else counts[-1]
        found, after = estimator.predict("KO", kind), estimator.apply(before, "KO", kind).toarray()
        level = log_mean(before)[-1]
        assert found.change[-1] == pytest.approx(-level, abs=0.15 * level)
        assert after[:, -1].sum() < 0.05 * before[:, -1].sum()
        assert (found.change[:-1] ** 2).sum() < 0.2 * found.change[-1] ** 2
        assert found.is_ahead is not True or n_treated >= 3 or kind == 0


@pytest.mark.parametrize("ratio", [1 / 3, 3.0])
def test_depth_is_no_response_and_transfers_as_a_ratio(ratio: float) -> None:
    """Nothing but depth differs between arms of three types; a fourth type was not treated."""
    rng, counts, labels = np.random.default_rng(1), [], []
    base = rng.gamma(1.5, 1, 200) + 0.2
    for kind in range(4):
        rates = base * np.where(np.arange(200) == kind, 10, 1)
        for arm, depth in (("control", 1500.0), ("x", 1500.0 * ratio)):
            if (kind, arm) != (3, "x"):
                counts.append(drawn(rng, rates, depth))
                labels += [(kind, arm)] * N_CELLS
    context, treatment = zip(*labels, strict=True)
    estimator = ResponseEstimator.fit(np.vstack(counts), context, None, treatment)
    raw = log_mean(counts[1]) - log_mean(counts[0])
    assert abs(raw.mean()) > 0.1
    for kind in (0, 3):
        found = estimator.predict("x", kind)
        assert abs(found.change.mean()) < 0.01
        assert (np.abs(found.change) > np.nan_to_num(found.half_width, nan=np.inf)).mean() < 0.2
        assert found.log_ratio == pytest.approx(np.log(ratio), abs=0.05)
        before = counts[2 * kind] if kind == 0 else counts[-1]
        after = estimator.apply(before, "x", kind)
        assert after.sum() / before.sum() == pytest.approx(ratio, rel=0.1)


@pytest.mark.parametrize("batches", [[], [0]])
def test_a_requested_time_is_honoured_and_confounding_is_named(batches: list[int]) -> None:
    """Controls at time 0, a drug at times 1 and 2 that raises gene 0 two- and four-fold."""
    rng, base = np.random.default_rng(2), np.ones(60)
    factors = np.where(np.arange(60) == 0, np.array([1, 2, 4])[:, None], 1)
    counts = np.vstack([drawn(rng, base * factor, 1500) for factor in factors])
    time = np.repeat([0, 1, 2], N_CELLS)
    drug = np.where(time > 0, 0, -2)[:, None]
    sums = PseudobulkSums(GroupTable.of(time[:, None], drug, np.ones(drug.shape)), batches, 60)
    sums.add(sparse.csr_matrix(counts))
    predictor = ResponsePredictor(sums.finish(), batches=batches, names=["time"])
    before = log_mean(counts[time == 0])[0]
    for asked in (1, 2):
        found = predictor.change(np.array([asked]), {0: 1.0})
        truth = log_mean(counts[time == asked])[0] - before
        assert found.source == "own" and found.change[0] == pytest.approx(truth, rel=0.15)
        assert any("treatment and 'time' are confounded" in text for text in found.cautions)


def test_the_half_of_the_cells_that_responds_has_the_right_sums_of_counts() -> None:
    """Ten genes rise sixfold and five are lost in a hidden half of treated cells; a third type was not treated."""
    rng, arms = np.random.default_rng(0), {}
    base = rng.gamma(1.5, 1, 200) + 0.2
    rising, falling = np.arange(180, 190), np.arange(190, 195)
    for kind in range(3):
        rates = base * np.where(np.arange(200) // 4 == kind, 6, 1)
        after = (
            rates * np.where(np.isin(np.arange(200), rising), 6, 1) * np.where(np.isin(np.arange(200), falling), 0, 1)
        )
        share = rates.sum() / base.sum() * 1500
        treated = [drawn(rng, x, share * x.sum() / rates.sum(), N_CELLS) for x in (rates, after)]
        arms[kind, "control"], arms[kind, "x"] = drawn(rng, rates, share, 2 * N_CELLS), np.vstack(treated)
    measured = [key for key in arms if key != (2, "x")]
    context, treatment = zip(*(key for key in measured for _ in arms[key]), strict=True)
    estimator = ResponseEstimator.fit(np.vstack([arms[key] for key in measured]), context, None, treatment)
    for kind in (0, 2):
        before, real = arms[kind, "control"], arms[kind, "x"]
        predicted = estimator.apply(before, "x", kind).toarray()
        for genes in (rising, falling):
            share, fold, found = (x[:, genes].sum() / x.sum() for x in (before, real, predicted))
            assert found / share == pytest.approx(fold / share, rel=0.25)
        alike = [np.corrcoef(np.log1p(x[:, rising].T))[np.triu_indices(10, 1)].mean() for x in (real, predicted)]
        assert alike[1] == pytest.approx(alike[0], abs=0.15) and alike[0] > 0.4


def test_a_new_type_responds_as_other_types_at_the_requested_time() -> None:
    """A drug raises ten genes two-fold early and eight-fold late, in three of four types; controls at both times."""
    rng, base, arms = np.random.default_rng(3), np.ones(100), []
    for kind in range(4):
        rates = base * np.where(np.arange(100) == 20 + kind, 10, 1)
        for time, factor in enumerate((2.0, 8.0)):
            raised = rates * np.where(np.arange(100) < 10, factor, 1)
            arms += [(kind, time, -2, drawn(rng, rates, 1500)), (kind, time, 0, drawn(rng, raised, 1500))]
    kinds, times, drugs, counts = zip(*arms, strict=True)
    context, drug = (np.repeat(codes, N_CELLS, axis=0) for codes in (np.column_stack([kinds, times]), drugs))
    known = (context[:, 0] < 3) | (drug < 0)
    sums = PseudobulkSums(GroupTable.of(context[known], drug[known, None], np.ones((known.sum(), 1))), [], 100)
    sums.add(sparse.csr_matrix(np.vstack(counts)[known]))
    predictor = ResponsePredictor(sums.finish(), names=["type", "time"])
    for time in (0, 1):
        found = predictor.change(np.array([3, time]), {0: 1.0})
        before, after = counts[-4 + 2 * time : -2 + 2 * time or None]
        truth = (log_mean(after) - log_mean(before))[:10].mean()
        assert found is not None and found.source == "transferred" and found.is_ahead
        assert found.change[:10].mean() == pytest.approx(truth, rel=0.15)
        assert found.weights["same time"] > 0.5 and "same type" not in found.weights
        assert (np.abs(found.change[:10] - truth) < found.half_width[:10]).mean() > 0.7


def test_contexts_of_one_condition_have_the_predictors_of_contexts_alone() -> None:
    rng = np.random.default_rng(4)
    counts = np.vstack([drawn(rng, 1 + (np.arange(60) == kind), 1500) for kind in range(4) for _ in range(2)])
    context, drug = np.repeat(np.arange(4), 2 * N_CELLS), np.tile(np.repeat([-2, 0], N_CELLS), 4)
    known = (context < 3) | (drug < 0)
    sums = PseudobulkSums(GroupTable.of(context[known, None], drug[known, None], np.ones((known.sum(), 1))), [], 60)
    sums.add(sparse.csr_matrix(counts[known]))
    found = ResponsePredictor(sums.finish(), names=["type"]).change(np.array([3]), {0: 1.0})
    assert found is not None and not any(name.startswith("same") for name in found.weights)
