"""Power of planned experiments, by tests of treated against control arms."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import product
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import pandas as pd
from anndata import AnnData
from scipy import optimize, special, stats

from scdiffgen._arguments import check_choice, check_names, check_share, check_whole_number, is_finite_number
from scdiffgen._log_normalise import log_normalise
from scdiffgen._messages import counted, raise_if_not_unique, warn_user
from scdiffgen._shared_docs import shared_docs
from scdiffgen.tl._experiments import ARMS, simulate_experiment

if TYPE_CHECKING:
    from scdiffgen.model import TokenDiffusion

    Test = Literal["pseudobulk", "cells"] | Callable[[AnnData], pd.Series]


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
    if expression.empty:
        return pd.Series(np.nan, index=adata.var_names)
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
    least = max(1e-5 * np.median(variance), np.finfo(np.float64).tiny)
    variance, degree = np.maximum(variance, least), min(3, len(variance) // 20)
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


TESTS: Mapping[str, Callable[[AnnData], pd.Series]] = {"pseudobulk": pseudobulk_test, "cells": cell_test}
STRATA = ("low", "middle", "high")
DESIGN = ("n_donors", "n_cells")
ESTIMATES = "stratum mean_counts molecules effect power low high n_genes".split()


@shared_docs
def power_analysis(
    model: TokenDiffusion,
    effect: Sequence[float] = (-1.0, -0.5, 0.5, 1.0),
    *,
    n_donors: Sequence[int] = (3, 6),
    n_cells: Sequence[int] = (50, 200),
    test: Test = "pseudobulk",
    alpha: float = 0.05,
    share_changed: float = 0.1,
    costs: tuple[float, float] = (0.0, 1.0),
    n_replicates: int = 3,
    experiment: Mapping[str, Any] | None = None,
    seed: int = 0,
) -> pd.DataFrame:
    """Estimate power, minimum detectable effects and the donors that are needed, by number of donors and cells.

    Each replicate simulates the largest design once (:func:`simulate_experiment`), with changes of random genes in each
    tertile of expression; smaller designs are subsamples of its donors and cells.

    Parameters
    ----------
    model
        A trained model of one AnnData.
    effect
        Log2 fold changes to plant, each in equally many genes; a repeated value in twice as many. Decreases are
        harder to detect than increases.
    n_donors, n_cells
        Numbers of donors per arm, and of cells per donor and arm, to compare.
    test
        ``"pseudobulk"``, a moderated t test of log CPM per donor (as limma-trend; paired if the experiment is);
        ``"cells"``, the rank test of :func:`scanpy.tl.rank_genes_groups`, which treats cells as independent; or a
        function of a simulated experiment that returns p-values by gene, NaN for untested genes.
    alpha
        False discovery rate (Benjamini-Hochberg), and level of ``type_1_error``.
    share_changed
        Share of the expressed genes that change.
    costs
        Costs of a sample (a donor in one arm) and of a cell, for ``cost``; by default cells are counted.
    n_replicates
        Number of simulated experiments.
    experiment
        Other arguments of :func:`simulate_experiment`, such as ``{"paired": True}``. With ``in_labels``, only cells of
        these labels are tested.

    Returns
    -------
    One row per design (``n_donors``, ``n_cells``), ``stratum`` of expression (``"all"``, ``"low"``, ``"middle"``,
    ``"high"``, with the median gene's ``mean_counts`` per cell and ``molecules`` per arm) and ``effect``: ``power``,
    with its 95 % Monte-Carlo interval ``low`` to ``high`` (Wilson, genes as independent) over ``n_genes`` of all
    replicates. Per design and stratum: ``false_discoveries`` (mean realised proportion), the mean numbers per
    experiment ``n_discoveries`` and ``n_false``, and ``type_1_error`` (share of unchanged genes with p below
    ``alpha``).

    ``detectable`` is the minimum detectable effect: the smallest absolute effect of this sign with a power of 0.8,
    interpolated between no effect and the planted effects; NaN above the largest. ``donors_needed`` is the number of
    donors per arm with a power of 0.8 and as many cells per donor: interpolated between the values of ``n_donors``, or
    extrapolated from the largest (infinite if nothing is detected). ``cost`` is the cost of these donors and their
    cells. ``depth_needed`` is a lower bound of the factor by which the molecules of the design must rise, by deeper
    sequencing, more cells or more donors: with Poisson noise alone, the power would then be 0.8.

    Raises
    ------
    ValueError
        If a number is out of range, there are too few expressed genes, or :func:`simulate_experiment` raises it.
    TypeError
        If ``experiment`` has an unknown argument, or ``test`` does not return a Series of p-values.

    Warns
    -----
    UserWarning
        If a third of the genes or more change, not evenly up and down, so that normalisation may shift unchanged genes.

    Examples
    --------
    >>> table = power_analysis(model, [1.0], n_donors=[3], n_cells=[10], n_replicates=1, experiment={"n_steps": 4})
    >>> table["stratum"].tolist()
    ['all', 'low', 'middle', 'high']
    """
    given = dict.fromkeys(("model", "log2_fold_change", *DESIGN, "seed"), "It is an argument of `power_analysis`.")
    check_names("simulate_experiment", experiment or {}, inspect.signature(simulate_experiment).parameters, given)
    effect, n_donors, n_cells = (np.atleast_1d(values).tolist() for values in (effect, n_donors, n_cells))
    for name, values in {"n_donors": n_donors, "n_cells": n_cells}.items():
        for value in values or [0]:
            check_whole_number(name, value, at_least=2)
    check_whole_number("n_replicates", n_replicates)
    check_share("alpha", alpha)
    check_share("share_changed", share_changed)
    if not (len(costs) == 2 and all(is_finite_number(cost) and cost >= 0 for cost in costs)):
        raise ValueError(f"`costs` is {costs!r}: pass the costs of a sample and of a cell, at least 0.")
    if not (len(effect) and all(is_finite_number(change) and change for change in effect)):
        raise ValueError(f"`effect` is {effect!r}: pass log2 fold changes, finite and not 0.")
    if not callable(test):
        check_choice("test", test, TESTS)
    p_values = test if callable(test) else TESTS[test]
    run = partial(simulate_experiment, model, **{"silent": True, **(experiment or {})})

    mean, stratum = _strata(_tested_cells(run(n_donors=1, n_cells=200, seed=seed)))
    outcomes = []
    for replicate in range(n_replicates):
        rng = np.random.default_rng([seed, replicate])
        planted = _planted(stratum, effect, share_changed, rng)
        study = run(
            log2_fold_change=planted, n_donors=max(n_donors), n_cells=max(n_cells), seed=int(rng.integers(2**31))
        )
        samples = study.obs.groupby(["arm", "donor"], observed=True, sort=False)
        place = samples.ngroup() % max(n_donors)
        rank = pd.Series(rng.permutation(study.n_obs), study.obs_names).groupby(samples.ngroup()).rank()
        genes = pd.DataFrame({"stratum": stratum, "mean_counts": mean, "effect": planted}).fillna({"effect": 0.0})
        for donors, cells in product(n_donors, n_cells):
            compared = _tested_cells(study[(place < donors) & (rank <= cells)].copy())
            _check_donors(compared, cells)
            tested = _checked_p_values(p := p_values(compared), study.var_names)
            fdr = pd.Series(stats.false_discovery_control(tested), tested.index)
            design = {
                "n_donors": donors,
                "n_cells": cells,
                "replicate": replicate,
                "molecules": mean * compared.n_obs / 2,
            }
            outcomes.append(genes.assign(p=p, found=fdr.reindex(genes.index) <= alpha, **design))
    table = _with_requirements(_power_table(every := pd.concat(outcomes), alpha), every, alpha)
    table["cost"] = 2 * table["donors_needed"] * (costs[0] + costs[1] * table["n_cells"])
    if share_changed >= 1 / 3 and np.mean(effect):
        largest = table[table["stratum"] == "all"].iloc[-1]
        warn_user(
            f"{share_changed:.0%} of the genes change, by {np.mean(effect):.2g} on average (log2): "
            "normalisation assumes that most genes do not, and may shift unchanged genes the other way. In the largest "
            f"design {largest['n_false']:.0f} of {largest['n_discoveries']:.0f} discoveries are false "
            f"({largest['false_discoveries']:.0%}; `alpha` is {alpha:g}). Normalise by spike-ins or by genes known to "
            "be stable, and pass the analysis as `test`."
        )
    return table


def _check_donors(study: AnnData, n_cells: int) -> None:
    """Raise unless two donors of each arm, or of both arms if the experiment is paired, have cells of the labels."""
    settings = study.uns["simulation"]
    donors = [set(study.obs["donor"][study.obs["arm"] == arm]) for arm in ARMS]
    if min(map(len, [donors[0] & donors[1]] if settings["paired"] else donors)) < 2:
        raise ValueError(
            f"`in_labels` of `experiment` is {list(settings['in_labels'])}, so rare that fewer than two donors of each "
            f"arm have such cells among {n_cells} cells: pass larger `n_cells`, or request these cells alone by "
            f"`experiment={{'conditions': {{{settings['label_key']!r}: ...}}}}`."
        )


def _checked_p_values(p: object, genes: pd.Index) -> pd.Series:
    """Return p-values of the tested genes; raise unless a test returned p-values of distinct genes."""
    if not (isinstance(p, pd.Series) and p.dtype.kind in "fiu" and p.index.isin(genes).all()):
        raise TypeError(f"`test` returned {p!r}: return a pandas Series of p-values, with the genes as index.")
    raise_if_not_unique(p.index, "Genes in the result of `test`", "Return one p-value for each gene.")
    tested = p.dropna()
    if not tested.between(0, 1).all():
        worst = tested[~tested.between(0, 1)].iloc[0]
        raise ValueError(f"`test` returned {worst:g}: return p-values in [0, 1], not their logarithms or statistics.")
    return tested


def _tested_cells(study: AnnData) -> AnnData:
    """Select the cells of the labels with planted changes."""
    settings = study.uns["simulation"]
    return study[study.obs[settings["label_key"]].isin(settings["in_labels"])] if "in_labels" in settings else study


def _strata(pilot: AnnData) -> tuple[pd.Series, pd.Series]:
    """Return mean counts and expression stratum of the detected genes."""
    mean = pd.Series(np.asarray(pilot.X.mean(0)).ravel(), index=pilot.var_names)
    mean = mean[mean > 0]
    if len(mean) < len(STRATA):
        raise ValueError(
            f"`model`: only {counted(len(mean), 'gene')} detected in {counted(pilot.n_obs, 'simulated cell')} of the "
            f"tested labels, but power is reported for {len(STRATA)} strata of expression: pass a model of more genes, "
            "or labels with more cells."
        )
    return mean, pd.qcut(mean.rank(method="first"), len(STRATA), labels=STRATA)


def _planted(stratum: pd.Series, effect: Sequence[float], share: float, rng: np.random.Generator) -> pd.Series:
    """Draw genes of each stratum and assign log2 fold changes."""
    planted = []
    for name in STRATA:
        genes = rng.permutation(stratum.index[stratum == name])
        chosen = genes[: round(share * len(genes))]
        if len(chosen) < len(effect):
            raise ValueError(
                f"`share_changed` is {share}, which selects {len(chosen)} of {len(genes)} genes of {name} expression, "
                f"fewer than the {len(effect)} values of `effect`: pass a larger share, or fewer values."
            )
        planted.append(pd.Series(np.resize(effect, len(chosen)), index=chosen))
    return pd.concat(planted)


def _power_table(outcomes: pd.DataFrame, alpha: float) -> pd.DataFrame:
    """Aggregate outcomes of genes, designs and replicates to designs, strata and effects."""
    both = pd.concat([outcomes.assign(stratum="all"), outcomes.astype({"stratum": str})])
    both["stratum"] = pd.Categorical(both["stratum"], ["all", *STRATA])
    rows = []
    for design, genes in both.groupby([*DESIGN, "stratum"], observed=True):
        unchanged, replicate = genes["effect"] == 0, genes["replicate"]
        n_false, n_discoveries = (x.groupby(replicate).sum() for x in (genes["found"] & unchanged, genes["found"]))
        errors = {
            "false_discoveries": (n_false / n_discoveries.clip(lower=1)).mean(),
            "n_discoveries": n_discoveries.mean(),
            "n_false": n_false.mean(),
            "type_1_error": (genes.loc[unchanged, "p"].dropna() < alpha).mean(),
        }
        rates = genes[~unchanged].groupby("effect")["found"].agg(["mean", "sum", "size"])
        for effect, (mean, hits, n_genes) in rates.iterrows():
            low, high = stats.binomtest(int(hits), int(n_genes)).proportion_ci(method="wilson")
            expression = genes[["mean_counts", "molecules"]].median()
            estimate = [*design, *expression, effect, mean, low, high, int(n_genes)]
            rows.append(dict(zip([*DESIGN, *ESTIMATES], estimate, strict=True)) | errors)
    return pd.DataFrame(rows)


def _with_requirements(table: pd.DataFrame, outcomes: pd.DataFrame, alpha: float, target: float = 0.8) -> pd.DataFrame:
    """Add the detectable effects, and the donors and depth needed for the ``target`` power, by the law of a z test."""
    # The power at effect b is P(Z + m > z_{1 - t/2}), with a mean m proportional to b and to the root of the number of
    # donors. The level t of single tests is the share of unchanged genes that are discovered.
    is_changed, quantile = outcomes["effect"] != 0, stats.norm.ppf(target)
    unchanged = outcomes[~is_changed].groupby([*DESIGN])["found"].agg(["sum", "size"])
    by_design, share = (unchanged["sum"] + 0.5) / (unchanged["size"] + 1), is_changed.mean()
    level = by_design.reindex(pd.MultiIndex.from_frame(table[[*DESIGN]]), fill_value=alpha).to_numpy()
    reached = alpha * share * target / (1 - alpha * (1 - share))  # the level if all changes have the target power
    limit, needed = (quantile + stats.norm.isf(t / 2) for t in (level, np.maximum(level, reached)))
    half = 0.5 / table["n_genes"].to_numpy()
    ahead = stats.norm.ppf(np.clip(table["power"].to_numpy(), half, 1 - half)) - quantile
    mean = np.maximum(limit + ahead, 1e-9)
    donors = table["n_donors"] * np.where(table["low"] > level, needed / mean, np.inf) ** 2
    noise = (1 + np.exp2(-table["effect"])) * (needed / (np.log(2) * table["effect"])) ** 2  # in molecules per arm
    rows = table.assign(ahead=ahead, mean=mean, limit=limit, donors=donors)
    for _, line in rows.groupby([*DESIGN, "stratum", rows["effect"] > 0], observed=True):
        sizes = line["effect"].abs().sort_values()
        curve = line["mean"][sizes.index].cummax()
        table.loc[line.index, "detectable"] = np.interp(line["limit"].iloc[0], [0, *curve], [0, *sizes], right=np.nan)
    for _, line in rows.sort_values("n_donors").groupby(["n_cells", "stratum", "effect"], observed=True):
        roots, curve = np.sqrt(line["n_donors"]), line["ahead"].cummax()
        n_donors = np.interp(0, curve, roots) ** 2 if curve.iloc[-1] >= 0 else line["donors"].iloc[-1]
        table.loc[line.index, "donors_needed"] = np.ceil(n_donors - 1e-9)
    return table.assign(depth_needed=noise / table["molecules"])
