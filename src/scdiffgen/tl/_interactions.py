"""Interactions of perturbations: what a combination does beyond the sum of its parts."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd
from anndata import AnnData
from numpy.typing import NDArray
from scipy import sparse, stats

from scdiffgen._arguments import check_share, is_finite_number
from scdiffgen._messages import counted, listed, unknown_name
from scdiffgen._shared_docs import shared_docs
from scdiffgen.tl._power import moderated_variances

GeneValues = NDArray[np.float64]
VERDICTS = ("additive", "synergistic", "buffering", "undecided")
FEWEST_DONORS, FEWEST_MOLECULES = 3, 10  # donors with all arms; molecules of a gene over all arms


@shared_docs
def interactions(
    adata: AnnData,
    perturbation_key: str,
    *,
    control: str = "control",
    donor_key: str | None = None,
    layer: str | None = None,
    margin: float = 0.5,
    alpha: float = 0.05,
) -> pd.DataFrame:
    """Estimate interactions of measured combinations: log-fold changes beyond the sum of those of the parts.

    The interaction of ``"A+B"`` is the log2 fold change of ``"A+B"`` minus the sum of those of ``"A"`` and ``"B"``,
    each against control, from pseudobulks scaled by median ratios.

    Parameters
    ----------
    adata
        Measured cells. Combinations are named ``"A+B"``; those with a part that was not measured alone are left out.
    perturbation_key, donor_key
        Columns of ``obs`` with the perturbation and, optionally, the donor or replicate. With donors, each donor with
        all arms has its own estimate, and intervals are moderated t intervals over donors (three at least). Without,
        intervals treat cells as independent, and ignore differences between replicates.
    control
        Label of the control cells.
    margin
        Largest absolute interaction, in log2 fold change, that counts as additive.
    alpha
        False discovery rate of interactions (Benjamini-Hochberg, in each combination), and 1 minus the level of the
        intervals.

    Returns
    -------
    One row per combination and gene: ``log2_fold_change``, ``sum_of_parts``, ``interaction`` with its interval ``low``
    to ``high``, ``p_value``, ``fdr`` and ``verdict``: ``"additive"`` (the interval is within the margin),
    ``"synergistic"`` or ``"buffering"`` (discovered; the combination changes the gene more, or less, than the sum of
    its parts), else ``"undecided"``. Genes with fewer than ten molecules are NaN and undecided.

    Raises
    ------
    ValueError
        If a column, layer or label is missing, no combination was measured with all parts in 10 cells per arm, or fewer
        than three donors have all arms.

    Examples
    --------
    >>> from scdiffgen import datasets, tl
    >>> cells = datasets.simulate(n_cells=800, n_genes=50, doses=[3.0])
    >>> table = tl.interactions(cells, "perturbation", layer="counts")
    >>> table["perturbation"].unique().tolist(), bool((table["verdict"] == "additive").mean() > 0.5)
    (['A+B'], True)
    """
    from scdiffgen.metrics._input import FEWEST_CELLS, as_counts, labels_of

    check_share("alpha", alpha)
    if not (is_finite_number(margin) and margin > 0):
        raise ValueError(f"`margin` is {margin!r}: pass a positive log2 fold change.")
    counts = as_counts(adata, layer=layer, name="adata")
    labels = pd.Series(labels_of(adata, perturbation_key, "adata", "perturbation_key"))
    labels = labels.map({label: "+".join(sorted(label.split("+"))) for label in labels.unique()} | {control: control})
    donors = pd.Series("", labels.index) if donor_key is None else labels_of(adata, donor_key, "adata", "donor_key")
    rows = {key: own.to_numpy() for key, own in labels.groupby([labels, donors]).groups.items()}
    arms = {key: counts[own] for key, own in rows.items() if len(own) >= FEWEST_CELLS}
    measured = {label for label, _ in arms}
    if control not in measured:
        known = sorted(measured)
        raise ValueError(f"`control`: {unknown_name(f'label of at least {FEWEST_CELLS} cells', control, known)}")
    tables = []
    for name in sorted(label for label in measured if "+" in label and measured.issuperset(label.split("+"))):
        names = [control, *name.split("+"), name]
        replicates = [
            [arms[arm, d] for arm in names] for d in np.unique(donors) if {(arm, d) for arm in names} <= {*arms}
        ]
        if donor_key is not None and len(replicates) < FEWEST_DONORS:
            raise ValueError(
                f"`donor_key` is {donor_key!r}: {counted(len(replicates), 'donor')} with {FEWEST_CELLS} cells of each "
                f"arm of {name!r}, and {FEWEST_DONORS} are needed. Leave out the combination, or `donor_key`."
            )
        molecules = np.sum([arm.sum(0) for cells in replicates for arm in cells], axis=0).ravel()
        tested = molecules >= FEWEST_MOLECULES
        found = [_changes([arm[:, tested] for arm in cells]) for cells in replicates]
        change, total = (np.mean([replicate[row] for replicate in found], axis=0) for row in (0, 1))
        variance, df = found[0][2], np.inf
        if donor_key is not None:
            between = np.var([after - expected for after, expected, _ in found], axis=0, ddof=1) / len(found)
            variance, df = moderated_variances(between, len(found) - 1, np.log(molecules[tested]))
        table = _table(change, total, np.sqrt(variance), df, margin, alpha, np.flatnonzero(tested))
        tables.append(table.reindex(range(adata.n_vars)).assign(perturbation=name, gene=adata.var_names))
    if not tables:
        raise ValueError(
            f"obs[{perturbation_key!r}] has no combination, such as 'A+B', whose parts were measured alone in "
            f"{FEWEST_CELLS} cells. Its labels are {listed(sorted(measured))}."
        )
    joined = pd.concat(tables, ignore_index=True).set_index(["perturbation", "gene"]).reset_index()
    return joined.assign(verdict=pd.Categorical(joined["verdict"].fillna(VERDICTS[-1]), VERDICTS))


def _changes(arms: Sequence[sparse.csr_matrix]) -> tuple[GeneValues, GeneValues, GeneValues]:
    """Estimate log2 changes ``(genes,)`` by the combination (last arm), the sum by its parts, and their variance."""
    logs, variances = (np.stack(values) for values in zip(*map(_log_pseudobulk, arms), strict=True))
    reference = np.min([arm.sum(0) for arm in arms], axis=0).ravel() >= FEWEST_MOLECULES
    if reference.any():  # else total counts
        logs -= np.median(logs[:, reference] - logs[0, reference], axis=1, keepdims=True)
    squares = np.r_[(len(arms) - 3) ** 2, np.ones(len(arms) - 1)]  # of the coefficients of the interaction
    return logs[-1] - logs[0], (logs[1:-1] - logs[0]).sum(0), squares @ variances


def _log_pseudobulk(cells: sparse.csr_matrix, prior: float = 0.5) -> tuple[GeneValues, GeneValues]:
    """Compute the log2 share ``(genes,)`` of each gene among the molecules of cells, and its variance."""
    cells = cells.astype(np.float64)
    total, library = np.asarray(cells.sum(0)).ravel() + prior, np.asarray(cells.sum(1)).ravel()
    share = total / library.sum()
    squares = np.asarray(cells.power(2).sum(0)).ravel() - 2 * share * (library @ cells) + share**2 * (library @ library)
    variance = np.maximum(squares * len(library) / (len(library) - 1) / total**2, 1 / total)  # at least Poisson
    return np.log2(share), variance / np.log(2) ** 2


def _table(
    change: GeneValues, total: GeneValues, error: GeneValues, df: float, margin: float, alpha: float, genes: np.ndarray
) -> pd.DataFrame:
    """Tabulate interactions of genes by position, with intervals, tests and verdicts."""
    interaction, half = change - total, stats.t.isf(alpha / 2, df) * error
    table = pd.DataFrame({"log2_fold_change": change, "sum_of_parts": total, "interaction": interaction}, genes)
    p = 2 * stats.t.sf(np.abs(interaction) / error, df)
    table = table.assign(
        low=interaction - half, high=interaction + half, p_value=p, fdr=stats.false_discovery_control(p)
    )
    found, is_more = table["fdr"] <= alpha, np.abs(change) > np.abs(total)
    chosen = [np.abs(interaction) + half <= margin, found & is_more, found & ~is_more]
    return table.assign(verdict=np.select(chosen, VERDICTS[:3], VERDICTS[3]))
