"""Library sizes of several modalities have the ranks and quantiles of real ones."""

import numpy as np
from scipy import stats

from scdiffgen.conditions import GroupTable
from scdiffgen.library_size import JointLibrarySizes


def conditions(codes: np.ndarray) -> GroupTable:
    """Conditions of cells without interventions."""
    return GroupTable(codes, *np.zeros((2, len(codes), 0)))


def sizes(n_cells: int, rng: np.random.Generator) -> np.ndarray:
    """Library sizes of two kinds ``(cells, kinds)``, log-normal, correlated by 0.8."""
    scores = rng.multivariate_normal([0, 0], [[1, 0.8], [0.8, 1]], n_cells)
    return np.exp([6, 8] + scores * [0.5, 0.3]).round()


def test_library_sizes_have_the_quantiles_and_the_ranks_of_real_ones() -> None:
    rng = np.random.default_rng(0)
    known = sizes(5_000, rng)
    drawn = JointLibrarySizes(known, conditions(np.zeros((5_000, 1), dtype=int))).sample(
        conditions(np.zeros((5_000, 1), dtype=int)), rng
    )
    for kind in range(2):
        assert stats.ks_2samp(known[:, kind], drawn[:, kind]).pvalue > 1e-3
    real, found = (stats.spearmanr(values).statistic for values in (known, drawn))
    assert abs(real - found) < 0.05


def test_library_sizes_follow_the_conditions_and_cells_that_lack_a_kind() -> None:
    """Kind 0 was measured in all cells, kind 1 in the second half of each group alone."""
    rng = np.random.default_rng(1)
    codes = np.repeat([[0], [1]], 1_000, axis=0)
    known = sizes(2_000, rng) * np.where(codes == 1, 4, 1)
    known[np.arange(2_000) % 1_000 < 500, 1] = 0
    drawn = JointLibrarySizes(known, conditions(codes)).sample(conditions(codes), rng)
    assert (drawn >= 1).all()
    for group in (0, 1):
        rows = codes[:, 0] == group
        for kind in range(2):
            measured = known[rows & (known[:, kind] > 0), kind]
            np.testing.assert_allclose(np.median(drawn[rows, kind]), np.median(measured), rtol=0.08)
        assert stats.spearmanr(drawn[rows]).statistic > 0.7


def test_without_complete_cells_kinds_are_independent() -> None:
    rng = np.random.default_rng(2)
    known = sizes(2_000, rng)
    known[:1_000, 0] = known[1_000:, 1] = 0
    drawn = JointLibrarySizes(known, conditions(np.zeros((2_000, 1), dtype=int))).sample(
        conditions(np.zeros((2_000, 1), dtype=int)), rng
    )
    assert abs(stats.spearmanr(drawn).statistic) < 0.1


def test_equal_sizes_stay_equal() -> None:
    known = np.full((50, 2), [100.0, 900.0])
    drawn = JointLibrarySizes(known, conditions(np.zeros((50, 1), dtype=int))).sample(
        conditions(np.zeros((10, 1), dtype=int)), np.random.default_rng(0)
    )
    np.testing.assert_array_equal(drawn, known[:10])
