"""Responses of simulated cells whose truth is known: across contexts, doses, combinations and perturbations."""

from collections.abc import Sequence

import numpy as np
import pytest
from simulated_responses import DRUG_GENE, N_GENES, Screen, draw, drug_screen, log_mean

from scdiffgen.conditions import Code
from scdiffgen.responses import ResponseEstimator
from scdiffgen.responses._predictors import NO_CHANGE, OWN

N_CELLS = 150


def base(rng: np.random.Generator, names: Sequence[str], spread: float = 0.2) -> dict[str, np.ndarray]:
    """Relative expression of contexts."""
    common = rng.lognormal(0, 0.7, N_GENES)
    return {name: common * rng.lognormal(0, spread, N_GENES) for name in names}


def fitted(screen: Screen, groups: list[tuple[str, str]], seed: int = 0, n_cells: int = N_CELLS) -> ResponseEstimator:
    """An estimator of groups of a context and a treatment, without batches."""
    counts, obs = screen.cells(np.random.default_rng(seed), [(*group[:1], -1, group[1], n_cells) for group in groups])
    return ResponseEstimator.fit(counts, obs["type"], treatment=obs["drug"])


def measured_in(sources: str, target: str = "") -> list[tuple[str, str]]:
    """Groups of sources with both arms and a target without treatment."""
    return [(name, arm) for name in sources for arm in ("control", "x")] + [(name, "control") for name in target]


TRACE, HALVING = 0, 1


@pytest.mark.parametrize("sources", ["ab", "abc", "abcdefg"])
@pytest.mark.parametrize("seed", range(3))
def test_a_marker_does_not_fall_as_its_ambient_traces_do(sources: str, seed: int) -> None:
    """It rises by a half in the one type that expresses it; another gene halves in all types at like levels."""
    rng = np.random.default_rng(seed)
    screen = base(rng, sources + "t")
    groups = []
    for name, levels in screen.items():
        shares = levels / levels.sum() * (1 - 2 * 19e-4)
        shares[TRACE] = 19e-4 if name == "t" else rng.uniform(1e-5, 2e-5)  # 19 per 10,000 are a level of 3
        shares[HALVING] = 19e-4 * rng.uniform(0.8, 1.2)
        groups.append((name, "control", draw(rng, shares, 300)))
        after = shares.copy()
        after[TRACE] *= 1.65 if name == "t" else 0.5
        after[HALVING] *= 0.5
        after[20:40] *= np.repeat([1.5, 0.6], 10)
        groups.append((name, "x", draw(rng, after, 300)))
    truth = log_mean(groups[-1][2]) - log_mean(groups[-2][2])
    context, treatment = (np.repeat([group[i] for group in groups[:-1]], 300) for i in (0, 1))
    estimator = ResponseEstimator.fit(np.vstack([each for *_, each in groups[:-1]]), context, None, treatment)
    found = estimator.predict("x", "t")
    assert truth[TRACE] > 0.3 and truth[HALVING] < -0.5
    assert found.change[TRACE] > -0.15
    assert found.change[HALVING] == pytest.approx(truth[HALVING], abs=0.15)
    assert np.corrcoef(found.change[2:], truth[2:])[0, 1] > 0.9


@pytest.mark.parametrize("sources", ["a", "ab", "abc"])
def test_fewer_than_three_contexts_give_their_plain_mean_and_a_caution(sources: str) -> None:
    screen = drug_screen(4)
    found = fitted(screen, measured_in(sources, "d")).predict("x", "d")
    few = len(sources) < 3
    assert any(f"measured in only {len(sources)} other context" in text for text in found.cautions) == few
    assert ({*found.weights} <= {"mean response", NO_CHANGE}) == few
    assert found.change[DRUG_GENE] == pytest.approx(screen.change("d", "x")[DRUG_GENE], abs=0.15)
    assert np.isnan(found.half_width).all() == (len(sources) == 1)


