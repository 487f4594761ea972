"""Scores of denoised, deepened and transferred cells; those of Tian et al. (2019) as published."""

from collections.abc import Sequence

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy import sparse
from scipy.stats import spearmanr
from sklearn.decomposition import PCA
from sklearn.metrics import silhouette_score

from scdiffgen._log_normalise import log_normalise
from scdiffgen.metrics import classifier_auc

Matrix = NDArray[np.float64]  # (cells, genes)
PUBLISHED_GENES, PUBLISHED_COMPONENTS = 500, 5
PCS_OF_FORESTS = 10
LEAST_MEAN = 5.0  # molecules per cell of a gene whose dispersion is compared


def log_cpm(counts: Matrix) -> Matrix:
    """Log2 of counts per million plus one, as published."""
    return np.log2(counts / counts.sum(axis=1, keepdims=True) * 1e6 + 1)


def log_by_median_ratios(counts: Matrix) -> Matrix:
    """Log2 of counts over the size factors of DESeq2, scaled to mean 1, plus one."""
    with np.errstate(divide="ignore"):
        logs = np.log(counts)
    means = logs.mean(axis=0)
    whole = np.isfinite(means)
    factors = np.exp(np.median(logs[:, whole] - means[whole], axis=1))
    return np.log2(counts / (factors / factors.mean())[:, None] + 1)


NORMALISATIONS = {"logCPM": log_cpm, "DESeq2": log_by_median_ratios}


def components(values: Matrix) -> tuple[Matrix, NDArray[np.float64]]:
    """Components of the 500 most variable genes, each scaled, and their shares of the variance, as published."""
    values = np.log2(values + 1) if values.max() > 100 else values
    top = values[:, np.argsort(-values.var(axis=0), kind="stable")[:PUBLISHED_GENES]]
    left, singular, _ = np.linalg.svd((top - top.mean(axis=0)) / top.std(axis=0), full_matrices=False)
    return left * singular, singular**2 / (singular**2).sum()


def published_scores(values: Matrix, mix: NDArray[np.str_], total: NDArray[np.float64]) -> dict[str, float]:
    """Score a matrix on a log scale: silhouette of the mixtures, and variation explained by mixture and by depth."""
    scores, shares = components(values)

    def explained_by(design: Matrix) -> float:
        return sum(r_squared(scores[:, i], design) * shares[i] for i in range(PUBLISHED_COMPONENTS))

    return {
        "silhouette_mean": float(silhouette_score(scores[:, :2], mix)),
        "wanted_variation_corr": explained_by(pd.get_dummies(mix, drop_first=True).to_numpy(dtype=float)),
        "unwanted_variation_corr": explained_by(np.log10(total)[:, None]),
    }


def r_squared(outcome: NDArray[np.float64], design: Matrix) -> float:
    """Share of the variance that a linear model with an intercept explains."""
    design = np.column_stack([np.ones(len(outcome)), design])
    rest = outcome - design @ np.linalg.lstsq(design, outcome, rcond=None)[0]
    centred = outcome - outcome.mean()
    return float(1 - rest @ rest / (centred @ centred))


def nats_per_molecule(shares: Matrix, unseen: sparse.csr_matrix) -> float:
    """Mean of minus the log of the predicted share of each unseen molecule's gene."""
    found = unseen.tocoo()
    logs = np.log(np.maximum(shares[found.row, found.col], 1e-12))
    return float(-(found.data * logs).sum() / found.data.sum())


def best_correlations(activation: Matrix, proportions: pd.DataFrame) -> dict[str, float]:
    """Largest absolute Spearman correlation of any program with the proportion of each line."""
    correlations = {
        line: [abs(spearmanr(program, proportions[line]).statistic) for program in activation.T] for line in proportions
    }
    return {line: float(np.nanmax(values)) for line, values in correlations.items()}


def depth_scores(
    counts: sparse.csr_matrix, measured: sparse.csr_matrix, mix: Sequence[str], fit: PCA, seed: int
) -> dict[str, float]:
    """Compare wells with measured wells of the same mixtures, row by row: forest AUC, zeros and dispersion."""
    logs = [log_normalise(part.toarray()) for part in (measured, counts)]
    pcs = [fit.transform(part) for part in logs]
    options = {"real_labels": mix, "generated_labels": mix, "seed": seed}
    return {
        "auc_pcs": classifier_auc(*pcs, **options),
        "auc_genes": classifier_auc(*logs, **options),
        **own_scores(counts, measured, mix),
    }


def own_scores(counts: sparse.csr_matrix, measured: sparse.csr_matrix, mix: Sequence[str]) -> dict[str, float]:
    """Share of zeros, and median dispersion of the genes that are frequent in measured wells."""
    return {"zeros": zeros_of(counts)["zeros"], "dispersion": median_dispersion(counts, measured, mix)}


def zeros_of(counts: sparse.csr_matrix) -> dict[str, float]:
    """Molecules per well and gene, share of zeros, and the share if counts were Poisson around the mean of a gene."""
    means = counts.mean(axis=0).A1
    zeros = 1 - counts.count_nonzero() / np.prod(counts.shape)
    return {"molecules": float(means.mean()), "zeros": float(zeros), "poisson": float(np.exp(-means).mean())}


def detection_gap(counts: sparse.csr_matrix, measured: sparse.csr_matrix) -> float:
    """Mean absolute difference of detection curves: shares of wells that have a gene, by ten quantiles of genes.

    Quantiles are those of the mean expression in measured wells.
    """
    quantiles = np.array_split(np.argsort(measured.sum(axis=0).A1, kind="stable"), 10)
    shares = measured.getnnz(axis=0) / measured.shape[0], counts.getnnz(axis=0) / counts.shape[0]
    return float(np.mean([abs(shares[0][genes].mean() - shares[1][genes].mean()) for genes in quantiles]))


def median_dispersion(counts: sparse.csr_matrix, measured: sparse.csr_matrix, mix: Sequence[str]) -> float:
    """Median over genes of the dispersion within mixtures, (variance - mean) / mean^2, at equal depth.

    Genes have at least five molecules per well in the measured wells.
    """
    genes = np.asarray(measured.mean(axis=0)).ravel() >= LEAST_MEAN
    depth = np.asarray(counts.sum(axis=1), dtype=np.float64).ravel()
    scale = np.median(depth) / depth
    values = counts[:, genes].toarray() * scale[:, None]
    groups = pd.Series(mix).groupby(mix).indices.values()
    rest = sum(((values[rows] - values[rows].mean(axis=0)) ** 2).sum(axis=0) for rows in groups)
    mean, variance = values.mean(axis=0), rest / (len(values) - len(groups))
    shot = (values * scale[:, None]).mean(axis=0)  # variance of counting, scaled like the counts
    return float(np.median(((variance - shot) / np.maximum(mean, 1e-9) ** 2)[mean > 0]))
