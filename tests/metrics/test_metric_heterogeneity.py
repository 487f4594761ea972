"""How differently cells respond, on simulated cells whose single responses are known."""

import numpy as np
import pytest
from scipy import sparse

from scdiffgen._log_normalise import log_normalise
from scdiffgen.metrics._response import RealResponse, ResponseHeterogeneity, rank_genes

N_CELLS, N_GENES, N_RESPONDING = 600, 200, 10
CHANGE = np.where(np.arange(N_GENES) < N_RESPONDING, np.where(np.arange(N_GENES) % 2, 1.2, -1.2), 0.0)


def cells(strength: float | np.ndarray, seed: int, library: float | np.ndarray = 20_000.0) -> np.ndarray:
    """Multinomial cells whose log rates change by their strength times ``CHANGE``."""
    rng = np.random.default_rng(seed)
    base = np.random.default_rng(99).gamma(4.0, size=N_GENES)
    rates = base * np.exp(np.broadcast_to(strength, N_CELLS)[:, None] * CHANGE)
    size = rng.poisson(np.broadcast_to(library, N_CELLS))
    return rng.multinomial(size, rates / rates.sum(1, keepdims=True)).astype(np.float32)


def response_heterogeneity(real: np.ndarray, predicted: np.ndarray, control: np.ndarray) -> ResponseHeterogeneity:
    x, y, before = map(sparse.csr_matrix, (real, predicted, control))
    expression, untreated = (log_normalise(counts, dtype=np.float32) for counts in (x, before))
    return RealResponse(x, before, rank_genes(expression, untreated).significant, 0).compare(y)


def drawn(spread: float, seed: int) -> np.ndarray:
    return np.random.default_rng([seed, 7]).normal(1.0, spread, N_CELLS)


@pytest.fixture(scope="module")
def control() -> np.ndarray:
    return cells(0.0, 0)


@pytest.mark.parametrize("factor", [0.0, 0.5, 1.0, 1.5])
def test_spread_is_that_of_the_strengths(control: np.ndarray, factor: float) -> None:
    real, predicted = cells(drawn(0.3, 1), 1), cells(drawn(0.3 * factor, 2), 2)
    found = response_heterogeneity(real, predicted, control)
    assert found.spread == pytest.approx(factor, abs=0.1)


def test_sampling_noise_is_not_spread(control: np.ndarray) -> None:
    """Of cells with a fifth of the molecules scores vary more, and responses as much."""
    real = cells(drawn(0.3, 1), 1)
    assert response_heterogeneity(real, cells(drawn(0.3, 1), 2, 4000.0), control).spread == pytest.approx(1, abs=0.1)
    assert response_heterogeneity(real, cells(1.0, 2, 4000.0), control).spread < 0.15


def test_library_sizes_are_not_spread(control: np.ndarray) -> None:
    """Few molecules make expression, and scores, lower: not a response."""
    real = cells(drawn(0.3, 1), 1)
    library = np.random.default_rng(5).uniform(300, 3000, N_CELLS)
    assert response_heterogeneity(real, cells(1.0, 2, library), control).spread < 0.2


@pytest.mark.parametrize("share", [0.0, 0.3, 0.6])
def test_cells_that_do_not_respond_are_counted(control: np.ndarray, share: float) -> None:
    real = cells((np.arange(N_CELLS) >= 0.3 * N_CELLS).astype(float), 1)
    predicted = cells((np.arange(N_CELLS) >= share * N_CELLS).astype(float), 2)
    found = response_heterogeneity(real, predicted, control)
    assert found.non_responders_real == pytest.approx(0.95 * 0.3, abs=0.03)
    assert found.non_responders == pytest.approx(0.95 * share, abs=0.04)
    assert found.non_responders_error == abs(found.non_responders - found.non_responders_real)
    assert found.spread == pytest.approx(np.sqrt(share * (1 - share) / 0.21), abs=0.1)


def test_nothing_is_defined_where_no_gene_responds(control: np.ndarray) -> None:
    assert np.isnan(response_heterogeneity(cells(0.0, 1), cells(1.0, 2), control)).all()