@pytest.mark.parametrize("sources", ["a", "abcd"])
def test_genes_that_no_source_expresses_are_marked_and_have_no_interval(sources: str) -> None:
    """Gene 0 is expressed in the target alone, gene 1 in treated cells of one source, gene 2 in no context."""
    screen = base(np.random.default_rng(0), [*sources, "t"])
    groups = []
    for name, levels in screen.items():
        for arm in ("control", "x"):
            levels = levels.copy()
            levels[:3] = name == "t", name == "t" or (name == "a" and arm == "x"), 0
            groups.append((name, arm, draw(np.random.default_rng(len(groups)), levels, 60)))
    context, treatment = (np.repeat([group[i] for group in groups[:-1]], 60) for i in (0, 1))
    estimator = ResponseEstimator.fit(np.vstack([x for *_, x in groups[:-1]]), context, None, treatment)
    found = estimator.predict("x", "t")
    assert found.no_source.tolist() == [True] + [False] * (N_GENES - 1)
    assert np.isnan(found.half_width[0]) and np.isnan(found.half_width[1:]).all() == (len(sources) == 1)
    assert not np.any(estimator.predict("x", "a").no_source)


@pytest.mark.parametrize(("kinds", "ahead"), [(1, False), (2, True)])
def test_control_cells_that_prediction_and_truth_share_do_not_put_a_prediction_ahead(kinds: int, ahead: bool) -> None:
    """If all contexts respond alike, no prediction is ahead of their mean; if two kinds respond differently, it is."""
    verdicts = []
    for seed in range(6):
        rng, groups = np.random.default_rng(seed), []
        levels, factors = rng.lognormal(0, 1, (kinds, N_GENES)), np.exp(rng.normal(0, 0.5, (kinds, N_GENES)))
        for i in range(7):
            own = levels[i % kinds] * rng.lognormal(0, 0.2, N_GENES)
            groups += [(i, "control", draw(rng, own, 40)), (i, "x", draw(rng, own * factors[i % kinds], 40))]
        context, treatment = (np.repeat([group[k] for group in groups[:-1]], 40) for k in (0, 1))
        estimator = ResponseEstimator.fit(np.vstack([x for *_, x in groups[:-1]]), context, None, treatment)
        verdicts.append(estimator.predict("x", 6).is_ahead)
    assert (np.mean(verdicts) > 0.8) == ahead and (np.mean(verdicts) < 0.2) != ahead


def test_a_context_responds_as_the_ones_that_it_is_like() -> None:
    """Two kinds of contexts, in which the drug does the opposite."""
    rng = np.random.default_rng(1)
    kinds, factors = rng.lognormal(0, 0.7, (2, N_GENES)), np.ones((2, N_GENES))
    factors[0, :10], factors[1, :10] = 2.0, 0.5
    names = "abcdefgh"
    levels = {name: kinds[i % 2] * rng.lognormal(0, 0.05, N_GENES) for i, name in enumerate(names)}
    groups, truth = [], {}
    for i, name in enumerate(names):
        groups += [
            (name, "control", draw(rng, levels[name], 100)),
            (name, "x", draw(rng, levels[name] * factors[i % 2], 100)),
        ]
        truth[name] = log_mean(groups[-1][2]) - log_mean(groups[-2][2])
    kept = [group for group in groups if group[:2] != ("h", "x")]
    context, treatment = (np.repeat([group[i] for group in kept], 100) for i in (0, 1))
    estimator = ResponseEstimator.fit(np.vstack([each for *_, each in kept]), context, None, treatment)
    found = estimator.predict("x", "h")
    assert ((found.change - truth["h"]) ** 2).sum() < 0.1 * ((found.change - truth["g"]) ** 2).sum()
    assert found.gain > 0.8 and len(found.pearson) == 7 and found.pearson.min() > 0.8


def test_many_cells_measure_their_own_response_and_few_borrow_from_others() -> None:
    rng = np.random.default_rng(2)
    screen = Screen({"x": rng.lognormal(0, 0.3, N_GENES)}, base(rng, "abcdef", 0.05))
    truth = screen.change("a", "x")
    many = fitted(screen, measured_in("abcdef"), n_cells=800).predict("x", "a")
    alone = fitted(screen, measured_in("a"), n_cells=800).predict("x", "a")
    assert alone.weights[OWN] > 0.95 and max(np.abs(each.change - truth).max() for each in (many, alone)) < 0.06
    risks, weights = [], []
    for seed in range(8):
        groups = [(name, -1, arm, 20) for name, arm in measured_in("abcdef")]
        counts, obs = screen.cells(np.random.default_rng(seed), groups)
        found = ResponseEstimator.fit(counts, obs["type"], None, obs["drug"]).predict("x", "a")
        arms = (counts[((obs["type"] == "a") & (obs["drug"] == arm)).to_numpy()] for arm in ("x", "control"))
        after, before = map(log_mean, arms)
        risks.append([((change - truth) ** 2).sum() for change in (after - before, found.change)])
        weights.append(found.weights[OWN])
        assert sum(found.weights.values()) == pytest.approx(1)
    of_raw, of_shrunk = np.mean(risks, axis=0)
    assert of_shrunk < 0.5 * of_raw and max(weights) < 0.7


