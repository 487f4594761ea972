"""Our scores of responses are those of pertpy, cell-eval and gge-eval, or differ from theirs as stated here."""

import numpy as np
import pandas as pd
import pytest
from anndata import AnnData
from benchmarks.external.judges import CONTROL, PERTURBATION, Verdict, of_cell_eval, of_pertpy
from scipy import sparse
from scipy.spatial.distance import cdist
from scipy.stats import energy_distance as scipy_energy_distance
from sklearn.metrics import pairwise_distances

from scdiffgen import metrics
from scdiffgen._log_normalise import log_normalise
from scdiffgen.metrics._response import discrimination_score, weighted_mse

N_CELLS, N_GENES, NAMES = 30, 40, ["P1", "P2", "P3", "P4"]


def cells(seed: int, strength: float, order: list[int]) -> AnnData:
    """Log-normalised cells of four perturbations with effects in an order, and the same controls for every seed."""
    rates, rng = np.random.default_rng(0).gamma(2.0, 2.0, size=N_GENES), np.random.default_rng(seed)
    effects = np.random.default_rng(1).normal(size=(len(NAMES), N_GENES))[order]
    treated = rng.poisson(np.repeat(rates * np.exp(strength * effects), N_CELLS, axis=0))
    controls = np.random.default_rng(2).poisson(rates, size=(N_CELLS, N_GENES))
    obs = pd.DataFrame({PERTURBATION: np.repeat([*NAMES, CONTROL], N_CELLS)}, dtype="category")
    obs.index, genes = obs.index.astype(str), pd.DataFrame(index=[f"g{i}" for i in range(N_GENES)])
    expression = log_normalise(np.concatenate([treated, controls]))
    return AnnData(sparse.csr_matrix(expression, dtype=np.float32), obs, genes)


REAL, PREDICTED = cells(3, 0.5, [0, 1, 2, 3]), cells(4, 0.3, [0, 1, 3, 2])


def of(side: AnnData, name: str) -> np.ndarray:
    return side[side.obs[PERTURBATION] == name].X.toarray().astype(np.float64)


SIDES = of(REAL, "P1"), of(PREDICTED, "P1"), of(REAL, CONTROL)


def test_mmd_is_the_mean_of_those_of_pertpy() -> None:
    """pertpy 1.0.3, `Distance("mmd")` with `kernel="rbf"` and five `gamma`, pairs of a cell with itself among them."""
    squared = [cdist(side, side, "sqeuclidean") for side in SIDES[:2]]
    scale = np.median(squared[0][np.triu_indices(N_CELLS, k=1)])
    kernels = [np.mean([np.exp(-d / (s * scale)).mean() for s in (0.25, 0.5, 1, 2, 4)]) for d in squared]
    of_equal = sum(1 - kernel for kernel in kernels) / (N_CELLS - 1)
    assert metrics.mmd(*SIDES[:2]) + of_equal == pytest.approx(0.03972101455615324, rel=1e-9)


def test_correlation_and_error_of_means_are_those_of_pertpy() -> None:
    """pertpy 1.0.3, `Distance("pearson_distance")` of cells less the mean of the controls, and `Distance("mse")`."""
    real, predicted, control = (side.mean(axis=0) for side in SIDES)
    assert 1 - metrics.pearson_delta(real - control, predicted - control) == pytest.approx(0.1334565036846973, rel=1e-9)
    assert weighted_mse(real, predicted, np.ones(N_GENES)) == pytest.approx(0.13777224918877962, rel=1e-9)


def test_scores_of_means_are_those_of_cell_eval() -> None:
    """cell-eval 0.8.2, `pearson_delta`, `mse` and `discrimination_score(metric="cosine")`, a fraction of all."""
    control = of(REAL, CONTROL).mean(axis=0)
    real, predicted = (
        np.array([of(side, name).mean(axis=0) - control for name in NAMES]) for side in (REAL, PREDICTED)
    )
    pairs = list(zip(real, predicted, strict=True))
    assert np.mean([metrics.pearson_delta(*pair) for pair in pairs]) == pytest.approx(0.6170451119542122, rel=1e-6)
    assert np.mean([weighted_mse(*pair, np.ones(N_GENES)) for pair in pairs]) == pytest.approx(
        0.3421563282608986, rel=1e-6
    )
    ranks = [discrimination_score(real, y, own) for own, y in enumerate(predicted)]
    n = len(NAMES)
    assert 1 - (1 - np.mean(ranks)) * (n - 1) / n == pytest.approx(0.875)


def edistance(x: np.ndarray, y: np.ndarray, metric: str = "euclidean") -> tuple[float, list[float]]:
    """The definition of pertpy and cell-eval: means over all pairs, of a cell with itself too; and those within."""
    within = [float(pairwise_distances(side, metric=metric).mean()) for side in (x, y)]
    return 2 * float(pairwise_distances(x, y, metric=metric).mean()) - sum(within), within


@pytest.mark.parametrize("n_cells", [2, 7, N_CELLS])
def test_energy_distance_excludes_pairs_of_a_cell_with_itself(n_cells: int) -> None:
    """cell-eval 0.8.2 and pertpy 1.0.3 keep the zeros on the diagonal, which add 1 / (n - 1) of the mean within."""
    x, y = SIDES[0][:n_cells], SIDES[1]
    theirs, within = edistance(x, y)
    excess = within[0] / (n_cells - 1) + within[1] / (N_CELLS - 1)
    assert metrics.energy_distance(x, y) == pytest.approx(theirs - excess, rel=1e-9)
    assert excess > 0


def test_energy_distance_of_one_gene_is_the_squared_one_of_scipy() -> None:
    """gge-eval (without geomloss) scores each gene by the square of scipy's, with pairs of a cell with itself."""
    for gene in range(5):
        x, y = (side[:, gene] for side in SIDES[:2])
        within = sum(pairwise_distances(values[:, None]).mean() for values in (x, y))
        expected = scipy_energy_distance(x, y) ** 2 - within / (N_CELLS - 1)
        assert metrics.energy_distance(x[:, None], y[:, None]) == pytest.approx(expected, rel=1e-9, abs=1e-12)


def agree(verdicts: list[Verdict]) -> None:
    same = [verdict for verdict in verdicts if verdict.same]
    assert same
    for verdict in same:
        assert verdict.ours == pytest.approx(verdict.theirs, rel=1e-5), verdict.score


def test_the_installed_pertpy_agrees() -> None:
    pytest.importorskip("pertpy")
    agree(list(of_pertpy(*SIDES)))


def test_the_installed_cell_eval_agrees() -> None:
    pytest.importorskip("cell_eval")
    agree(list(of_cell_eval(REAL, PREDICTED)))


def test_energy_distance_is_that_of_pertpy() -> None:
    """pertpy 1.0.3, `Distance("edistance")`, which has pairs of a cell with itself."""
    within = sum(cdist(side, side).mean() for side in SIDES[:2])
    assert metrics.energy_distance(*SIDES[:2]) + within / (N_CELLS - 1) == pytest.approx(0.8263177435100513, rel=1e-9)
