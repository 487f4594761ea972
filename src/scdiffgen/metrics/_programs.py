"""Spread and correlation of gene program scores in generated and real cells."""

from collections.abc import Mapping, Sequence
from itertools import combinations

import numpy as np
import pandas as pd
from anndata import AnnData
from numpy.typing import NDArray

from scdiffgen._log_normalise import log_normalise
from scdiffgen._messages import did_you_mean, listed
from scdiffgen._shared_docs import shared_docs
from scdiffgen.metrics.baselines import null_shuffled

from ._comparison import Pair, Sample, Settings
from ._input import FEWEST_CELLS, Matrix
from ._samples import Prepared, prepare
from ._spread import WITHIN, covariances, grouped_pairs, interval_table

N_BINS = 25  # number of expression bins of genes, as in scanpy
SOURCES = ("generated", "other_real", "null_shuffled")
OFF = {"generated": ("off", "low", "high"), "other_real": ("other_off", "other_low", "other_high")}
Programs = Mapping[str, Sequence[str]]


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
    ``other_off``, ``other_low``, ``other_high``, the comparison of other real cells; ``apart``, whether the interval of
    generated cells lies on one side of the best value and of the interval of other real cells; ``n``, the number of
    compared cells per side; ``n_genes`` of the program in the data. Values are NaN with fewer than ten cells.

    Raises
    ------
    ValueError
        If a program has no gene in the data, or a label is called ``"overall"`` or ``"within"``.

    Examples
    --------
    >>> from scdiffgen.datasets import pbmc68k
    >>> cells = pbmc68k()
    >>> table = gene_programs(cells[::2], cells[1::2], {"B": ["CD79A", "CD79B"]}, layer="counts")
    >>> table["n_genes"].tolist()
    [2]
    """
    settings = Settings(layer, max_cells=max_cells, n_bootstrap=n_bootstrap, seed=seed, gene_symbols=gene_symbols)
    return programs_of(
        prepare(real, generated, train, groupby, settings, other_real=other_real), groupby, programs, settings
    )


def programs_of(prepared: Prepared, groupby: str | None, programs: Programs, settings: Settings) -> pd.DataFrame:
    """Compute the table of `gene_programs`."""
    weights = program_weights(prepared.fitted.counts, prepared.names, programs)
    other = prepared.cells["other_real"]
    drawn = prepared.cells["reference"].labels
    drawn = drawn[np.isin(drawn, other.labels)]
    control = null_shuffled(other.counts, other.labels, drawn, seed=settings.seed)
    sides = {name: (side.counts, side.labels) for name, side in prepared.cells.items()} | {SOURCES[2]: (control, drawn)}
    scored = {name: Sample(log_normalise(counts) @ weights, labels=labels) for name, (counts, labels) in sides.items()}
    groups = grouped_pairs(scored, groupby, SOURCES, settings)
    tables = {group: _table(sides, list(programs), within=group == WITHIN) for group, sides in groups.items()}
    table = pd.concat(tables, names=["group", "statistic", "program"])
    n_genes = dict(zip(programs, (weights > 0).sum(axis=0).tolist(), strict=True))
    return table.assign(n_genes=[n_genes.get(name, np.nan) for name in table.index.get_level_values("program")])


def program_weights(counts: Matrix, genes: NDArray | None, programs: Programs) -> NDArray[np.float64]:
    """Compute weights of genes in program scores ``(genes, programs)``, by expression in given cells."""
    names = pd.Index([] if genes is None else genes)
    mean = np.asarray(log_normalise(counts).mean(axis=0)).ravel()
    bins = pd.Series(mean).rank(method="min").to_numpy() // max(1, round(len(mean) / (N_BINS - 1)))
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


def _table(by_source: Mapping[str, Pair], names: list[str], *, within: bool) -> pd.DataFrame:
    """Tabulate one group."""
    index = [("spread", name) for name in names] + [("correlation", ", ".join(two)) for two in combinations(names, 2)]
    values: dict[str, float | NDArray[np.float64]] = dict.fromkeys(("real", *SOURCES), np.nan)
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
    return pd.DataFrame(values, table.index).join(table.assign(n=n))


def _statistics(pair: Pair, side: str, *, within: bool) -> NDArray[np.float64]:
    """Compute standard deviations of programs and correlations of pairs, ``(statistics, rows of weights)``."""
    cells, weights = getattr(pair, side), getattr(pair, f"{side}_weights")
    labels = cells.labels if within else np.zeros(len(cells.pcs))
    matrices = covariances(cells.pcs, weights, labels)
    sd = np.sqrt(np.maximum(np.diagonal(matrices, axis1=1, axis2=2), 1e-12)).T
    pairs_of = combinations(range(len(sd)), 2)
    return np.vstack([sd, *(matrices[:, one, other] / (sd[one] * sd[other]) for one, other in pairs_of)])
