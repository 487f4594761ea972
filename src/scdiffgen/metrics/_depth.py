"""Equal sequencing depth of treated and control cells by binomial thinning, because the depth is no response."""

from collections.abc import Sequence

import numpy as np
from scipy import sparse

from scdiffgen._log_normalise import library_sizes, log_normalise

from ._response import Vector, mean_expression


def mean_depth(counts: sparse.csr_matrix) -> float:
    """Compute the mean library size of counts (cells, genes); infinite without cells."""
    return float(library_sizes(counts).mean()) if counts.shape[0] else np.inf


def thin(counts: sparse.csr_matrix, depth: float, seed: Sequence[int], *, tolerance: float = 1.05) -> sparse.csr_matrix:
    """Thin counts (cells, genes) to a mean library size; cells at most 5 % deeper stay, so that no noise is added."""
    own = mean_depth(counts)
    if not tolerance * depth < own < np.inf:
        return counts
    kept = counts.sorted_indices()  # so that draws do not depend on the former order of the genes
    rng = np.random.default_rng([*seed, int(kept.data.sum())])  # thinning again draws anew
    kept.data = rng.binomial(kept.data.astype(np.int64), depth / own).astype(counts.dtype)
    kept.eliminate_zeros()
    return kept


def mean_change(treated: sparse.csr_matrix, control: sparse.csr_matrix, before: Vector, seed: int) -> Vector:
    """Compute the change (genes,) of mean log expression at equal depth; ``before`` is the mean of the controls."""
    depth = min(mean_depth(treated), mean_depth(control))
    after = mean_expression(log_normalise(thin(treated, depth, [seed, 1]), dtype=np.float32))
    thinned = thin(control, depth, [seed, 0])
    return after - (before if thinned is control else mean_expression(log_normalise(thinned, dtype=np.float32)))
