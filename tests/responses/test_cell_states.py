"""Responses that depend on the states of cells, on simulated mixtures whose truth is known."""

import numpy as np
import pytest
from scipy import sparse
from simulated_responses import N_GENES, draw, log_mean

from scdiffgen.conditions import Code
from scdiffgen.responses import ResponseEstimator

GAINED, LOST, LIBRARY, N_CELLS = range(0, 5), range(5, 10), 3000, 200
Mixtures = tuple[ResponseEstimator, np.ndarray, np.ndarray]
SUBTYPES = np.arange(2 * N_CELLS) % 2


def mixture(rng: np.random.Generator, levels: np.ndarray, *, treated: bool) -> np.ndarray:
    """Counts of alternating cells of two subtypes, of which the first alone responds."""
    counts = np.empty((2 * N_CELLS, N_GENES), dtype=int)
    for subtype in range(2):
        shares = levels[subtype].copy()
        if treated and subtype == 0:
            shares[GAINED] *= 4
            shares[LOST] /= 4
        counts[SUBTYPES == subtype] = draw(rng, shares, N_CELLS, LIBRARY)
    return counts


@pytest.fixture(scope="module", params=["elsewhere", "in the context as well"])
def mixtures(request: pytest.FixtureRequest) -> Mixtures:
    """An estimator, untreated cells of the last context, and how its subtypes really respond.

    The response is measured in three other contexts, or in all four.
    """
    rng, counts, labels = np.random.default_rng(0), [], []
    common = rng.lognormal(0, 0.5, (2, N_GENES))
    common[:, [*GAINED, *LOST]] = 1.0  # the same in both subtypes
    for name in "abcd":
        levels = common * rng.lognormal(0, 0.1, N_GENES)
        arms = {treated: mixture(rng, levels, treated=treated) for treated in (False, True)}
        for treated in (False, True):
            if name != "d" or not treated or request.param != "elsewhere":
                counts.append(arms[treated])
                labels += [(name, "x" if treated else "control")] * len(arms[treated])
    truth = np.stack([log_mean(arms[True][SUBTYPES == k]) - log_mean(arms[False][SUBTYPES == k]) for k in range(2)])
    context, treatment = zip(*labels, strict=True)
    estimator = ResponseEstimator.fit(np.vstack(counts), context, None, treatment)
    return estimator, arms[False], truth


def test_the_subtype_that_responds_elsewhere_responds(mixtures: Mixtures) -> None:
    estimator, untreated, truth = mixtures
    after = estimator.apply(untreated, "x", "d").toarray()
    found = np.stack([log_mean(after[SUBTYPES == k]) - log_mean(untreated[SUBTYPES == k]) for k in range(2)])
    for genes in (GAINED, LOST):
        responding, other = np.abs(truth[:, genes]).mean(1)
        assert responding > 0.5 and other < 0.15
        np.testing.assert_allclose(found[0, genes].mean(), truth[0, genes].mean(), rtol=0.25)
        assert np.abs(found[1, genes].mean()) < 0.3 * responding
    whole = log_mean(after) - log_mean(untreated)
    np.testing.assert_allclose(whole, estimator.predict("x", "d").change, atol=0.15)


def test_a_cell_changes_whatever_cells_it_is_given_with(mixtures: Mixtures) -> None:
    estimator, untreated, _ = mixtures
    cell_context = np.array([len(estimator.contexts) - 1, Code.MISSING])
    response = estimator.predictor.respond(cell_context, {}, {0: 1.0})
    shares = response.shares(untreated)
    assert shares.shape == untreated.shape and (shares >= 0).all()
    np.testing.assert_allclose(response.shares(untreated[:3]), shares[:3])
    none = estimator.predictor.respond(cell_context, {}, {0: 1.0}, 0.0)
    np.testing.assert_allclose(none.shares(untreated), np.tile(none.before, (len(untreated), 1)), rtol=1e-6)


def test_library_sizes_are_kept_if_they_are_asked_to_be(mixtures: Mixtures) -> None:
    estimator, untreated, _ = mixtures
    response = estimator.predictor.respond(np.array([len(estimator.contexts) - 1, Code.MISSING]), {}, {0: 1.0})
    kept = response.apply(sparse.csr_matrix(untreated), np.random.default_rng(0), keep_library=True)
    np.testing.assert_array_equal(np.asarray(kept.sum(1)).ravel(), untreated.sum(1))
    empty = response.apply(sparse.csr_matrix(untreated[:0]), np.random.default_rng(0), keep_library=False)
    assert empty.shape == (0, N_GENES)
