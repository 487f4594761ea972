"""Tests of the treated against the control arm: p-values by gene, NaN for genes with too few molecules."""

from __future__ import annotations

import numpy as np
import pandas as pd
from anndata import AnnData
from scipy import optimize, special, stats

from scdiffgen._log_normalise import log_normalise


def pseudobulk_test(adata: AnnData, least: int = 10) -> pd.Series:
    """Moderated t test of log CPM :cite:p:`law2014voom` of donors, paired if the experiment is.

    Library sizes are scaled by median ratios :cite:p:`anders2010differential`: few large changes do not shift the rest.
    """
    groups = adata.obs.groupby(["arm", "donor"], observed=True).indices
    arm, donor = np.array(list(groups)).T
    counts = np.stack([np.asarray(adata.X[rows].sum(0), dtype=np.float64).ravel() for rows in groups.values()])
    tested, size, everywhere = counts.sum(0) >= least, counts.sum(1), (counts > 0).all(0)
    if everywhere.any():
        logs = np.log(counts[:, everywhere])
        size = np.exp(np.median(logs - logs.mean(0), axis=1) + np.log(size).mean())
    expression = np.log2((counts[:, tested] + 0.5) / (size[:, None] + 1) * 1e6)
    before, after = (expression[arm == name] for name in ("control", "treated"))
    if adata.uns["simulation"]["paired"]:
        both = np.intersect1d(donor[arm == "control"], donor[arm == "treated"])
        paired = after[np.isin(donor[arm == "treated"], both)] - before[np.isin(donor[arm == "control"], both)]
        change, variance, df = paired.mean(0), paired.var(0, ddof=1) / len(paired), len(paired) - 1
    else:
        change, df = after.mean(0) - before.mean(0), len(expression) - 2
        within = after.var(0) * len(after) + before.var(0) * len(before)
        variance = within / df * (1 / len(after) + 1 / len(before))
    variance, df_moderated = moderated_variances(variance, df, expression.mean(0))
    p_values = 2 * stats.t.sf(np.abs(change) / np.sqrt(variance), df_moderated)
    return pd.Series(p_values, index=adata.var_names[tested]).reindex(adata.var_names)


def moderated_variances(variance: np.ndarray, df: int, mean: np.ndarray) -> tuple[np.ndarray, float]:
    """Variances ``(genes,)`` shrunk to a cubic trend over the means, by empirical Bayes :cite:p:`smyth2004linear`."""
    variance, degree = np.maximum(variance, 1e-5 * np.median(variance)), min(3, len(variance) // 20)
    log_variance = np.log(variance) - special.digamma(df / 2) + np.log(df / 2)
    trend = np.polynomial.Polynomial.fit(mean, log_variance, degree)(mean)
    excess = np.square(log_variance - trend).sum() / max(len(mean) - degree - 1, 1) - special.polygamma(1, df / 2)
    if excess < 1e-6:
        return np.exp(trend), np.inf
    half = np.exp(optimize.brentq(lambda log_half: special.polygamma(1, np.exp(log_half)) - excess, -20, 20))
    prior = np.exp(trend + special.digamma(half) - np.log(half))
    return (2 * half * prior + df * variance) / (2 * half + df), 2 * half + df


def cell_test(adata: AnnData) -> pd.Series:
    """Wilcoxon rank-sum test of cells, as if all were independent, by scanpy."""
    import scanpy as sc

    cells = AnnData(log_normalise(adata.X), obs=adata.obs[["arm"]], var=adata.var[[]])
    sc.tl.rank_genes_groups(cells, "arm", groups=["treated"], reference="control", method="wilcoxon")
    return sc.get.rank_genes_groups_df(cells, "treated").set_index("names")["pvals"].reindex(adata.var_names)
