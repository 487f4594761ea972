"""Scores of the published benchmark of responses (Wei et al. 2025), by its definitions.

P, S and C are log-normalised cells ``(cells, genes)``: predicted, real stimulated and control ones.
"""

import numpy as np
import ot
import pandas as pd
import scanpy as sc
from anndata import AnnData
from numpy.typing import NDArray
from sklearn.metrics import euclidean_distances

N_GENES, N_COMMON = (20, 50, 100), 100
MAX_CELLS, SUBSAMPLING_SEED = 2000, 42
SMALL = 1e-8
REGULARISATION, STOP = 0.05, 1e-5  # of the Sinkhorn distance: share of the mean cost, and error of the marginals
ITERATIONS = 2000
Cells = NDArray[np.float64]  # (cells, genes)


def all_scores(predicted: Cells, real: Cells, control: Cells) -> dict[str, float]:
    """Every score at every number of genes, by names such as ``mse_5000``; the last number is that of all genes.

    Genes are ranked by Welch's t between the real stimulated cells and the controls.
    """
    ranked = ranked_genes(real, control)
    of_all = scores_of_genes(predicted, real, control)
    scores = {f"{name}_{real.shape[1]}": value for name, value in of_all.items()}
    for n in N_GENES:
        top = ranked[:n]
        of_top = scores_of_genes(predicted[:, top], real[:, top], control[:, top])
        of_top["wasserstein"] = wasserstein(*subsampled(predicted[:, top], real[:, top]))
        scores |= {f"{name}_{n}": value for name, value in of_top.items()}
    found = ranked_genes(predicted, control)[:N_COMMON]
    return scores | {f"common_degs_{N_COMMON}": float(np.isin(ranked[:N_COMMON], found).mean())}


def scores_of_genes(predicted: Cells, real: Cells, control: Cells) -> dict[str, float]:
    some = subsampled(predicted, real)
    return {
        "mse": mse(predicted, real),
        "pearson_delta": pearson_delta(predicted, real, control),
        "edistance": edistance(*some),
        "sym_kldiv": sym_kldiv(*some),
    }


def ranked_genes(treated: Cells, control: Cells) -> NDArray[np.intp]:
    """Columns by the absolute value of Welch's t, the largest first."""
    labels = np.repeat(["treated", "control"], [len(treated), len(control)])
    cells = AnnData(
        np.vstack([treated, control]), obs=pd.DataFrame({"is": pd.Categorical(labels)}, index=_names(labels))
    )
    cells.uns["log1p"] = {"base": None}
    with np.errstate(invalid="ignore"):  # fold changes, which are not used, where predictions are negative
        sc.tl.rank_genes_groups(cells, "is", groups=["treated"], reference="control", method="t-test", rankby_abs=True)
    return cells.var_names.get_indexer(cells.uns["rank_genes_groups"]["names"]["treated"])


def _names(labels: NDArray) -> list[str]:
    return [str(i) for i in range(len(labels))]


def subsampled(*groups: Cells) -> list[Cells]:
    """At most 2,000 cells of each group, drawn one after the other from one seed."""
    rng = np.random.RandomState(SUBSAMPLING_SEED)  # what the benchmark draws from
    return [
        cells[rng.choice(len(cells), MAX_CELLS, replace=False)] if len(cells) > MAX_CELLS else cells for cells in groups
    ]


def mse(predicted: Cells, real: Cells) -> float:
    """Mean over genes of the squared difference of the means."""
    return float(((predicted.mean(0) - real.mean(0)) ** 2).mean())


def pearson_delta(predicted: Cells, real: Cells, control: Cells) -> float:
    """Correlation over genes of predicted and real changes of the mean; NaN if nothing is predicted to change."""
    before = control.mean(0)
    changes = predicted.mean(0) - before, real.mean(0) - before
    return float(np.corrcoef(*changes)[0, 1]) if all(map(np.ptp, changes)) else float("nan")


def edistance(predicted: Cells, real: Cells) -> float:
    """Energy distance, Euclidean and not squared, over all pairs, those of a cell with itself included."""
    between = euclidean_distances(predicted, real).mean()
    return float(2 * between - euclidean_distances(predicted).mean() - euclidean_distances(real).mean())


def sym_kldiv(predicted: Cells, real: Cells) -> float:
    """Log2 of 1 + the mean over genes of the divergences of two Gaussians, both ways."""
    first, second = ((cells.mean(0), cells.std(0) + SMALL) for cells in (predicted, real))
    return float(np.log2(1 + (_divergence(*first, *second) + _divergence(*second, *first)).mean()))


def _divergence(mean: NDArray, sd: NDArray, other_mean: NDArray, other_sd: NDArray) -> NDArray[np.float64]:
    return np.log(other_sd / sd) + (sd**2 + (mean - other_mean) ** 2) / (2 * other_sd**2) - 0.5


def wasserstein(predicted: Cells, real: Cells) -> float:
    """Optimal transport cost, regularised by relative entropy: squared Euclidean, at 5 % of the mean cost.

    The published values were computed by another library; they differ by about one part in ten thousand.
    """
    cost = euclidean_distances(predicted, real, squared=True)
    weights = [np.full(len(cells), 1 / len(cells)) for cells in (predicted, real)]
    strength = REGULARISATION * cost.mean()
    plan = ot.sinkhorn(*weights, cost, strength, method="sinkhorn_log", stopThr=STOP, numItermax=ITERATIONS, warn=False)
    relative = plan * np.log(np.maximum(plan, np.finfo(float).tiny) * plan.size)
    return float((plan * cost).sum() + strength * relative.sum())
