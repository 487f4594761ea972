"""What is compared on RNA and protein: ways to draw cells with both, and to tell protein from RNA."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pandas as pd
from mudata import MuData
from numpy.typing import NDArray
from scipy import sparse
from scipy.spatial.distance import pdist
from scvi.model import TOTALVI
from sklearn.kernel_approximation import RBFSampler
from sklearn.linear_model import RidgeCV

from benchmarks._models import Kind
from benchmarks._multimodal_data import PROTEIN, RNA, CiteSplit, joined, padded
from scdiffgen.metrics import ExpressionSpace
from scdiffgen.model import TokenDiffusion

MEASURED, BATCH = "measured", "batch"
Counts = dict[str, sparse.csr_matrix]
N_SAMPLES, N_DRAWS = 25, 100


@dataclass(frozen=True)
class JointMethod:
    """A way to draw cells: their number and a seed to the counts of each modality."""

    name: str
    kind: Kind
    sample: Callable[[int, int], Counts]


def fit_scdiffgen(split: CiteSplit, max_epochs: int | None) -> TokenDiffusion:
    """Train with the defaults on cells of which some lack protein, without any label."""
    mdata = split.seen()
    TokenDiffusion.setup_mudata(mdata)
    model = TokenDiffusion(mdata)
    model.train(max_epochs=max_epochs, enable_progress_bar=False)
    return model


def fit_totalvi(split: CiteSplit, max_epochs: int | None) -> TOTALVI:
    """Train with the defaults on the same cells; those without protein are a batch, as totalVI asks for."""
    mdata = split.seen()
    cells = padded(mdata)
    cells[PROTEIN].X = cells[PROTEIN].X.toarray()
    is_measured = cells.obs_names.isin(mdata[PROTEIN].obs_names)
    cells.obs[BATCH] = pd.Categorical(np.where(is_measured, MEASURED, "not " + MEASURED))
    TOTALVI.setup_mudata(cells, batch_key=BATCH, modalities={"rna_layer": RNA, "protein_layer": PROTEIN})
    model = TOTALVI(cells)
    model.train(max_epochs=max_epochs, enable_progress_bar=False)
    return model


# Drawing cells.


def real_cells(split: CiteSplit) -> list[JointMethod]:
    """Other real cells; and the same with protein from other cells than RNA."""

    def whole(n_cells: int, seed: int) -> Counts:
        return counts_of(split.other, np.random.default_rng(seed).permutation(split.other.n_obs)[:n_cells])

    def torn(n_cells: int, seed: int) -> Counts:
        counts = whole(n_cells, seed)
        order = np.random.default_rng(seed + 1).permutation(n_cells)
        return {RNA: counts[RNA], PROTEIN: counts[PROTEIN][order]}

    return [JointMethod("other real cells", "limit", whole), JointMethod("protein of other cells", "null", torn)]


def scdiffgen_draws(model: TokenDiffusion, n_steps: int, conditions: pd.DataFrame | None = None) -> JointMethod:
    """Generate both modalities together, under the conditions of each cell where there are any."""

    def draw(n_cells: int, seed: int) -> Counts:
        asked = {"n_cells": n_cells} if conditions is None else {"conditions": conditions}
        return counts_of(model.generate(**asked, n_steps=n_steps, seed=seed, silent=True))

    return JointMethod(f"scdiffgen, {n_steps} steps", "ours", draw)


def totalvi_draws(model: TOTALVI) -> JointMethod:
    """Redraw real training cells from their posterior: no generation of new ones."""
    trained = np.flatnonzero(model.adata.obs[BATCH] == MEASURED)

    def redraw(n_cells: int, seed: int) -> Counts:
        rows = np.random.default_rng(seed).choice(trained, n_cells, replace=n_cells > len(trained))
        drawn = model.posterior_predictive_sample(indices=rows, n_samples=1)
        return {key: sparse.csr_matrix(np.asarray(drawn[key])) for key in (RNA, PROTEIN)}

    return JointMethod("totalVI, posterior of real cells", "resampled", redraw)


def counts_of(mdata: MuData, rows: NDArray[np.intp] | slice = slice(None)) -> Counts:
    """Counts of each modality."""
    return {key: sparse.csr_matrix(mdata[key].X)[rows] for key in mdata.mod}


# Telling protein from RNA: cells to expected counts (cells, proteins).


def scdiffgen_imputes(model: TokenDiffusion, split: CiteSplit, seed: int) -> NDArray[np.float64]:
    """Expected protein given RNA."""
    rna = joined({RNA: split.imputed[RNA].copy()})
    imputed = model.generate_modality(rna, RNA, PROTEIN, expected=True, n_steps=1, seed=seed, silent=True)
    return np.asarray(imputed[PROTEIN].layers["expected"], dtype=np.float64)


def totalvi_imputes(model: TOTALVI, split: CiteSplit) -> NDArray[np.float64]:
    """Expected protein, background included, as if it had been measured."""
    rows = model.adata.obs_names.get_indexer(split.imputed.obs_names)
    _, protein = model.get_normalized_expression(
        indices=rows, transform_batch=MEASURED, n_samples=N_SAMPLES, include_protein_background=True, return_mean=True
    )
    return protein.to_numpy(dtype=np.float64)


def scdiffgen_draws_protein(model: TokenDiffusion, split: CiteSplit, seed: int) -> NDArray[np.float64]:
    """Draws ``(draws, cells, proteins)`` of protein given RNA."""
    rna = joined({RNA: split.imputed[RNA].copy()})
    seeds = range(N_DRAWS * seed, N_DRAWS * (seed + 1))
    draws = (model.generate_modality(rna, RNA, PROTEIN, n_steps=8, seed=number, silent=True) for number in seeds)
    return np.stack([drawn[PROTEIN].X.toarray() for drawn in draws])


def ridge_imputes(split: CiteSplit, *, kernel: bool = False) -> NDArray[np.float64]:
    """Ridge or kernel ridge regression of protein on RNA."""
    return ridge_predicts(split.train[RNA].X, split.imputed[RNA].X, split.train[PROTEIN].X, kernel=kernel)


def ridge_predicts(
    known: sparse.csr_matrix, given: sparse.csr_matrix, target: sparse.csr_matrix, *, kernel: bool = False
) -> NDArray[np.float64]:
    """Ridge regression of log-counts on 30 components and the depth of what is given; or kernel ridge regression.

    The kernel is Gaussian in the components, whose medium distance it has as width, by 1,500 random Fourier features.
    """
    space = ExpressionSpace.fit(known)
    depths = [np.log(np.asarray(counts.sum(axis=1))) for counts in (known, given)]
    features = pcs = [space.pcs(counts) for counts in (known, given)]
    if kernel:
        gamma = 1 / np.median(pdist(pcs[0][:300], "sqeuclidean"))
        fourier = RBFSampler(gamma=gamma, n_components=1500, random_state=0).fit(pcs[0])
        unit, first = np.sqrt(fourier.n_components / 2), pcs[0][:, 0].std()
        features = [np.hstack([unit * fourier.transform(of_part), of_part / first]) for of_part in pcs]
    train, imputed = (np.hstack(both) for both in zip(features, depths, strict=True))
    ridge = RidgeCV(np.logspace(-2, 5, 8)).fit(train, np.log1p(target.toarray()))
    return np.expm1(ridge.predict(imputed))


def mean_imputes(split: CiteSplit) -> NDArray[np.float64]:
    """The mean share of each protein, times a total that follows the depth of RNA: what needs no cell state."""
    protein = split.train[PROTEIN].X
    total = total_by_depth(split.train[RNA].X, split.imputed[RNA].X, protein)
    return total[:, None] * np.asarray(protein.sum(axis=0)).ravel() / protein.sum()


def total_by_depth(
    known: sparse.csr_matrix, given: sparse.csr_matrix, target: sparse.csr_matrix
) -> NDArray[np.float64]:
    """Molecules of the target by the depth of what is given, a line in logarithms ``(cells,)``."""
    depth, of_known = (np.log(np.asarray(counts.sum(axis=1)).ravel()) for counts in (given, known))
    slope, intercept = np.polyfit(of_known, np.log(np.asarray(target.sum(axis=1)).ravel() + 1), 1)
    return np.exp(intercept + slope * depth)
