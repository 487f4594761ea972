"""Verdicts in words: of made-up intervals, and of cells of which it is known how good they are."""

import numpy as np
import pandas as pd
import pytest
from scipy import sparse

from scdiffgen import metrics
from scdiffgen.metrics._score_verdicts import with_verdicts

SOURCES = ("generated", "other_real", "null_poisson", "null_shuffled")
HEADERS = {"wasserstein": "wasserstein, lower is better", "novelty": "novelty, best at 1"}


def made_up(intervals: dict[str, tuple[float, float]], *, metric: str = "wasserstein", n: int = 50) -> pd.DataFrame:
    """Scores of one group whose interval of each source is given."""
    index = pd.MultiIndex.from_product([["overall"], intervals], names=["group", "source"])
    scores = pd.DataFrame(index=index).assign(n=n)
    low, high = np.array(list(intervals.values())).T
    scores = scores.assign(**{metric: (low + high) / 2, f"{metric}_low": low, f"{metric}_high": high})
    ideal, direction = {"wasserstein": ("other_real", "lower"), "novelty": (1.0, "closest to")}[metric]
    scores.attrs = {"ideal": {metric: ideal}, "direction": {metric: direction}}
    return scores


REAL, NULL, WORSE = (1.0, 1.4), (5.0, 6.0), (8.0, 9.0)


@pytest.mark.parametrize(
    ("generated", "verdict"),
    [
        ((1.3, 1.7), "like other real cells"),
        ((0.2, 0.5), "like other real cells"),  # better
        ((2.0, 3.0), "between"),
        ((5.2, 5.8), "between"),  # like the better control, not yet like the worse
        ((7.5, 8.5), "like the negative control"),
        ((20.0, 30.0), "like the negative control"),  # worse
        ((1.2, 8.2), "undecided"),
        ((np.nan, np.nan), "undecided"),
    ],
)
def test_verdicts_compare_intervals(generated: tuple[float, float], verdict: str) -> None:
    sides = dict(zip(SOURCES, (generated, REAL, NULL, WORSE), strict=True))
    table = with_verdicts(made_up(sides))
    assert table[HEADERS["wasserstein"]].tolist() == [verdict, "", "", ""]
    few = with_verdicts(made_up(sides, n=9))
    assert few.loc[("overall", "generated"), HEADERS["wasserstein"]] == "undecided"


def test_a_control_like_real_cells_decides_nothing() -> None:
    sides = dict(zip(SOURCES, ((2.0, 3.0), REAL, (1.2, 1.6), (1.3, 1.9)), strict=True))
    assert with_verdicts(made_up(sides))[HEADERS["wasserstein"]].iloc[0] == "undecided"


@pytest.mark.parametrize(("generated", "verdict"), [((0.5, 0.7), "unlike"), ((0.9, 1.05), "like")])
def test_without_controls_and_of_novelty_cells_are_like_real_ones_or_unlike(generated, verdict) -> None:
    sides = dict(zip(SOURCES, (generated, (0.95, 1.1), (1.0, 1.2), (3.0, 4.0)), strict=True))
    for metric, chosen in (("novelty", SOURCES), ("wasserstein", SOURCES[:2])):
        given = {source: sides[source] for source in chosen}
        if metric == "wasserstein" and verdict == "unlike":
            given["generated"] = (1.5, 1.8)
        assert with_verdicts(made_up(given, metric=metric))[HEADERS[metric]].iloc[0] == f"{verdict} other real cells"


def test_without_what_to_compare_with_there_are_no_verdicts() -> None:
    alone = made_up({"generated": (1.0, 2.0)})
    pd.testing.assert_frame_equal(with_verdicts(alone), alone)
    points = made_up(dict.fromkeys(SOURCES, (1.0, 2.0))).drop(columns=["wasserstein_low", "wasserstein_high"])
    pd.testing.assert_frame_equal(with_verdicts(points), points)


def simulated(n_cells: int, seed: int) -> np.ndarray:
    """Counts with a programme in half of the genes."""
    rng = np.random.default_rng(seed)
    programme = np.exp(rng.normal(size=(n_cells, 1)) * (np.arange(40) < 20))
    return rng.poisson(3 * np.random.default_rng(0).gamma(2.0, size=40) * programme)


def test_the_default_is_five_scores_each_with_a_verdict_that_is_right() -> None:
    real, train, new = simulated(600, 1), simulated(400, 2), simulated(300, 3)
    labels = np.zeros(300)
    shuffled = metrics.baselines.null_shuffled(sparse.csr_matrix(new), labels, labels)
    halfway = np.vstack([shuffled.toarray()[:150], new[150:]])
    options = {"n_pcs": 5, "n_trees": 30, "n_bootstrap": 50}
    found = {}
    for name, cells in {"real": new, "control": shuffled, "half": halfway}.items():
        scores = metrics.evaluate(real, cells, train, sources=["generated", "other_real", "null_shuffled"], **options)
        headers = scores.attrs["verdict"]
        assert list(scores.columns[:11]) == ["n", *np.ravel(list(headers.items()))]
        found[name] = scores.loc[("overall", "generated"), list(headers.values())]
    assert list(headers) == ["mmd", "c2st_auc_forest_genes", "recall", "gene_correlation", "novelty"]
    assert headers["c2st_auc_forest_genes"] == "c2st_auc_forest_genes, best at 0.5"
    assert headers["recall"] == "recall, higher is better"
    assert found["real"].eq("like other real cells").all()
    told = [headers[name] for name in ("mmd", "c2st_auc_forest_genes", "gene_correlation")]
    assert found["control"][told].eq("like the negative control").all()
    assert found["half"][told].eq("between").all()
