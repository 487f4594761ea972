"""Library sizes: moments of the group they are drawn from, and which group that is."""

import numpy as np
import pytest

from scdiffgen.conditions import Code, GroupTable
from scdiffgen.library_size import LibrarySizeModel

MISSING, ABSENT = Code.MISSING, Code.ABSENT


def rows(codes: np.ndarray, n_interventions: int = 0) -> GroupTable:
    """Conditions of cells from their codes, of which the last columns are interventions."""
    context, interventions = np.split(np.asarray(codes), [np.shape(codes)[1] - n_interventions], axis=1)
    return GroupTable.of(context, interventions, np.ones(interventions.shape))


def rng(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


@pytest.mark.parametrize("n_cells", [30, 3_000])
def test_mean_and_variance_of_log_sizes_are_kept(n_cells: int) -> None:
    library = rng().lognormal(8.0, 0.5, n_cells).round()
    drawn = np.log(
        LibrarySizeModel(library, rows(np.zeros((n_cells, 1), dtype=int))).sample(
            rows(np.zeros((100_000, 1), dtype=int)), rng(1)
        )
    )
    given = np.log(library)
    assert abs(drawn.mean() - given.mean()) < 4 * given.std() / np.sqrt(len(drawn))
    spread = np.sqrt((((given - given.mean()) ** 4).mean() - given.var() ** 2) / len(drawn))
    assert abs(drawn.var() - given.var()) < 5 * spread


def test_sizes_are_smoothed_whole_numbers() -> None:
    library = np.repeat([100.0, 5_000.0], 30)
    drawn = LibrarySizeModel(library, rows(np.zeros((60, 1), dtype=int))).sample(
        rows(np.zeros((5_000, 1), dtype=int)), rng()
    )
    np.testing.assert_array_equal(drawn, drawn.round())
    assert drawn.min() >= 1 and len(np.unique(drawn)) > 100


def test_cells_of_one_size_have_that_size() -> None:
    drawn = LibrarySizeModel(np.full(40, 700.0), rows(np.zeros((40, 1), dtype=int))).sample(
        rows(np.zeros((9, 1), dtype=int)), rng()
    )
    np.testing.assert_array_equal(drawn, 700)


@pytest.mark.parametrize("n_small", [2, 8, 19])
def test_a_small_group_keeps_its_own_depth(n_small: int) -> None:
    labels = np.r_[np.zeros(500, dtype=int), np.ones(n_small, dtype=int)][:, None]
    library = np.exp(np.where(labels[:, 0] == 0, 6.0, 9.0) + 0.2 * rng(2).standard_normal(len(labels))).round()
    sizes = LibrarySizeModel(library, rows(labels))
    small, large = (np.log(sizes.sample(rows(np.full((4_000, 1), label)), rng(3))) for label in (1, 0))
    assert large.mean() == pytest.approx(6.0, abs=0.05)  # the 20-fold deeper group does not enter
    prior = np.log(library).mean()
    assert small.mean() == pytest.approx((n_small * 9.0 + prior) / (n_small + 1), abs=0.25)
    assert 0.1 < small.std() < 0.5


def test_shallow_cells_get_a_molecule_at_least() -> None:
    drawn = LibrarySizeModel(np.repeat([1.0, 2.0, 3.0], 20), rows(np.zeros((60, 1), dtype=int))).sample(
        rows(np.zeros((5_000, 1), dtype=int)), rng()
    )
    assert drawn.min() == 1


@pytest.fixture
def grouped() -> LibrarySizeModel:
    """Two types of 30 and 25 cells; of the first, 22 in one batch and 8 in another."""
    codes = np.array([(0, 0)] * 22 + [(0, 1)] * 8 + [(1, 1)] * 25)
    return LibrarySizeModel(np.arange(1.0, 56.0), rows(codes))


@pytest.mark.parametrize(
    ("asked", "found"),
    [
        ((0, 0), range(22)),  # as asked
        ((0, 1), range(30)),  # too few: the batch is dropped
        ((1, 0), range(30, 55)),  # none: the batch is dropped
        ((2, 1), range(55)),  # unseen type: all cells, and not those of the batch alone
        ((MISSING, 1), range(22, 55)),
        ((1, MISSING), range(30, 55)),
        ((MISSING, MISSING), range(55)),
    ],
)
def test_conditions_are_dropped_from_the_last_until_enough_cells_match(
    grouped: LibrarySizeModel, asked: tuple[int, int], found: range
) -> None:
    np.testing.assert_array_equal(grouped.matching(rows([asked]), 0), found)


def test_each_cell_is_drawn_from_its_own_group() -> None:
    sizes = LibrarySizeModel(np.repeat([100.0, 9_000.0], 50), rows(np.repeat([[0], [1]], 50, axis=0)))
    asked = np.array([[1], [0], [1], [0], [0]])
    np.testing.assert_array_equal(sizes.sample(rows(asked), rng()), np.where(asked[:, 0], 9_000, 100))


def test_few_training_cells_still_give_sizes() -> None:
    sizes = LibrarySizeModel(np.array([50.0, 70.0]), rows([[0], [1]]))
    np.testing.assert_array_equal(sizes.matching(rows([[0]]), 0), [0, 1])
    assert np.isfinite(sizes.sample(rows([[0], [1]]), rng())).all()


# Log library sizes of (type, treatment) without noise: 20 cells each. A was given to types 0 and 1, B to type 0.
N, NONE, A, B, AB = 20, (ABSENT, ABSENT), (0, ABSENT), (1, ABSENT), (0, 1)
LOG_MEANS = {(0, NONE): 6.0, (1, NONE): 7.0, (2, NONE): 9.0, (0, A): 6.5, (1, A): 7.9, (0, B): 5.0, (1, AB): 5.0}


@pytest.fixture
def treated() -> LibrarySizeModel:
    codes = np.array([[cell_type, *slots] for cell_type, slots in LOG_MEANS for _ in range(N)])
    return LibrarySizeModel(np.exp(np.repeat(list(LOG_MEANS.values()), N)), rows(codes, 2))


@pytest.mark.parametrize(
    ("asked", "log_size"),
    [((0, *A), 6.5), ((0, *NONE), 6.0), ((2, *A), 9.0), ((1, *B), 7.0), ((0, *AB), 6.0), ((1, 1, 0), 5.0)],
)
def test_unmeasured_treatments_have_the_sizes_of_controls(
    treated: LibrarySizeModel, asked: tuple[int, ...], log_size: float
) -> None:
    sizes = treated.sample(rows(np.tile(asked, (400, 1)), 2), rng())
    np.testing.assert_array_equal(sizes, round(np.exp(log_size)))


def test_an_unseen_type_has_the_sizes_of_all_controls(treated: LibrarySizeModel) -> None:
    found = treated.matching(rows([[5, *A]], 2), 0)
    np.testing.assert_array_equal(found, np.flatnonzero(treated.cells.untreated))


def test_missing_interventions_give_sizes_of_all_cells_of_the_context(treated: LibrarySizeModel) -> None:
    found = treated.matching(rows([[1, MISSING, MISSING]], 2), 0)
    np.testing.assert_array_equal(found, np.flatnonzero(treated.cells.cell_context[:, 0] == 1))


def test_without_controls_library_sizes_come_from_the_whole_context() -> None:
    codes = np.array([[0, 0]] * 30 + [[0, 1]] * 30 + [[1, 1]] * 30)
    model = LibrarySizeModel(np.exp(np.repeat([5.0, 6.0, 7.0], 30)), rows(codes, 1))
    np.testing.assert_array_equal(model.matching(rows([[1, 0]], 1), 0), np.arange(60, 90))


def of_times(n_cells: int = 2_000) -> LibrarySizeModel:
    """Cells of one type at times from 0 to 10, in which log sizes rise by .3 a time unit; some times are missing."""
    random = rng(3)
    time = random.uniform(0, 10, n_cells)
    library = np.exp(7 + 0.3 * time + 0.2 * random.standard_normal(n_cells))
    time[:100] = np.nan
    return LibrarySizeModel(library, rows(np.zeros((n_cells, 1), dtype=int)), numbers=time[:, None])


@pytest.mark.parametrize("time", [1.0, 5.0, 9.0])
def test_sizes_follow_a_number_that_is_given(time: float) -> None:
    drawn = np.log(of_times().sample(rows(np.zeros((4_000, 1), dtype=int)), rng(), np.full((4_000, 1), time)))
    assert abs(drawn.mean() - (7 + 0.3 * time)) < 0.06
    assert abs(drawn.std() - 0.2) < 0.06


def test_sizes_of_cells_without_a_number_are_those_of_all() -> None:
    model, asked = of_times(), rows(np.zeros((4_000, 1), dtype=int))
    numbers = np.full((4_000, 1), np.nan)
    np.testing.assert_array_equal(model.sample(asked, rng(), numbers), model.sample(asked, rng()))
    numbers[:2_000] = 8.0
    mixed = np.log(model.sample(asked, rng(), numbers))
    assert abs(mixed[:2_000].mean() - 9.4) < 0.06 and abs(mixed[2_000:].mean() - 8.5) < 0.1


def of_doses() -> LibrarySizeModel:
    """Controls of two types; one is treated at three doses, which lower its sizes by a tenth, a half, nine tenths."""
    dose = np.repeat([np.nan, np.nan, 1.0, 10.0, 100.0], 200)
    codes = np.column_stack([np.repeat([0, 1, 0, 0, 0], 200), np.repeat([ABSENT, ABSENT, 0, 0, 0], 200)])
    library = np.repeat([1_000.0, 4_000.0, 900.0, 500.0, 100.0], 200)
    return LibrarySizeModel(library, rows(codes, 1), numbers=np.log1p(dose)[:, None])


@pytest.mark.parametrize(("dose", "size"), [(1.0, 900), (10.0, 500), (100.0, 100), (1_000.0, 100)])
def test_sizes_are_those_at_the_nearest_dose(dose: float, size: int) -> None:
    drawn = of_doses().sample(rows([[0, 0]], 1), rng(), np.log1p([[dose]]))
    np.testing.assert_allclose(drawn, size, rtol=0.01)
    elsewhere = of_doses().sample(rows([[1, 0]], 1), rng(), np.log1p([[dose]]))  # a type that was never treated
    np.testing.assert_allclose(elsewhere, 4_000, rtol=0.01)