def test_no_response_is_made_of_chance() -> None:
    rng = np.random.default_rng(3)
    screen = Screen({"x": np.ones(N_GENES)}, base(rng, "abcdt"))
    counts, obs = screen.cells(rng, [(name, -1, arm, 30) for name, arm in measured_in("abcd", "t")])
    estimator = ResponseEstimator.fit(counts, obs["type"], None, obs["drug"].replace("control", "+"), control="+")
    raw = log_mean(counts[(obs["drug"] == "x").to_numpy()]) - log_mean(counts[(obs["drug"] == "control").to_numpy()])
    assert (estimator.predict("x", "t").change ** 2).sum() < 0.5 * (raw**2).sum()


def test_responses_that_cannot_be_told_from_noise_are_marked() -> None:
    """Few sparse treated cells change no gene significantly by chance; a planted change is found, also elsewhere."""
    rates = np.random.default_rng(0).lognormal(-3, 1.5, 300)

    def is_noise(seed: int, n_treated: int, factor: float, target: str) -> bool:
        rng, contexts = np.random.default_rng(seed), np.repeat(["a", "b"], 400 + n_treated)
        treatment = np.tile(np.repeat(["control", "drug"], [400, n_treated]), 2)
        is_changed = ((treatment == "drug") & (contexts == "a"))[:, None] & (np.arange(300) == np.argmax(rates))
        counts = rng.poisson(rates * np.where(is_changed, factor, 1.0))
        keep = (treatment == "control") | (contexts == "a") | (target == "a")
        fitted = ResponseEstimator.fit(counts[keep], contexts[keep], None, treatment[keep])
        return fitted.predict("drug", target).is_noise

    for n_treated in (20, 100):
        assert np.mean([is_noise(seed, n_treated, 1.0, "a") for seed in range(5)]) >= 0.8
        assert np.mean([is_noise(seed, n_treated, 1.0, "b") for seed in range(5)]) >= 0.8
    assert not any(is_noise(seed, 100, 3.0, target) for seed in range(3) for target in "ab")


@pytest.mark.parametrize("n_treated", [20, 25, 100])
def test_intervals_of_few_treated_cells_are_valid_for_sparse_and_dense_genes(n_treated: int) -> None:
    """Nothing is discovered among untreated cells; changes of planted responses are covered in a replicate."""
    rates = np.repeat([0.01, 0.05, 0.3, 3.0], 150)
    planted = np.arange(600) % 30 == 0
    beyond, excluded, covered = [], [], []
    for seed in range(2):
        rng, labels = np.random.default_rng(seed), np.repeat(["control", "drug"], [400, n_treated])

        def measured(factor: float, rng: np.random.Generator = rng, labels: np.ndarray = labels) -> tuple:
            changes = np.where(planted & (labels == "drug")[:, None], factor, 1.0)
            counts = rng.poisson(rates * changes * rng.gamma(4, 1 / 4, (len(labels), 600)))
            estimator = ResponseEstimator.fit(counts, treatment=labels)
            return estimator.predict("drug"), estimator.predictor.comparisons.measured(np.array([0]), {0: 1.0})

        found, raw = measured(1.0)
        beyond.append(np.abs(raw.change[0]) > 1.28 * np.sqrt(raw.variance[0] * raw.comparisons[0].inflation))
        excluded.append(np.abs(found.change) > found.half_width)
        (found, _), (_, again) = measured(3.0), measured(3.0)
        covered.append(np.abs(again.change[0] - found.change) <= found.half_width)
    by_rate = [np.mean(x, axis=0).reshape(4, 150).mean(1) for x in (beyond, excluded, covered)]
    assert by_rate[0].max() < 0.25 and by_rate[0][3] > 0.08
    assert by_rate[1].max() < 0.05
    assert by_rate[2].min() > 0.7 and np.mean(covered, axis=0)[planted & (rates == 3.0)].mean() > 0.7


