"""Transferred responses: exact where contexts agree, those of like contexts where they do not."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.dummy import DummyRegressor
from sklearn.linear_model import Ridge
from sklearn.model_selection import LeaveOneOut, cross_val_predict

from scdiffgen.conditions import Code
from scdiffgen.metrics.baselines import dose_shift
from scdiffgen.responses import Pseudobulks, ResponseTransfer, TreatedGroups
from scdiffgen.responses._feature_regression import PENALTIES

NONE, TREATED, OTHER = -2, 5, 6
SIZE = 1e9  # molecules of a group: so many that nothing is left to chance


def shares(rng: np.random.Generator, n_genes: int = 40) -> np.ndarray:
    return rng.dirichlet(np.full(n_genes, 5.0))


def measured(groups: dict[tuple[int, int], np.ndarray], expected: dict | None = None, **others) -> ResponseTransfer:
    """Groups of 50 cells: shares by identity and intervention."""
    counts = SIZE * np.stack(list(groups.values()))
    of_model = SIZE * np.stack([(expected or {}).get(key, share) for key, share in groups.items()])
    return responses(np.array(list(groups)), counts, of_model, **others)


def responses(
    codes: np.ndarray, counts: np.ndarray, expected: np.ndarray | None = None, n_slots: int = 1, **others
) -> ResponseTransfer:
    """Groups of 50 cells, no doses."""
    identity, interventions = np.split(codes, [-n_slots], axis=1)
    doses, n_cells = (interventions >= 0).astype(float), np.full(len(codes), 50)
    bulks = Pseudobulks(identity, interventions, doses, n_cells, counts, counts if expected is None else expected)
    return ResponseTransfer(bulks, **others)


def of(*parts: int) -> dict[int, float]:
    """A treatment without doses."""
    return dict.fromkeys(parts, 1.0)


def predicted(model: ResponseTransfer, untreated: np.ndarray, identity: int, asked: list[int]) -> np.ndarray:
    response = model.response([identity], source={}, target=of(*asked))
    assert response is not None
    changed = (untreated**0.25 + response.change) ** 4
    return changed / changed.sum()


def test_a_response_that_was_measured_in_a_context_is_its_own() -> None:
    rng = np.random.default_rng(0)
    before, after = shares(rng), shares(rng)
    groups = {(0, NONE): before, (0, TREATED): after, (1, NONE): shares(rng), (1, TREATED): shares(rng)}
    np.testing.assert_allclose(predicted(measured(groups), before, 0, [TREATED]), after, rtol=1e-2)


@given(seed=st.integers(0, 2**32 - 1), n_contexts=st.integers(1, 6))
@settings(max_examples=25, deadline=None)
def test_a_response_that_all_contexts_share_is_found(seed: int, n_contexts: int) -> None:
    rng = np.random.default_rng(seed)
    change = rng.uniform(-0.05, 0.05, 40)
    groups = {}
    for context in range(n_contexts + 1):
        before = 0.3 * shares(rng)
        after = (before**0.25 + change).clip(0.1) ** 4
        before = (after**0.25 - change).clip(0.01) ** 4
        for state, genes in ((NONE, before), (TREATED, after)):
            groups[context, state] = np.append(
                genes, 1 - genes.sum()
            )  # one gene has whatever makes the shares sum to 1
    del groups[n_contexts, TREATED]
    found = measured(groups).response([n_contexts], source={}, target=of(TREATED))
    assert found is not None
    np.testing.assert_allclose(found.change[:40], change, atol=1e-4)


def test_a_context_responds_as_the_one_that_it_is_like() -> None:
    rng = np.random.default_rng(1)
    kinds = [shares(rng) for _ in range(2)]
    after = [shares(rng) for _ in range(2)]
    groups = {(i, NONE): kinds[i % 2] * rng.lognormal(0, 0.02, 40) for i in range(7)}
    groups = {key: share / share.sum() for key, share in groups.items()}
    for i in range(6):
        groups[i, TREATED] = after[i % 2]
    found = predicted(measured(groups), groups[6, NONE], 6, [TREATED])  # of the first kind
    away = [np.abs(found - response).sum() for response in after]
    assert away[0] < 0.1 * away[1]


def test_back_to_untreated_and_forth_is_no_change() -> None:
    rng = np.random.default_rng(2)
    model = measured(
        {(i, state): shares(rng) for i in range(4) for state in (NONE, TREATED, OTHER) if (i, state) != (3, OTHER)}
    )
    there, back = (model.response([3], own, asked) for own, asked in (({}, of(OTHER)), (of(OTHER), {})))
    np.testing.assert_allclose(there.change, -back.change)
    between = model.response([3], of(TREATED), of(OTHER)).change
    np.testing.assert_allclose(between, there.change - model.response([3], {}, of(TREATED)).change)


def test_a_combination_is_transferred_whole_and_is_not_the_sum_of_its_parts() -> None:
    rng = np.random.default_rng(3)
    codes = np.array([[0, NONE, NONE], [0, TREATED, NONE], [0, OTHER, NONE], [0, OTHER, TREATED], [1, NONE, NONE]])
    counts = SIZE * np.stack([shares(rng) for _ in codes])
    model = responses(codes, counts, n_slots=2)
    both = model.response([1], {}, of(OTHER, TREATED))
    np.testing.assert_array_equal(both.change, model.response([1], {}, of(TREATED, OTHER)).change)
    np.testing.assert_allclose(predicted(model, counts[0] / SIZE, 0, [OTHER, TREATED]), counts[3] / SIZE, rtol=1e-2)
    assert model.response([0], {}, of(TREATED, 9)) is None


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
    groups = {(0, NONE): shares(rng), (0, TREATED): shares(rng), (1, NONE): shares(rng)}
    pooled = groups | {(Code.MISSING, NONE): groups[1, NONE], (Code.MISSING, TREATED): shares(rng)}
    changes = [measured(known).response([1], {}, of(TREATED)).change for known in (groups, pooled)]
    np.testing.assert_array_equal(*changes)


def test_chance_makes_hardly_a_response() -> None:
    """Cells of one distribution, half of them called treated: shrinking takes off most of what they differ by."""
    rng = np.random.default_rng(8)
    share, size = shares(rng, 500), 20_000
    counts = rng.multinomial(size, share, 2).astype(float)
    model = responses(np.array([[0, NONE], [0, TREATED]]), counts)
    change = model.response([0], {}, of(TREATED)).change
    raw = np.diff((counts / size + 1 / size) ** 0.25, axis=0)[0]
    assert (change**2).sum() < 0.4 * (raw**2).sum()


def test_the_network_is_asked_where_too_few_cells_were_measured() -> None:
    rng = np.random.default_rng(4)
    groups = {(0, NONE): shares(rng), (0, TREATED): shares(rng), (1, NONE): shares(rng)}
    assert measured(groups).response([1], {}, of(TREATED)) is not None
    assert measured(groups, min_cells=51).response([1], {}, of(TREATED)) is None
    assert measured(groups).response([1], {}, of(OTHER)) is None


def test_conditions_are_let_go_from_the_last_one() -> None:
    """Treated and untreated cells of another batch each: batches are let go, types are not."""
    rng = np.random.default_rng(5)
    before, after = shares(rng), shares(rng)
    codes = np.array([[0, 0, NONE], [0, 1, TREATED], [1, 0, NONE], [1, 1, TREATED]])
    counts = SIZE * np.stack([before, after, shares(rng), shares(rng)])
    model = responses(codes, counts)
    change = model.response([0, 0], {}, of(TREATED)).change
    np.testing.assert_allclose((before**0.25 + change) ** 4, after, rtol=1e-2)


def test_what_the_network_expects_is_corrected_to_what_there_is() -> None:
    rng = np.random.default_rng(6)
    real, expected = shares(rng), shares(rng)
    model = measured({(0, NONE): real, (0, TREATED): shares(rng)}, {(0, NONE): expected})
    correction = model.response([0], {}, of(TREATED)).log_correction
    np.testing.assert_allclose(expected * np.exp(correction), real, rtol=1e-4)


@pytest.mark.parametrize("n_molecules", [1e4, 1e5])
def test_unequal_numbers_of_cells_make_no_response(n_molecules: float) -> None:
    """Rare genes that the smaller group happens not to have are no response: pseudo-counts are shares."""
    rng = np.random.default_rng(7)
    share = np.append(shares(rng), np.full(200, 1e-6))
    share /= share.sum()
    counts = np.stack([rng.multinomial(int(100 * n_molecules), share), rng.multinomial(int(n_molecules), share)])
    model = responses(np.array([[0, NONE], [0, TREATED]]), counts)
    change = model.response([0], {}, of(TREATED)).change
    assert abs(change[40:].mean()) < 0.15 * n_molecules**-0.25


DOSES = (0.1, 1.0, 10.0)


def dosed(rng: np.random.Generator, levels: tuple[float, ...] = DOSES) -> ResponseTransfer:
    """Two contexts, of which the first had an intervention at some doses."""
    codes = np.array([[0, NONE], [1, NONE], *([0, TREATED] for _ in levels)])
    counts = SIZE * np.stack([shares(rng) for _ in codes])
    doses = np.array([[0.0], [0.0], *([d] for d in levels)])
    return ResponseTransfer(Pseudobulks(codes[:, :1], codes[:, 1:], doses, np.full(len(codes), 50), counts, counts))


def test_a_dose_that_was_measured_is_as_measured() -> None:
    model = dosed(np.random.default_rng(9))
    for row, dose in enumerate(DOSES, start=2):
        change = model.response([0], {}, {TREATED: dose}).change
        roots = (model.bulks.counts[[0, row]] / SIZE) ** 0.25
        np.testing.assert_allclose(change, roots[1] - roots[0], atol=1e-4)


def test_between_doses_a_response_is_as_the_baseline_of_the_field_has_it() -> None:
    """The shift of mean expression that is interpolated in log dose, here of fourth roots."""
    model = dosed(np.random.default_rng(10))
    known = np.stack([model.response([1], {}, {TREATED: dose}).change for dose in DOSES])
    for dose in (0.03, 0.5, 3.0, 10.0, 1e4):
        found = model.response([1], {}, {TREATED: dose})
        assert found.source == "measured"
        np.testing.assert_allclose(found.change, dose_shift(dose, DOSES, known), rtol=1e-3, atol=1e-6)
    assert model.response([1], {}, {TREATED: 1.0, OTHER: 1.0}) is None


@pytest.mark.parametrize("informative", [True, False])
def test_a_perturbation_never_measured_is_like_others_by_its_features(informative: bool) -> None:
    """Against scikit-learn's ridge regression, with the penalty that leaving one out chooses there."""
    rng = np.random.default_rng(11)
    features = rng.normal(size=(30, 6))
    signal = features @ rng.normal(size=(6, 40)) if informative else rng.normal(size=(30, 40))
    before = np.full(40, 1 / 40)
    after = (before**0.25 + 0.02 * (1.0 + signal)).clip(0.2) ** 4
    after /= after.sum(1, keepdims=True)
    codes = np.array([[0, NONE], *([0, part] for part in range(29))])
    model = responses(codes, SIZE * np.vstack([before, after[:29]]), features=features)
    found = model.response([0], {}, of(29))
    assert found.source == "features"

    changes = np.stack([model.response([0], {}, of(part)).change for part in range(29)])
    scale = features[:29].var(0).sum()
    fits = [Ridge(alpha=p * scale) if np.isfinite(p) else DummyRegressor() for p in PENALTIES]
    left_out = [cross_val_predict(fit, features[:29], changes, cv=LeaveOneOut()) for fit in fits]
    best = fits[int(np.argmin([((made - changes) ** 2).sum() for made in left_out]))]
    expected = best.fit(features[:29], changes).predict(features[29:])[0]
    np.testing.assert_allclose(found.change, expected, rtol=0.02, atol=1e-5)
    error = ((before**0.25 + found.change - after[29] ** 0.25) ** 2).sum()
    of_mean = ((before**0.25 + changes.mean(0) - after[29] ** 0.25) ** 2).sum()
    assert error < (0.1 if informative else 1.05) * of_mean


def test_without_features_or_with_few_others_the_network_is_asked() -> None:
    rng = np.random.default_rng(12)
    codes = np.array([[0, NONE], [0, 0], [0, 1]])
    counts = SIZE * np.stack([shares(rng) for _ in codes])
    assert responses(codes, counts).response([0], {}, of(2)) is None
    assert responses(codes, counts, features=rng.normal(size=(4, 2))).response([0], {}, of(3)) is None
