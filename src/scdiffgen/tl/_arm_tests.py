"""Differential expression tests of treated against control arms: p-values by gene, NaN for too few molecules."""

import numpy as np
import pandas as pd
from anndata import AnnData
from scipy import optimize, special, stats

from scdiffgen._log_normalise import log_normalise


def pseudobulk_test(adata: AnnData) -> pd.Series:
    """Compute the moderated t test of log CPM of donor pseudobulks, paired if the experiment is paired."""
    expression = log_pseudobulks(adata)
    before, after = expression.loc["control"], expression.loc["treated"]
    if adata.uns["simulation"]["paired"]:
        paired = (after - before).dropna()  # donors of both arms
        change, variance, df = paired.mean(), paired.var() / len(paired), len(paired) - 1
    else:
        change, df = after.mean() - before.mean(), len(expression) - 2
        within = after.var(ddof=0) * len(after) + before.var(ddof=0) * len(before)
        variance = within / df * (1 / len(after) + 1 / len(before))
    moderated, df_moderated = moderated_variances(variance.to_numpy(), df, expression.mean().to_numpy())
    p_values = 2 * stats.t.sf(change.abs() / np.sqrt(moderated), df_moderated)
    return pd.Series(p_values, index=expression.columns).reindex(adata.var_names)


def log_pseudobulks(adata: AnnData, least: int = 10) -> pd.DataFrame:
    """Compute log2 CPM :cite:p:`law2014voom` of samples, for genes with at least ``least`` molecules.

    Library sizes are scaled by median ratios :cite:p:`anders2010differential` over genes with at least ``least``
    molecules per sample, so that a few large changes do not shift other genes.
    """
    groups = adata.obs.groupby(["arm", "donor"], observed=True).indices
    counts = np.stack([np.asarray(adata.X[rows].sum(0), dtype=np.float64).ravel() for rows in groups.values()]) + 0.5
    size, reference = counts.sum(1), counts.mean(0) >= least
    if reference.any():
        logs = np.log(counts[:, reference])
        size = np.exp(np.median(logs - logs.mean(0), axis=1) + np.log(size).mean())
    tested = counts.sum(0) >= least + 0.5 * len(counts)
    samples = pd.MultiIndex.from_tuples(list(groups), names=["arm", "donor"])
    return pd.DataFrame(np.log2(counts[:, tested] / size[:, None] * 1e6), samples, adata.var_names[tested])


def moderated_variances(variance: np.ndarray, df: int, mean: np.ndarray) -> tuple[np.ndarray, float]:
    """Shrink variances ``(genes,)`` to a cubic trend over means by empirical Bayes :cite:p:`smyth2004linear`."""
    variance, degree = np.maximum(variance, 1e-5 * np.median(variance)), min(3, len(variance) // 20)
    log_variance = np.log(variance) - special.digamma(df / 2) + np.log(df / 2)
    trend = np.polynomial.Polynomial.fit(mean, log_variance, degree)(mean)
    excess = np.square(log_variance - trend).sum() / max(len(mean) - degree - 1, 1) - special.polygamma(1, df / 2)
    if excess < 1e-6:
        return np.exp(trend), 1e9  # variances differ by sampling noise alone
    half = np.exp(optimize.brentq(lambda log_half: special.polygamma(1, np.exp(log_half)) - excess, -20, 20))
    prior = np.exp(trend + special.digamma(half) - np.log(half))
    return (2 * half * prior + df * variance) / (2 * half + df), 2 * half + df


def cell_test(adata: AnnData) -> pd.Series:
    """Compute scanpy's Wilcoxon rank-sum test of cells, which treats cells as independent."""
    import scanpy as sc

    cells = AnnData(log_normalise(adata.X), obs=adata.obs[["arm"]], var=adata.var[[]])
    sc.tl.rank_genes_groups(cells, "arm", groups=["treated"], reference="control", method="wilcoxon")
    return sc.get.rank_genes_groups_df(cells, "treated").set_index("names")["pvals"].reindex(adata.var_names)
