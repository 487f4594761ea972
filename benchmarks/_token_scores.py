"""How readable programs are: loadings in, numbers out, for any method."""

from collections.abc import Sequence
from itertools import combinations

import numpy as np
import pandas as pd

from scdiffgen.tl import enrich_tokens, token_similarity

SIGNIFICANT = 0.05
GENE_SETS = "GO_BP"


def readability(loadings: pd.DataFrame, n_permutations: int, seed: int) -> dict[str, float]:
    """Scores of one matrix of loadings ``(genes, programs)``.

    ``enriched`` is the share of programs with at least one GO biological process at a false discovery rate of 5 %, and
    ``enriched_null`` its mean when the genes of the loadings are permuted, ``enriched_null_high`` the largest.
    """
    nulls = [enriched_share(permuted(loadings, seed + i)) for i in range(n_permutations)]
    return {
        "n_programs": float(loadings.shape[1]),
        "enriched": enriched_share(loadings),
        "enriched_null": float(np.mean(nulls)),
        "enriched_null_high": float(np.max(nulls)),
        "sparsity": sparsity(loadings),
        "redundancy": redundancy(loadings),
    }


def enriched_share(loadings: pd.DataFrame) -> float:
    """Share of programs with a significant gene set on the side that the loadings point to or the other."""
    table = enrich_tokens(loadings, GENE_SETS, n_top_genes=1)
    return float((table.groupby("token")["fdr"].min() < SIGNIFICANT).mean())


def permuted(loadings: pd.DataFrame, seed: int) -> pd.DataFrame:
    """The same loadings with the names of the genes permuted: together, so that programs keep their correlations."""
    return loadings.set_axis(np.random.default_rng(seed).permutation(loadings.index.to_numpy()))


def sparsity(loadings: pd.DataFrame) -> float:
    r"""Mean of Hoyer's measure :math:`(\sqrt G - \lVert w \rVert_1 / \lVert w \rVert_2) / (\sqrt G - 1)`.

    0 for equal loadings, 1 for a single gene (Hoyer 2004, JMLR 5, 1457-1469).
    """
    values = np.abs(loadings.to_numpy(dtype=np.float64))
    values = values[:, values.sum(0) > 0]
    root = np.sqrt(len(values))
    return float(((root - values.sum(0) / np.linalg.norm(values, axis=0)) / (root - 1)).mean())


def redundancy(loadings: pd.DataFrame) -> float:
    """Mean, over the programs, of the largest absolute correlation with another program."""
    correlations = loadings.astype(float).corr().abs().fillna(0).to_numpy(copy=True)
    np.fill_diagonal(correlations, 0)
    return float(correlations.max(1).mean()) if len(correlations) > 1 else 0.0


def stability(runs: Sequence[pd.DataFrame]) -> float:
    """Mean absolute correlation of matched programs, over all pairs of runs."""
    matched = [token_similarity(one, other)["correlation"].abs().mean() for one, other in combinations(runs, 2)]
    return float(np.mean(matched)) if matched else float("nan")