@pytest.mark.parametrize("n_contexts", [4, 8])
def test_intervals_hold_four_fifths_of_the_changes_that_are_measured(n_contexts: int) -> None:
    """Contexts deviate from a shared response at random, by as much as it is large."""
    inside = []
    for seed in range(8):
        rng = np.random.default_rng(seed)
        shared, names = rng.normal(0, 0.3, N_GENES), "abcdefghi"[: n_contexts + 1]
        counts, labels = [], []
        for name, levels in base(rng, names, 0.1).items():
            own = levels * np.exp(shared + rng.normal(0, 0.3, N_GENES))
            for arm, shares in (("control", levels), ("x", own)):
                counts.append(draw(rng, shares, 80))
                labels.append((name, arm))
        real = log_mean(counts[-1]) - log_mean(counts[-2])
        context, treatment = (np.repeat([label[i] for label in labels[:-1]], 80) for i in (0, 1))
        found = ResponseEstimator.fit(np.vstack(counts[:-1]), context, None, treatment).predict("x", names[-1])
        inside.append(np.abs(real - found.change) <= found.half_width)
    assert 0.7 < np.mean(inside) < 0.9


def test_intervals_of_a_measured_response_hold_that_of_as_many_other_cells() -> None:
    rng, inside = np.random.default_rng(4), []
    screen = Screen({"x": rng.lognormal(0, 0.3, N_GENES)}, base(rng, "a"))
    for seed in range(12):
        counts, obs = screen.cells(np.random.default_rng(seed), [("a", -1, arm, 80) for arm in ("control", "x") * 2])
        half = np.arange(len(obs)) % 2 == 0
        found = ResponseEstimator.fit(counts[half], None, None, obs["drug"][half]).predict("x")
        after, before = (log_mean(counts[(~half) & (obs["drug"] == arm).to_numpy()]) for arm in ("x", "control"))
        inside.append(np.abs(after - before - found.change) <= found.half_width)
    assert 0.7 < np.mean(inside) < 0.9


DOSES = (1.0, 10.0, 100.0)


@pytest.fixture(scope="module")
def dosed() -> tuple[ResponseEstimator, np.ndarray, dict[float, np.ndarray]]:
    """Contexts a and b at three doses of a drug that is linear in log dose, c untreated; the slope, changes of a."""
    rng, counts, labels = np.random.default_rng(5), [], []
    slope, levels = rng.normal(0, 0.15, N_GENES), rng.lognormal(0, 0.3, N_GENES)
    for name in "abc":
        for dose in (0.0, *DOSES) if name != "c" else (0.0,):
            counts.append(draw(rng, levels * np.exp(slope * np.log1p(dose)), 400))
            labels += [(name, "x" if dose else "control", dose)] * 400
    context, treatment, dose = zip(*labels, strict=True)
    changes = {dose: log_mean(each) - log_mean(counts[0]) for dose, each in zip(DOSES, counts[1:4], strict=True)}
    estimator = ResponseEstimator.fit(np.vstack(counts), context, None, treatment, dose)
    return estimator, slope, changes


@pytest.mark.parametrize("context", [*"abc"])
def test_responses_are_interpolated_between_doses(dosed: tuple, context: str) -> None:
    estimator, _, changes = dosed
    for dose, change in changes.items():
        assert np.abs(estimator.predict("x", context, dose).change - change).max() < 0.15
    scale = np.log1p(np.array([0, *DOSES]))
    for dose in (0.5, 3.0, 30.0, 100.0, 1e4):
        rows = np.stack([np.zeros(N_GENES), *changes.values()])
        expected = np.array([np.interp(np.log1p(dose), scale, gene) for gene in rows.T])
        found = estimator.predict("x", context, dose)
        assert np.abs(found.change - expected).max() < 0.15 and found.source in ("own", "transferred"), dose
    beyond = [estimator.predict("x", context, dose).change for dose in (101.0, 1e6)]
    np.testing.assert_allclose(*beyond)
    cautions = [estimator.predict("x", context, dose).cautions for dose in (99.0, 100.0, 1e4)]
    assert ["beyond the largest measured dose, 100" in " ".join(each) for each in cautions] == [False, False, True]


