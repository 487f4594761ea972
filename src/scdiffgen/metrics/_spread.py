"""Spread of generated and real cells: variances along principal components, and gene programs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import combinations

import numpy as np
import pandas as pd
from anndata import AnnData
from numpy.typing import NDArray
from scipy import sparse

from scdiffgen._log_normalise import log_normalise
from scdiffgen._messages import did_you_mean, listed
from scdiffgen._shared_docs import shared_docs
from scdiffgen.metrics.baselines import null_shuffled

from ._comparison import CONFIDENCE, WITHIN, Comparison, Pair, Sample, Settings
from ._input import FEWEST_CELLS, Matrix
from ._resampling import Weights, unit_weights

RATIOS = {"generated": ("ratio", "low", "high"), "other_real": ("other_real", "other_real_low", "other_real_high")}

PROGRAM_SOURCES = ("generated", "other_real", "null_shuffled")
OFF = {"generated": ("off", "low", "high"), "other_real": ("other_off", "other_low", "other_high")}
Programs = Mapping[str, Sequence[str]]


def disperse(comparison: Comparison) -> pd.DataFrame:
    """Tabulate variance ratios along principal components, see `Evaluation`."""
    genes = _leading_genes(comparison)
    parts = comparison.grouped_pairs(list(RATIOS))
    tables = {group: _dispersion_table(sides, genes, within=group == WITHIN) for group, sides in parts.items()}
    return pd.concat(tables, names=["group", "component"])


def _dispersion_table(sides: Mapping[str, Pair], genes: list[str], *, within: bool) -> pd.DataFrame:
    """Tabulate one group."""
    rows, share = {}, np.full(len(genes), np.nan)
    for source, pair in sides.items():
        if len(pair.real.pcs) < FEWEST_CELLS:
            continue
        labels = pair.labels if within else (None, None)
        rows[source] = log_variance_ratios(*pair.pcs, labels)
        pc_variances, gene_variances = (
            variances(form, unit_weights(form.shape[0]), labels[0])[0] for form in (pair.real.pcs, pair.real.expression)
        )
        share = pc_variances / max(gene_variances.sum(), 1e-12)
    index = [f"PC{i + 1}" for i in range(len(genes))]
    table = interval_table(rows, RATIOS, np.ones(len(genes), dtype=bool), index)
    return table.assign(share=share, genes=genes, n=min(len(pair.real.pcs) for pair in sides.values()))


def _leading_genes(comparison: Comparison) -> list[str]:
    """Name the three genes with the largest weights on each component; positions if genes have no names."""
    space, names = comparison.space, comparison.names
    names = np.arange(space.n_genes) if names is None else np.asarray(names)
    order = np.argsort(-np.abs(space.components), axis=1, kind="stable")[:, :3]
    return [", ".join(str(name) for name in names[top]) for top in order]


@shared_docs
def gene_programs(
    real: AnnData,
    generated: AnnData,
    programs: Programs,
    train: AnnData | None = None,
    groupby: str | None = None,
    *,
    other_real: AnnData | None = None,
    layer: str | None = None,
    gene_symbols: str | None = None,
    max_cells: int = 2000,
    n_bootstrap: int = 200,
    seed: int = 0,
) -> pd.DataFrame:
    """Compare spread and correlation of gene programs, such as cell cycle phases, with held-out real cells.

    Programs are scored as by :func:`scanpy.tl.score_genes`: the mean log expression of the genes minus that of control
    genes of similar expression, which corrects for library size. Control genes are all genes of the same expression
    bins in ``train``, so all cells are scored by the same genes. Cells are compared as in `evaluate`.

    Parameters
    ----------
    {within}
    {draws}

    Returns
    -------
    One row per group (``"overall"``, ``"within"``, each label), statistic and program: ``"spread"``, the standard
    deviation of scores, and ``"correlation"`` of the scores of two programs (``"G2M, S"``). Columns: the values in
    ``real``, ``generated`` and ``other_real`` cells and in the negative control ``null_shuffled``; ``off``, the ratio
    of spreads or the difference of correlations of generated against real cells, with 95 % interval ``low``, ``high``;
    ``apart``, whether this interval lies on one side of the best value and of the interval of other real cells; ``n``,
    the number of compared cells per side. Values are NaN with fewer than ten cells.

    Raises
    ------
    ValueError
        If a program has no gene in the data, or a label is called ``"overall"`` or ``"within"``.

    Examples
    --------
    >>> from scdiffgen.datasets import pbmc68k
    >>> cells = pbmc68k()
    >>> table = gene_programs(cells[::2], cells[1::2], {"B": ["CD79A", "CD79B"]}, layer="counts")
    >>> table["apart"].tolist()
    [False]
    """
    settings = Settings(layer, max_cells=max_cells, n_bootstrap=n_bootstrap, seed=seed, gene_symbols=gene_symbols)
    comparison = Comparison.of(real, generated, train, groupby, settings, other_real=other_real)
    return programs_of(comparison, programs)


def programs_of(comparison: Comparison, programs: Programs) -> pd.DataFrame:
    """Compute the table of `gene_programs`."""
    weights = program_weights(comparison.fitted.counts, comparison.names, programs)
    other = comparison.cells["other_real"]
    drawn = comparison.cells["reference"].labels
    drawn = drawn[np.isin(drawn, other.labels)]
    control = null_shuffled(other.counts, other.labels, drawn, seed=comparison.settings.seed)
    sides = {name: (side.counts, side.labels) for name, side in comparison.cells.items()} | {
        PROGRAM_SOURCES[2]: (control, drawn)
    }
    scored = {name: Sample(log_normalise(counts) @ weights, labels=labels) for name, (counts, labels) in sides.items()}
    groups = replace(comparison, cells=scored).grouped_pairs(PROGRAM_SOURCES)
    tables = {group: _program_table(sides, list(programs), within=group == WITHIN) for group, sides in groups.items()}
    return pd.concat(tables, names=["group", "statistic", "program"])


def program_weights(counts: Matrix, genes: NDArray | None, programs: Programs) -> NDArray[np.float64]:
    """Compute weights of genes in program scores ``(genes, programs)``, by expression in given cells."""
    names = pd.Index([] if genes is None else genes)
    mean = np.asarray(log_normalise(counts).mean(axis=0)).ravel()
    n_bins = 25  # as in scanpy
    bins = pd.Series(mean).rank(method="min").to_numpy() // max(1, round(len(mean) / (n_bins - 1)))
    weights = np.zeros((len(mean), len(programs)))
    for column, (name, members) in enumerate(programs.items()):
        inside = names.isin([members] if isinstance(members, str) else list(members))
        if not inside.any():
            hint = did_you_mean(next(iter(members), ""), names)
            raise ValueError(f"`programs[{name!r}]` has no gene of the data: {listed(members)}.{hint}")
        control = np.isin(bins, bins[inside]) & ~inside
        weights[inside, column] = 1 / inside.sum()
        weights[control, column] = -1 / max(control.sum(), 1)
    return weights


def _program_table(by_source: Mapping[str, Pair], names: list[str], *, within: bool) -> pd.DataFrame:
    """Tabulate one group."""
    index = [("spread", name) for name in names] + [("correlation", ", ".join(two)) for two in combinations(names, 2)]
    values: dict[str, float | NDArray[np.float64]] = dict.fromkeys(("real", *PROGRAM_SOURCES), np.nan)
    rows, n_programs = {}, len(names)
    n = min(len(pair.real.pcs) for pair in by_source.values())
    for source, pair in by_source.items() if n >= FEWEST_CELLS else ():
        real, other = (_statistics(pair, side, within=within) for side in ("real", "generated"))
        values |= {"real": real[:, 0], source: other[:, 0]}
        off = other - real
        off[:n_programs] = np.log(other[:n_programs] / real[:n_programs])
        if source in OFF:
            rows[source] = off.T
    table = interval_table(rows, OFF, np.arange(len(index)) < n_programs, pd.MultiIndex.from_tuples(index))
    return pd.DataFrame(values, table.index).join(table.drop(columns=[*OFF["other_real"]]).assign(n=n))


def _statistics(pair: Pair, side: str, *, within: bool) -> NDArray[np.float64]:
    """Compute standard deviations of programs and correlations of pairs, ``(statistics, rows of weights)``."""
    cells, weights = getattr(pair, side), getattr(pair, f"{side}_weights")
    labels = cells.labels if within else np.zeros(len(cells.pcs))
    matrices = covariances(cells.pcs, weights, labels)
    sd = np.sqrt(np.maximum(np.diagonal(matrices, axis1=1, axis2=2), 1e-12)).T
    pairs_of = combinations(range(len(sd)), 2)
    return np.vstack([sd, *(matrices[:, one, other] / (sd[one] * sd[other]) for one, other in pairs_of)])


def variances(points: Matrix, weights: Weights, labels: NDArray | None = None) -> NDArray[np.float64]:
    """Compute unbiased variances of columns under each row of weights, pooled within labels, (rows, columns)."""
    squares, freedom = np.zeros((len(weights), points.shape[1])), np.zeros((len(weights), 1))
    labels = np.zeros(points.shape[0]) if labels is None else labels
    for label in np.unique(labels):
        x, w = points[labels == label].astype(np.float64), weights[:, labels == label]
        total = w.sum(axis=1, keepdims=True)
        squared = x.multiply(x).tocsr() if sparse.issparse(x) else x * x
        squares += w @ squared - (w @ x) ** 2 / np.maximum(total, 1)
        freedom += np.maximum(total - 1, 0)
    return np.clip(squares, 0, None) / np.maximum(freedom, 1)


def log_variance_ratios(
    x: NDArray, y: NDArray, wx: Weights, wy: Weights, labels: tuple[NDArray | None, NDArray | None] = (None, None)
) -> NDArray[np.float64]:
    """Compute log ratios of the variances of y to x along each dimension, (rows, dimensions)."""
    var_x, var_y = (variances(p, w, c) for p, w, c in ((x, wx, labels[0]), (y, wy, labels[1])))
    return np.log(np.maximum(var_y, 1e-12) / np.maximum(var_x, 1e-12))


def covariances(scores: NDArray, weights: Weights, labels: NDArray) -> NDArray[np.float64]:
    """Compute unbiased covariances of scores ``(cells, programs)`` within labels, one matrix per row of weights."""
    n_rows, n_programs = len(weights), scores.shape[1]
    total, freedom = np.zeros((n_rows, n_programs, n_programs)), np.zeros((n_rows, 1, 1))
    for label in np.unique(labels):
        x, w = scores[labels == label], weights[:, labels == label]
        size, sums = w.sum(axis=1)[:, None, None], w @ x
        total = total + np.einsum("rc,cp,cq->rpq", w, x, x) - sums[:, :, None] * sums[:, None] / np.maximum(size, 1)
        freedom = freedom + np.maximum(size - 1, 0)
    return total / np.maximum(freedom, 1)


def interval_table(
    resampled: Mapping[str, NDArray[np.float64]],
    columns: Mapping[str, tuple[str, str, str]],
    is_ratio: NDArray[np.bool_],
    index: pd.Index | Sequence[str],
) -> pd.DataFrame:
    """Tabulate estimates of generated and other real cells with 95 % intervals, from ``(rows, statistics)``."""
    # Ratios are passed as logarithms; the best ratio is 1 and the best difference 0. `apart` marks intervals of
    # generated cells on one side of the best value and of the interval of other real cells. Absent sources are NaN.
    table = pd.DataFrame(np.nan, index, [name for names in columns.values() for name in names])
    for source, rows in resampled.items():
        margin = CONFIDENCE * rows[1:].std(axis=0, ddof=1) if len(rows) > 2 else np.nan
        for name, end in zip(columns[source], (rows[0], rows[0] - margin, rows[0] + margin), strict=True):
            table[name] = np.where(is_ratio, np.exp(end), end)
    (low, high), (other_low, other_high) = (table[list(columns[s][1:])].to_numpy().T for s in columns)
    best = is_ratio.astype(float)
    return table.assign(apart=(high < np.minimum(other_low, best)) | (low > np.maximum(other_high, best)))
