"""Transferred responses: as measured where cells are many, as those of like contexts, doses and parts where not."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scdiffgen.conditions import Code
from scdiffgen.metrics.baselines import dose_shift
from scdiffgen.responses import Pseudobulks, ResponseTransfer, TreatedGroups
from scdiffgen.responses._library_sizes import N_SIZES
from scdiffgen.responses._response_curves import STEPS

NONE, TREATED, OTHER = -2, 5, 6
N_GENES = 40


def levels(rng: np.random.Generator) -> np.ndarray:
    """Mean log expression of some context."""
    return rng.uniform(1, 3, N_GENES)


def transfer(
    codes: np.ndarray,
    log_mean: np.ndarray,
    doses: np.ndarray | None = None,
    n_slots: int = 1,
    variance: float = 1e-9,
    expected: np.ndarray | None = None,
    log_library: np.ndarray | None = None,
    **others,
) -> ResponseTransfer:
    """Groups of 50 cells, on whose curves a step is a change of mean log expression of its size."""
    identity, interventions = np.split(np.asarray(codes), [-n_slots], axis=1)
    doses = (interventions >= 0).astype(float) if doses is None else doses
    untreated = (interventions < 0).all(1)
    counts = np.expm1(log_mean)
    curves = log_mean[untreated][:, None] + STEPS[:, None]
    noise = np.full(log_mean.shape, variance)
    of_model = counts if expected is None else expected
    n_cells = np.full(len(codes), 50)
    arrays = (identity, interventions, doses, n_cells, counts, of_model, log_mean, noise, curves)
    of_states = np.zeros((len(codes), 0, N_GENES)), np.zeros((N_GENES, 0))
    sizes = np.zeros((len(codes), 2)) if log_library is None else np.column_stack([log_library, noise[:, 0]])
    saturation = np.full_like(curves, 0 if log_library is None else 0.01)
    bulks = Pseudobulks(*arrays, np.zeros(len(codes)), *of_states, sizes, saturation)
    return ResponseTransfer(bulks, **others)


def change(model: ResponseTransfer, identity: list[int], treatment: dict[int, float]) -> np.ndarray:
    found = model.predicted(np.array(identity), treatment)
    assert found is not None and found.change.shape == (N_GENES + N_SIZES,)
    assert sum(found.weights.values()) == pytest.approx(1) and min(found.weights.values()) >= 0
    return found.change[:N_GENES]


def of(*parts: int) -> dict[int, float]:
    """A treatment without doses."""
    return dict.fromkeys(parts, 1.0)


def test_a_response_that_was_measured_in_a_context_is_its_own() -> None:
    rng = np.random.default_rng(0)
    log_mean = np.stack([levels(rng) for _ in range(4)])
    model = transfer([[0, NONE], [0, TREATED], [1, NONE], [1, TREATED]], log_mean)
    np.testing.assert_allclose(change(model, [0], of(TREATED)), log_mean[1] - log_mean[0], rtol=1e-5)
    assert model.predicted(np.array([0]), of(TREATED)).weights["own cells"] > 0.999


@given(seed=st.integers(0, 2**32 - 1), n_contexts=st.integers(1, 6))
@settings(max_examples=25, deadline=None)
def test_a_response_that_all_contexts_share_is_found(seed: int, n_contexts: int) -> None:
    rng = np.random.default_rng(seed)
    shared, codes, log_mean = rng.normal(0, 0.3, N_GENES), [], []
    for context in range(n_contexts + 1):
        codes += [[context, NONE], [context, TREATED]]
        log_mean += [before := 3 + 0.01 * rng.normal(size=N_GENES), before + shared]
    model = transfer(np.array(codes[:-1]), np.stack(log_mean[:-1]))
    np.testing.assert_allclose(change(model, [n_contexts], of(TREATED)), shared, atol=0.03)


def test_a_context_responds_as_the_ones_that_it_is_like() -> None:
    rng = np.random.default_rng(1)
    kinds, shifts = [levels(rng) for _ in range(2)], rng.normal(0, 0.5, (2, N_GENES))
    codes, log_mean = [], []
    for i in range(7):
        codes += [[i, NONE], [i, TREATED]]
        log_mean += [before := kinds[i % 2] + 0.02 * rng.normal(size=N_GENES), before + shifts[i % 2]]
    model = transfer(np.array(codes[:-1]), np.stack(log_mean[:-1]))
    found = change(model, [6], of(TREATED))
    away = [np.abs(found - shift).sum() for shift in shifts]
    assert away[0] < 0.1 * away[1]
    weights = model.predicted(np.array([6]), of(TREATED)).weights
    assert weights["no change"] + weights["mean of contexts"] + weights["mean of contexts, roots"] < 0.1


def test_genes_fall_in_the_same_ratio_whatever_their_level() -> None:
    """All contexts lose half of the mean log expression of some genes, which they express unequally."""
    rng, codes, log_mean = np.random.default_rng(13), [], []
    for context in range(5):
        codes += [[context, NONE], [context, TREATED]]
        log_mean += [before := levels(rng), before * np.where(np.arange(N_GENES) < 10, 0.5, 1.0)]
    model = transfer(np.array(codes[:-1]), np.stack(log_mean[:-1]))
    found = change(model, [4], of(TREATED))
    np.testing.assert_allclose(found[:10], -0.5 * log_mean[-2][:10], rtol=1e-6)
    np.testing.assert_allclose(found[10:], 0, atol=1e-12)


def test_a_response_that_no_context_shares_is_drawn_towards_none() -> None:
    rng = np.random.default_rng(2)
    codes = np.array([[i, state] for i in range(9) for state in (NONE, TREATED)])[:-1]
    before = np.repeat(3 + 0.1 * rng.normal(size=(9, N_GENES)), 2, axis=0)[:-1]
    model = transfer(codes, before + (codes[:, 1:] == TREATED) * rng.normal(0, 0.5, before.shape))
    weights = model.predicted(np.array([8]), of(TREATED)).weights
    assert weights["no change"] == max(weights.values()) > 0.5


def test_back_to_untreated_and_forth_is_no_change() -> None:
    rng = np.random.default_rng(2)
    codes = np.array([[i, state] for i in range(4) for state in (NONE, TREATED, OTHER)])[:-1]
    model = transfer(codes, np.stack([levels(rng) for _ in codes]))
    there, back = (model.response([3], own, asked) for own, asked in (({}, of(OTHER)), (of(OTHER), {})))
    np.testing.assert_allclose(there.change, -back.change)
    between = model.response([3], of(TREATED), of(OTHER)).change
    np.testing.assert_allclose(between, there.change - model.response([3], {}, of(TREATED)).change)


def test_molecules_are_moved_until_the_mean_log_expression_is_as_predicted() -> None:
    """But for an error in proportion to the fourth roots of shares, by which these sum to 1; steps of these curves are
    changes of mean log expression: of fourth roots as they rise, of their logarithm as they fall."""
    rng = np.random.default_rng(3)
    before, shift = levels(rng), rng.uniform(-0.3, 0.1, N_GENES)
    found = transfer([[0, NONE], [0, TREATED]], np.stack([before, before + shift])).response([0], {}, of(TREATED))
    steps = np.where(found.change < 0, found.change / found.before, found.change)
    error = (shift - steps) / found.before
    np.testing.assert_allclose(error, error[0], rtol=1e-3)
    np.testing.assert_allclose(((found.before + found.change) ** 4).sum(), 1, rtol=1e-5)


@pytest.mark.parametrize("agree", [True, False])
def test_library_sizes_respond_as_far_as_contexts_agree(agree: bool) -> None:
    rng = np.random.default_rng(14)
    codes = np.array([[i, state] for i in range(7) for state in (NONE, TREATED)])[:-1]
    before, treated = np.repeat(3 + 0.1 * rng.normal(size=(7, N_GENES)), 2, axis=0)[:-1], codes[:, 1] == TREATED
    grows = 0.3 if agree else np.where(codes[:, 0] % 2, 0.3, -0.3)
    model = transfer(codes, before, log_library=7 + treated * grows)
    measured = model.response([2], {}, of(TREATED)).library_change
    found, back = (model.response([6], *each).library_change for each in (({}, of(TREATED)), (of(TREATED), {})))
    assert back == pytest.approx(-found)
    assert measured == pytest.approx(0.3 if agree else -0.3, abs=0.15)  # sizes give way to genes
    assert found == pytest.approx(0.3 if agree else 0.0, abs=0.1)


def test_a_combination_is_transferred_whole_and_else_the_sum_of_its_parts() -> None:
    rng = np.random.default_rng(3)
    codes = np.array([[0, NONE, NONE], [0, TREATED, NONE], [0, OTHER, NONE], [0, OTHER, TREATED], [1, NONE, NONE]])
    log_mean = np.stack([levels(rng) for _ in codes])
    whole = transfer(codes, log_mean, n_slots=2)
    np.testing.assert_allclose(change(whole, [0], of(OTHER, TREATED)), log_mean[3] - log_mean[0], rtol=1e-4)
    np.testing.assert_array_equal(change(whole, [1], of(TREATED, OTHER)), change(whole, [1], of(OTHER, TREATED)))
    parts = transfer(codes[:3], log_mean[:3], n_slots=2)
    found = parts.predicted(np.array([0]), of(OTHER, TREATED))
    singles = log_mean[1:3] - log_mean[0]
    around_mean = singles.sum(0) - singles.mean(0)  # one of three ways to add, of which nothing tells which is right
    np.testing.assert_allclose(found.change[:N_GENES], (2 * singles.sum(0) + around_mean) / 3, rtol=1e-4)
    assert set(found.weights.values()) == {0.0, 1 / 3}
    assert found.source == "parts" and whole.predicted(np.array([0]), of(TREATED, 9)) is None


def test_combinations_that_were_measured_tell_how_parts_add_up() -> None:
    """Parts of ten pairs add up to half of their sum."""
    rng = np.random.default_rng(4)
    singles = rng.normal(0, 0.5, (6, N_GENES))
    singles -= singles.mean(0)
    pairs = [(i, j) for i in range(6) for j in range(i)]
    codes = np.array([[0, NONE, NONE], *([0, i, NONE] for i in range(6)), *([0, i, j] for i, j in pairs)])
    log_mean = 3 + np.stack([np.zeros(N_GENES), *singles, *(0.5 * (singles[i] + singles[j]) for i, j in pairs)])
    model = transfer(codes[:-1], log_mean[:-1], n_slots=2)
    np.testing.assert_allclose(change(model, [0], of(*pairs[-1])), log_mean[-1] - 3, atol=0.1)


def test_groups_do_not_depend_on_the_order_of_interventions() -> None:
    codes = np.array([[0, 5, 6], [0, 6, 5], [0, 6, 5], [0, -2, 5], [0, 5, -2]])
    doses = np.array([[1.0, 2.0], [2.0, 1.0], [1.0, 2.0], [0.0, 3.0], [3.0, 0.0]])
    groups, of_cells = TreatedGroups(codes[:, :1], codes[:, 1:], doses).distinct()
    assert len(groups.identity) == 3 and of_cells[0] == of_cells[1] != of_cells[2] and of_cells[3] == of_cells[4]
    assert groups.identity[of_cells[2]].tolist() == [0]
    assert groups.treatment(of_cells[2]) == {6: 1.0, 5: 2.0}
    assert groups.interventions[of_cells[2]].tolist() == [6, 5] and groups.doses[of_cells[2]].tolist() == [1.0, 2.0]


@given(seed=st.integers(0, 2**32 - 1), n_rows=st.integers(0, 40), n_columns=st.integers(0, 3))
@settings(max_examples=50, deadline=None)
def test_groups_of_few_cells_are_pooled_with_the_same_treatment(seed: int, n_rows: int, n_columns: int) -> None:
    rng = np.random.default_rng(seed)
    identity, doses = rng.integers(0, 3, (n_rows, n_columns)), rng.integers(1, 3, (n_rows, 1)).astype(float)
    interventions, n_cells = rng.choice([NONE, TREATED], (n_rows, 1)), rng.choice([1, 5, 19, 20, 50], n_rows)
    doses[interventions == NONE] = 0
    groups, pool_of = TreatedGroups(identity, interventions, doses).pooled(n_cells, least=20)
    inside = pool_of >= 0
    assert np.array_equal(np.unique(pool_of[inside]), np.arange(len(groups.identity)))
    assert (np.bincount(pool_of[inside], n_cells[inside]) >= 20).all() and inside[n_cells >= 20].all()
    for array, pooled in ((interventions, groups.interventions), (doses, groups.doses)):
        np.testing.assert_array_equal(pooled[pool_of[inside]], array[inside])
    of_pool = groups.identity[pool_of[inside]]
    assert ((of_pool == identity[inside]) | (of_pool == Code.MISSING)).all()
    for treatment in {(*row,) for row in np.hstack([interventions, doses])}:  # what is left could not be pooled
        assert n_cells[~inside & (np.hstack([interventions, doses]) == treatment).all(1)].sum() < 20


def test_identities_are_pooled_from_the_last_condition_on() -> None:
    codes = np.array([[0, 0, NONE], [0, 1, NONE], [1, 0, NONE], [1, 1, NONE], [2, 1, NONE], [2, 1, TREATED]])
    n_cells = np.array([10, 10, 30, 5, 15, 19])
    groups, pool_of = TreatedGroups(codes[:, :2], codes[:, 2:], np.zeros((6, 1))).pooled(n_cells, least=20)
    assert groups.identity[pool_of[:5]].tolist() == [[0, -1], [0, -1], [1, 0], [-1, -1], [-1, -1]]
    assert pool_of[0] == pool_of[1] and pool_of[3] == pool_of[4] and pool_of[5] == -1


def test_pooled_cells_are_no_context_to_learn_from() -> None:
    rng = np.random.default_rng(4)
    codes = [[0, NONE], [0, TREATED], [1, NONE]]
    log_mean = [levels(rng) for _ in codes]
    alone = transfer(codes, np.stack(log_mean))
    pooled = transfer(
        [*codes, [Code.MISSING, NONE], [Code.MISSING, TREATED]], np.stack([*log_mean, levels(rng), levels(rng)])
    )
    np.testing.assert_array_equal(*(change(model, [1], of(TREATED)) for model in (alone, pooled)))


def test_chance_makes_hardly_a_response() -> None:
    """Means of cells of one distribution, half of them called treated."""
    rng = np.random.default_rng(8)
    raw = rng.normal(0, 0.1, (2, N_GENES))
    model = transfer([[0, NONE], [0, TREATED]], 3 + raw, variance=50 * 0.01)
    assert (change(model, [0], of(TREATED)) ** 2).sum() < 0.4 * ((raw[1] - raw[0]) ** 2).sum()


@pytest.mark.parametrize("seed", range(5))
def test_what_other_contexts_show_by_chance_is_hardly_transferred(seed: int) -> None:
    """Two contexts in which nothing responds; a third one was never treated."""
    rng = np.random.default_rng(seed)
    codes = [[0, NONE], [0, TREATED], [1, NONE], [1, TREATED], [2, NONE]]
    raw = rng.normal(0, 0.1, (5, N_GENES))
    model = transfer(np.array(codes), levels(rng) + raw, variance=50 * 0.01)
    found = (change(model, [2], of(TREATED)) ** 2).sum()
    assert found < 0.15 * ((raw[1] - raw[0]) ** 2).sum()


def test_what_chance_blurs_is_drawn_towards_what_other_contexts_show() -> None:
    """Six contexts that respond alike but for chance: the mean of all is nearer to the truth than what one shows."""
    rng = np.random.default_rng(9)
    shared, codes = rng.normal(0, 0.3, N_GENES), np.array([[i, s] for i in range(6) for s in (NONE, TREATED)])
    log_mean = 3 + (codes[:, 1:] == TREATED) * shared + rng.normal(0, 0.2, (12, N_GENES))
    model = transfer(codes, log_mean, variance=50 * 0.04)
    errors = [((change(model, [i], of(TREATED)) - shared) ** 2).sum() for i in range(6)]
    raw = [((log_mean[2 * i + 1] - log_mean[2 * i] - shared) ** 2).sum() for i in range(6)]
    assert sum(errors) < 0.5 * sum(raw)


def test_the_network_is_asked_where_too_few_cells_were_measured() -> None:
    rng = np.random.default_rng(4)
    codes, log_mean = [[0, NONE], [0, TREATED], [1, NONE]], np.stack([levels(rng) for _ in range(3)])
    assert transfer(codes, log_mean).response([1], {}, of(TREATED)) is not None
    assert transfer(codes, log_mean, min_cells=51).response([1], {}, of(TREATED)) is None
    assert transfer(codes, log_mean).response([1], {}, of(OTHER)) is None


def test_responses_are_pooled_over_batches_and_compared_within_them() -> None:
    """Batches differ by far more than the response; one of them has three quarters of the treated cells."""
    rng = np.random.default_rng(5)
    batches, shift = 3 * rng.uniform(size=(2, N_GENES)), rng.normal(0, 0.2, N_GENES)
    rows = [(batch, state) for batch, state in ((0, NONE), (1, NONE), (0, TREATED), (0, TREATED), (0, TREATED))]
    codes = np.array([[0, batch, state] for batch, state in [*rows, (1, TREATED)]])
    log_mean = batches[codes[:, 1]] + (codes[:, 2:] == TREATED) * shift
    model = transfer(codes, log_mean, batches=(1,))
    for batch in (0, 1):
        np.testing.assert_allclose(change(model, [0, batch], of(TREATED)), shift, rtol=1e-4, atol=1e-6)


def test_what_the_network_expects_is_corrected_to_what_there_is() -> None:
    rng = np.random.default_rng(6)
    log_mean, expected = np.stack([levels(rng) for _ in range(2)]) + 8, rng.uniform(1e4, 1e5, (2, N_GENES))
    model = transfer([[0, NONE], [0, TREATED]], log_mean, expected=expected)
    correction = model.response([0], {}, of(TREATED)).log_correction
    np.testing.assert_allclose(expected[0] * np.exp(correction), np.expm1(log_mean[0]), rtol=1e-3)


DOSES = (0.1, 1.0, 10.0)


def dosed(log_mean: np.ndarray) -> ResponseTransfer:
    """A context that had an intervention at some doses, and one that did not."""
    codes = np.array([[0, NONE], [1, NONE], *([0, TREATED] for _ in DOSES)])
    return transfer(codes, log_mean, np.array([[0.0], [0.0], *([d] for d in DOSES)]))


def test_a_dose_that_was_measured_is_as_measured_and_others_lie_between() -> None:
    """Of a response that is linear in the logarithm of the dose, as the baseline of the field has it."""
    rng = np.random.default_rng(10)
    slope, before = rng.normal(0, 0.4, N_GENES), levels(rng)
    curve = dose_shift(1.0, [1.0], slope[None])[None] * np.log1p(np.array(DOSES) / DOSES[0])[:, None]
    model = dosed(np.stack([before, before, *(before + curve)]))
    for dose, real in zip(DOSES, curve, strict=True):
        np.testing.assert_allclose(change(model, [0], {TREATED: dose}), real, rtol=1e-4, atol=1e-6)
    for dose in (0.3, 3.0, 1e4):
        real = dose_shift(dose, DOSES, curve)
        found = change(model, [0], {TREATED: dose})
        assert np.linalg.norm(found - real) < 0.3 * np.linalg.norm(real)
        assert model.predicted(np.array([1]), {TREATED: dose}).source == "measured"
    assert model.response([1], {}, {TREATED: 1.0, OTHER: 1.0}) is None
    assert model.response([0], {}, {TREATED: np.inf}) is None


@pytest.mark.parametrize("informative", [True, False])
def test_a_perturbation_never_measured_is_like_others_as_far_as_features_tell(informative: bool) -> None:
    rng = np.random.default_rng(11)
    features = rng.normal(size=(30, 6))
    own = features @ rng.normal(size=(6, N_GENES)) if informative else rng.normal(size=(30, N_GENES))
    signal = 0.3 + 0.1 * own
    codes = np.array([[0, NONE], *([0, part] for part in range(29))])
    model = transfer(codes, 3 + np.vstack([np.zeros(N_GENES), signal[:29]]), features=features)
    found = model.predicted(np.array([0]), of(29))
    assert found.source == "features"
    error = ((found.change[:N_GENES] - signal[29]) ** 2).sum()
    of_mean = ((signal[:29].mean(0) - signal[29]) ** 2).sum()
    assert error < (0.1 if informative else 1.1) * of_mean
    assert (found.weights["ridge on features"] > 0.8) or not informative


def test_without_features_or_with_few_others_the_network_is_asked() -> None:
    rng = np.random.default_rng(12)
    codes, log_mean = [[0, NONE], [0, 0], [0, 1]], np.stack([levels(rng) for _ in range(3)])
    assert transfer(codes, log_mean).response([0], {}, of(2)) is None
    assert transfer(codes, log_mean, features=rng.normal(size=(4, 2))).response([0], {}, of(3)) is None


@pytest.mark.parametrize("known", [True, False])
def test_library_sizes_are_compared_only_with_known_ones(known: bool) -> None:
    """Untreated cells of a reference that was saved before library sizes were kept, treated ones of a query."""
    log_mean = np.stack([levels(np.random.default_rng(15))] * 2)
    reference, query = (
        transfer([row], log_mean[:1], log_library=np.full(1, size)).bulks
        for row, size in (([0, NONE], 7.0), ([0, TREATED], 7.3))
    )
    if not known:
        plain = {
            name: array for name, array in reference.to_plain().items() if name not in ("log_library", "saturation")
        }
        reference = Pseudobulks.from_plain(plain)
    response = ResponseTransfer(query.concatenate(reference)).response([0], {}, of(TREATED))
    assert response.library_change == pytest.approx(0.3 if known else 0.0, abs=0.1)