def test_a_combination_is_the_sum_of_its_parts_unless_it_was_measured() -> None:
    rng = np.random.default_rng(6)
    up, down = np.ones((2, N_GENES))
    up[:10], down[5:15] = 1.8, 0.6
    screen = Screen({"x": up, "y": down, "x+y": np.ones(N_GENES)}, base(rng, "a"))
    parts = fitted(screen, [("a", "control"), ("a", "x"), ("a", "y")], n_cells=500)
    found = parts.predict("x+y", "a")
    singles = [parts.predict(name, "a").change for name in ("x", "y")]
    assert found.source == "parts"
    np.testing.assert_allclose(found.change, parts.predict("y + x", "a").change)
    for gene, expected in ((slice(0, 5), singles[0]), (slice(10, 15), singles[1]), (slice(5, 10), sum(singles))):
        assert found.change[gene].mean() == pytest.approx(expected[gene].mean(), abs=0.2)
    whole = fitted(screen, [("a", arm) for arm in ("control", "x", "y", "x+y")], n_cells=500).predict("x+y", "a")
    assert whole.source == "own" and np.abs(whole.change).max() < 0.1
    assert parts.predict("x", "a").source == "own"


@pytest.mark.parametrize("informative", [True, False])
def test_a_perturbation_never_measured_responds_as_its_features_say(informative: bool) -> None:
    rng = np.random.default_rng(7)
    names = [f"g{i:02d}" for i in range(25)]
    features = dict(zip(names, rng.normal(size=(25, 3)), strict=True))
    effects = np.stack([*features.values()]) @ rng.normal(0, 0.25, (3, N_GENES))
    if not informative:
        effects = rng.normal(0, 0.4, effects.shape)
    screen = Screen({name: np.exp(0.2 + each) for name, each in zip(names, effects, strict=True)}, base(rng, "a"))
    counts, obs = screen.cells(rng, [("a", -1, arm, 100) for arm in ("control", *names[:-1])])
    estimator = ResponseEstimator.fit(counts, treatment=obs["drug"], features=features)
    found, truth = estimator.predict(names[-1]), screen.change("a", names[-1])
    mean = np.mean([estimator.predict(name).change for name in names[:-1]], axis=0)
    error, of_mean = (((change - truth) ** 2).sum() for change in (found.change, mean))
    assert found.source == "features" and error < (0.2 if informative else 1.2) * of_mean
    assert (found.gain > 0.5) == informative
    without = ResponseEstimator.fit(counts, treatment=obs["drug"])
    with pytest.raises(ValueError, match=f"`treatment` has '{names[-1]}': choose from"):
        without.predict(names[-1])


def test_responses_of_cells_have_the_change_that_is_predicted() -> None:
    rng = np.random.default_rng(8)
    factors = np.where(np.arange(N_GENES) < 10, 2.0, np.where(np.arange(N_GENES) < 20, 0.4, 1.0))
    estimator = fitted(Screen({"x": factors}, base(rng, "abcd")), measured_in("abc", "d"))
    for context in range(4):
        cell_context = np.array([context, Code.MISSING])
        response = estimator.predictor.respond(cell_context, {}, {0: 1.0})
        predicted = estimator.predict("x", estimator.contexts[context])
        np.testing.assert_allclose(response.prediction.change, predicted.change)
        np.testing.assert_allclose(response.mean_change, predicted.change, atol=0.05)
        assert (response.before >= 0).all() and (response.after >= 0).all()
        back = estimator.predictor.respond(cell_context, {0: 1.0}, {})
        np.testing.assert_allclose(back.mean_change, -response.mean_change)
        np.testing.assert_allclose(back.before, response.after)
        none, half = (estimator.predictor.respond(cell_context, {}, {0: 1.0}, scale) for scale in (0.0, 0.5))
        np.testing.assert_allclose(none.mean_change, 0, atol=1e-9)
        np.testing.assert_allclose(half.mean_change, predicted.change / 2, atol=0.05)
        assert estimator.predictor.respond(cell_context, {0: 1.0}, {0: 1.0}).mean_change == pytest.approx(0, abs=1e-9)
        assert estimator.predictor.has_measured(cell_context, {0: 1.0}) == (context < 3)
        assert estimator.predictor.has_measured(cell_context, {}) and not estimator.predictor.has_measured(
            cell_context, {0: 3.0}
        )


