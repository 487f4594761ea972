"""Wells deepened to a measured depth, by the model and by simple methods, and wells paired by mixture."""

from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple

import numpy as np
import pandas as pd
from anndata import AnnData
from numpy.typing import NDArray
from scipy import sparse
from scvi.model import SCVI

from benchmarks._perturbation_scvi import _decode
from benchmarks._physics_data import AMOUNT, MIX, thinned
from benchmarks._physics_methods import SMOOTHING, Shares, chosen, neighbour_smoothing, pooled_shares
from scdiffgen.model import TokenDiffusion
from scdiffgen.normal_scores import GaussianCopula

SHALLOW, DEEP = 3.75, 30.0  # pg of RNA per well
OTHER, MEASURED = "other measured wells", "measured wells"
COPULA, SPIKES = "copula, given the mixture", "spike-ins of wells of 30 pg"
Deepener = Callable[[sparse.csr_matrix, NDArray], sparse.csr_matrix]  # counts, library sizes to reach -> counts


class Pairs(NamedTuple):
    """Positions of shallow wells, of deep wells of the same mixtures, and of other deep wells of them (or -1)."""

    shallow: NDArray[np.intp]
    deep: NDArray[np.intp]
    other: NDArray[np.intp]


def paired(wells: AnnData, seed: int) -> Pairs:
    """Pair shallow wells with deep wells of the same mixture at random, each well once."""
    rng, rows = np.random.default_rng(seed), []
    for mix in np.unique(wells.obs[MIX]):
        shallow, deep = (
            rng.permutation(np.flatnonzero((wells.obs[MIX] == mix) & (wells.obs[AMOUNT] == amount)))
            for amount in (SHALLOW, DEEP)
        )
        others = np.append(deep[len(shallow) :], np.full(len(shallow), -1))
        rows += [*zip(shallow, deep, others, strict=False)]
    return Pairs(*np.array(rows).T)


def deepeners(model: TokenDiffusion, neighbours: AnnData, seed: int) -> Mapping[str, Deepener]:
    """Methods that add molecules to counts, by name; none of the wells ``neighbours`` is deepened."""
    rng = np.random.default_rng(seed)

    def by_model(counts: sparse.csr_matrix, library: NDArray) -> sparse.csr_matrix:
        cells = AnnData(counts.astype(np.float32), var=neighbours.var[[]])
        factors = library / np.asarray(counts.sum(axis=1)).ravel()
        drawn = [
            model.deepen(cells, factor, indices=[i], seed=seed + i, silent=True).X for i, factor in enumerate(factors)
        ]
        return sparse.vstack(drawn, format="csr")

    def adding(shares_of: Callable[[sparse.csr_matrix], Shares]) -> Deepener:
        """Keep the counts and draw the other molecules from expected shares."""

        def deepen(counts: sparse.csr_matrix, library: NDArray) -> sparse.csr_matrix:
            shares = shares_of(counts).astype(np.float64)
            missing = (library - np.asarray(counts.sum(axis=1)).ravel()).round().astype(int)
            rows = [rng.multinomial(n, row / row.sum()) for n, row in zip(missing, shares, strict=True)]
            return sparse.csr_matrix(counts + sparse.csr_matrix(np.array(rows)))

        return deepen

    def expected(counts: sparse.csr_matrix) -> Shares:
        cells = AnnData(counts.astype(np.float32), var=neighbours.var[[]])
        return model.get_normalized_expression(cells, return_numpy=True, silent=True)

    return {
        "scdiffgen": by_model,
        "scdiffgen, expected expression": adding(expected),
        SMOOTHING: adding(lambda counts: smoothed_beside(neighbours.X, counts, seed)),
        "mean of all wells": adding(lambda counts: np.repeat(pooled_shares(neighbours.X), counts.shape[0], axis=0)),
        "own shares": adding(lambda counts: counts.toarray()),
        "scaled up": scaled_up,
    }


def decoder_of(model: SCVI, genes: pd.DataFrame) -> Deepener:
    """Draw whole wells from the decoder of scVI at the latent positions of wells and the library sizes to reach."""

    def draw(counts: sparse.csr_matrix, library: NDArray) -> sparse.csr_matrix:
        cells = AnnData(counts.astype(np.float32), var=genes)
        return _decode(model, model.get_latent_representation(cells), library.astype(np.float32))

    return draw


def copula_of(deep: AnnData, mixtures: NDArray[np.str_], seed: int) -> Deepener:
    """Draw whole wells of given mixtures from a Gaussian copula of deep wells; it does not see the wells to deepen."""
    names, groups = np.unique(deep.obs[MIX].to_numpy(dtype=str), return_inverse=True)
    copula, rng = GaussianCopula.fit(deep.X, groups, seed=seed), np.random.default_rng(seed)
    return lambda counts, library: copula.draw(np.searchsorted(names, mixtures), library, rng)


def scaled_up(counts: sparse.csr_matrix, library: NDArray) -> sparse.csr_matrix:
    """Multiply the counts of each well and round them."""
    factors = library / np.asarray(counts.sum(axis=1)).ravel()
    return sparse.csr_matrix(sparse.diags(factors) @ counts).rint()


def smoothed_beside(neighbours: sparse.csr_matrix, counts: sparse.csr_matrix, seed: int) -> Shares:
    """Smooth wells over neighbours among them and other wells."""
    return chosen(sparse.csr_matrix(sparse.vstack([counts, neighbours])), neighbour_smoothing, seed)[1][
        : counts.shape[0]
    ]


def questions(
    wells: AnnData, pairs: Pairs, methods: Mapping[str, Deepener], seed: int
) -> Iterator[tuple[str, str, sparse.csr_matrix, NDArray[np.intp]]]:
    """Question, method, counts, and positions of the measured wells to compare with.

    Counts reach the depths of the measured wells, well by well.
    """
    depth = np.asarray(wells.X.sum(axis=1)).ravel()
    has_other = pairs.other >= 0
    shallow, deep, other = wells.X[pairs.shallow], wells.X[pairs.deep], wells.X[pairs.other[has_other]]
    thin = thinned(deep, np.minimum(depth[pairs.shallow] / depth[pairs.deep], 1), seed)
    yield "dilution", "30 pg, thinned", thin, pairs.shallow
    for question, start in (("deepened", shallow), ("thinned", thin)):
        yield question, OTHER, other, pairs.deep[has_other]
        for name, deepen in methods.items():
            yield question, name, deepen(start, np.maximum(depth[pairs.deep], depth[pairs.shallow])), pairs.deep
