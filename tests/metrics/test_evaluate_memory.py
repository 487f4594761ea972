"""What `evaluate` holds in memory beside the cells that it gets."""

import tracemalloc

import numpy as np
from scipy import sparse

from scdiffgen.metrics import evaluate

N_GENES = 3000


def cells(n_cells: int, seed: int) -> sparse.csr_matrix:
    """One molecule each of some genes at random."""
    return sparse.random(n_cells, N_GENES, 0.05, "csr", np.float32, random_state=seed, data_rvs=np.ones)


def peak_and_inputs(n_cells: int) -> tuple[int, int]:
    """Bytes at the peak of `evaluate`, above the inputs; and bytes of the inputs."""
    sides = [cells(n_cells, seed) for seed in (0, 1)]
    tracemalloc.start()
    evaluate(*sides, metrics=["mmd", "recall", "gene_correlation"], n_pcs=5, max_cells=200, n_bootstrap=5)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return peak, sum(part.nbytes for side in sides for part in (side.data, side.indices, side.indptr))


def test_more_cells_take_little_more_memory_than_they_are_large() -> None:
    """Copies of all cells, or expression of all of them, would take several times as much, and dense cells more."""
    peak_and_inputs(100)  # whatever is loaded at first use
    (few, small), (many, large) = peak_and_inputs(3000), peak_and_inputs(9000)
    assert many - few < 2 * (large - small)