def test_applied_counts_change_as_predicted() -> None:
    screen = drug_screen(4)
    estimator = fitted(screen, measured_in("abc", "d"))
    counts = screen.cells(np.random.default_rng(10), [("d", -1, "control", 400)])[0]
    applied, again, other = (estimator.apply(counts, "x", "d", seed=seed).toarray() for seed in (0, 0, 1))
    change = estimator.predict("x", "d").change
    np.testing.assert_allclose(log_mean(applied) - log_mean(counts), change, atol=0.1)
    assert (applied == again).all() and (applied != other).any()


def test_transferred_response_is_independent_of_the_depth_of_treated_cells() -> None:
    """Half the molecules in treated cells of all contexts lower means; other contexts do not get that as a response."""
    rng, counts, labels = np.random.default_rng(9), [], []
    for name, levels in base(rng, "abcd").items():
        for arm, library in (("control", 400), ("x", 200)):
            if (name, arm) != ("d", "x"):
                counts.append(draw(rng, levels * np.where(np.arange(N_GENES) < 5, [1, 2][arm == "x"], 1), 300, library))
                labels += [(name, arm)] * 300
    context, treatment = zip(*labels, strict=True)
    found = ResponseEstimator.fit(np.vstack(counts), context, None, treatment).predict("x", "d")
    raw = log_mean(counts[1]) - log_mean(counts[0])
    assert found.change[:5].min() > 0.2 and np.abs(raw[5:]).mean() > 0.2
    assert np.abs(found.change[5:]).mean() < 0.5 * np.abs(raw[5:]).mean()


def test_nothing_is_predicted_where_too_few_cells_were_measured() -> None:
    screen = drug_screen(2)
    counts, obs = screen.cells(np.random.default_rng(0), [("a", -1, "control", 50), ("a", -1, "x", 19)])
    few = ResponseEstimator.fit(counts, obs["type"], None, obs["drug"])
    with pytest.raises(ValueError, match="`treatment` 'x': no cells predict its response in context 'a'"):
        few.apply(counts, "x", "a")
    assert few.predict("x", "a") is None and few.predictor.respond(np.array([0, -1]), {}, {0: 1.0}) is None
    untreated = few.predictor.respond(np.array([0, -1]), {}, {})
    np.testing.assert_array_equal(untreated.mean_change, 0)
    assert untreated.prediction.weights == {NO_CHANGE: 1.0}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"treatment": ["x"] * 39}, r"`treatment` has shape \(39,\): pass a value for each cell, \(40,\)"),
        ({"context": [["a"]] * 40}, r"`context` has shape \(40, 1\)"),
        ({"dose": 1.0}, r"`dose` has shape \(\)"),
        ({"treatment": ["x"] * 40}, "`treatment` has no cell 'control': pass the label of untreated cells"),
        ({"treatment": ["x"] * 40, "control": "DMSO"}, "`treatment` has no cell 'DMSO'"),
    ],
)
def test_cells_that_cannot_be_fitted_are_refused(options: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        ResponseEstimator.fit(np.ones((40, 3)), **options)


def test_labels_that_are_not_known_are_refused() -> None:
    estimator = fitted(drug_screen(2), measured_in("ab"))
    for treatment in ("z", "x+z"):
        with pytest.raises(ValueError, match=r"`treatment` has 'z': choose from \['x'\]"):
            estimator.predict(treatment, "a")
    untreated = ResponseEstimator.fit(np.ones((40, 3)))
    assert repr(untreated) == "ResponseEstimator(names=[], contexts=[0.0])"
    with pytest.raises(
        ValueError, match="`treatment` has 'x': choose from none, because all fitted cells are controls"
    ):
        untreated.predict("x")
    assert not estimator.predict("control", "a").change.any()
    with_control, alone = (estimator.predict(name, "a").change for name in ("x+control", "x"))
    np.testing.assert_array_equal(with_control, alone)
    for context in ("q", None):
        with pytest.raises(ValueError, match=rf"`context` is {context!r}: choose from \['a', 'b'\]"):
            estimator.predict("x", context)
