"""Gene programs of other methods, cells whose programs are planted, and the recovery of programs."""

from collections.abc import Callable
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

import numpy as np
import scvi
from anndata import AnnData
from numpy.typing import NDArray
from scipy.optimize import linear_sum_assignment
from scipy.special import softmax
from scipy.stats import spearmanr
from sklearn.decomposition import NMF, PCA
from sklearn.metrics import roc_auc_score

from scdiffgen._log_normalise import log_normalise
from scdiffgen.datasets import drawn_molecules

Programs = tuple[NDArray, NDArray]  # activation (cells, programs) and loadings (genes, programs)
Finder = Callable[[AnnData, int, int, int | None], Programs]  # counts, number of programs, seed, most epochs

PLANTED = {  # number of programs, and the share of its genes that each has in common with one other program
    f"{n} programs, {shared} shared": (n, share)
    for n in (4, 8, 16)
    for shared, share in (("no genes", 0.0), ("half of the genes", 0.5))
}
N_CELLS, N_GENES, GENES_OF_A_PROGRAM = 1000, 600, 30
SHARE_ACTIVE, LIBRARY_SIZE = 0.3, 2000.0


class Planted(NamedTuple):
    """Counts, activity ``(cells, programs)``, and which genes each program has ``(genes, programs)``."""

    cells: AnnData
    activity: NDArray[np.float64]
    genes: NDArray[np.bool_]


def plant(n_programs: int, share: float, seed: int) -> Planted:
    """Draw multinomial counts of cells in which a program, where active, raises the log expression of its genes.

    Two programs at a time share genes. `scdiffgen.datasets.simulate` plants effects of conditions, but no programs.
    """
    rng = np.random.default_rng(seed)
    shared = round(GENES_OF_A_PROGRAM * share)
    first = np.arange(n_programs) * GENES_OF_A_PROGRAM - np.arange(n_programs) % 2 * shared
    place = np.arange(N_GENES)[:, None] - first
    genes = (place >= 0) & (place < GENES_OF_A_PROGRAM)
    active = rng.random((N_CELLS, n_programs)) < SHARE_ACTIVE
    activity = active * rng.random((N_CELLS, n_programs))
    effects = genes * rng.uniform(1, 3, genes.shape)
    shares = softmax(rng.normal(0, 1, N_GENES) + activity @ effects.T, axis=1)
    library = rng.lognormal(np.log(LIBRARY_SIZE), 0.3, N_CELLS).astype(np.int64)
    return Planted(AnnData(drawn_molecules(shares, library, rng)), activity, genes)


def recovery(activation: NDArray, loadings: NDArray, truth: Planted) -> dict[str, float]:
    """Mean over planted programs, each matched with one that was found by the activity of the cells.

    ``activity`` is the absolute Spearman correlation, ``genes`` the AUC of the loadings for the genes of the program,
    with the sign of the correlation.
    """
    n_planted = truth.activity.shape[1]
    correlations = spearmanr(truth.activity, activation).statistic[:n_planted, n_planted:]
    correlations = np.nan_to_num(correlations)  # programs without any activity
    rows, columns = linear_sum_assignment(-abs(correlations))
    signs = np.sign(correlations[rows, columns])
    pairs = zip(rows, columns, signs, strict=True)
    genes = [roc_auc_score(truth.genes[:, row], sign * loadings[:, column]) for row, column, sign in pairs]
    return {"activity": float(abs(correlations[rows, columns]).mean()), "genes": float(np.mean(genes))}


def factors(estimator: PCA | NMF, cells: AnnData) -> Programs:
    """Factors of log-normalised expression."""
    activation = estimator.fit_transform(log_normalise(cells.X).toarray())
    return activation, estimator.components_.T


def consensus_nmf(cells: AnnData, n_programs: int, seed: int, max_epochs: int | None) -> Programs:
    """Consensus of 100 runs of NMF (cNMF, Kotliar et al. 2019) with its defaults; loadings are its gene scores."""
    with TemporaryDirectory() as folder:
        file = Path(folder) / "counts.h5ad"
        cells.write_h5ad(file)
        runs = import_module("cnmf").cNMF(folder, "runs")
        runs.prepare(str(file), [n_programs], seed=seed)
        runs.factorize()
        runs.combine()
        runs.consensus(n_programs, show_clustering=False, build_ref=False)
        usage, scores, *_ = runs.load_results(n_programs, 0.5)
    return usage.to_numpy(), scores.loc[cells.var_names].to_numpy()


def ldvae(cells: AnnData, n_programs: int, seed: int, max_epochs: int | None) -> Programs:
    """Latent dimensions of scVI with a linear decoder, and its weights."""
    scvi.settings.seed, adata = seed, cells.copy()
    scvi.model.LinearSCVI.setup_anndata(adata)
    model = scvi.model.LinearSCVI(adata, n_latent=n_programs)
    model.train(max_epochs, enable_progress_bar=False)
    return model.get_latent_representation(), model.get_loadings().to_numpy()


def drvi(cells: AnnData, n_programs: int, seed: int, max_epochs: int | None) -> Programs:
    """Latent dimensions of DRVI with its defaults, and its effects on genes in positive minus negative direction."""
    scvi.settings.seed, adata = seed, cells.copy()
    model_class = import_module("drvi.model").DRVI
    model_class.setup_anndata(adata)
    model = model_class(adata, n_latent=n_programs)
    model.train(max_epochs, enable_progress_bar=False)
    embedded = AnnData(model.get_latent_representation(), obs=adata.obs[[]])
    model.set_latent_dimension_stats(embedded)
    model.calculate_interpretability_scores(embedded)
    positive, negative = (embedded.varm[f"OOD_combined_{direction}"] for direction in ("positive", "negative"))
    return np.asarray(embedded.X), (positive - negative).T


FINDERS: dict[str, Finder] = {
    "PCA": lambda cells, n, seed, _: factors(PCA(n, svd_solver="randomized", random_state=seed), cells),
    "NMF": lambda cells, n, seed, _: factors(NMF(n, init="random", random_state=seed, max_iter=500), cells),
    **({"cNMF": consensus_nmf} if find_spec("cnmf") else {}),
    "LDVAE": ldvae,
    **({"DRVI": drvi} if find_spec("drvi") else {}),
}
