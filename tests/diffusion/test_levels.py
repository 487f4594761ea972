"""Training levels against their distribution function, which is a closed form."""

import numpy as np
import pytest
import torch
from scipy import stats

from scdiffgen.diffusion import thinning_levels


def level_cdf(level: np.ndarray, library: float) -> np.ndarray:
    """Half of the levels uniform on (0, 1), half such that `level * library` is log-uniform on [0.5, library]."""
    log_uniform = np.log(np.maximum(level * library, 0.5) / 0.5) / np.log(library / 0.5)
    return 0.5 * level + 0.5 * log_uniform


@pytest.mark.parametrize("library", [1, 3, 500, 30_000])
@pytest.mark.parametrize("n_cells", [1_000, 1_001])
def test_a_batch_is_stratified_and_has_the_distribution(library: int, n_cells: int) -> None:
    levels = thinning_levels(torch.full((n_cells,), float(library)), torch.Generator().manual_seed(0)).numpy()
    assert levels.min() >= 0 and levels.max() <= 1
    # each half of a batch is off by one cell at most; independent draws would be off by about 0.9 / sqrt(n_cells)
    distance = stats.kstest(levels.astype(np.float64), lambda level: level_cdf(level, library)).statistic
    assert distance < 2.5 / n_cells


def test_a_cell_has_the_distribution_wherever_it_stands_in_a_batch() -> None:
    generator, library = torch.Generator().manual_seed(0), torch.tensor([40.0, 7000.0, 300.0])
    levels = np.stack([thinning_levels(library, generator).numpy() for _ in range(2_000)])
    for cell, molecules in enumerate(library.tolist()):
        assert stats.kstest(levels[:, cell], lambda level, n=molecules: level_cdf(level, n)).pvalue > 1e-3


def test_a_single_cell_is_a_batch() -> None:
    levels = [float(thinning_levels(torch.tensor([9.0]), torch.Generator().manual_seed(seed))) for seed in range(500)]
    assert stats.kstest(levels, lambda level: level_cdf(level, 9)).pvalue > 1e-3
