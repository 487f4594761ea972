"""Cells of all sources in one expression space, their groups, and pairs of samples to compare."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Literal, NamedTuple, TypeAlias

import numpy as np
import pandas as pd
from anndata import AnnData
from numpy.typing import NDArray

from scdiffgen._messages import warn_user
from scdiffgen._names import symbols_of
from scdiffgen.metrics.baselines import null_poisson, null_shuffled

from ._comparison import Key, Pair, Sample, Settings
from ._input import CountsLike, Matrix, labels_of
from ._resampling import split_halves, subsample
from ._space import ExpressionSpace

SampleSource: TypeAlias = Literal["generated", "other_real", "null_poisson", "null_shuffled"]
SOURCES: tuple[SampleSource, ...] = ("generated", "other_real", "null_poisson", "null_shuffled")
CONTROLS = {"null_poisson": null_poisson, "null_shuffled": null_shuffled}
OVERALL = "overall"


class Prepared(NamedTuple):
    """Cells by source and of the ``"reference"``, in one space."""

    space: ExpressionSpace
    fitted: Sample  # cells on which the space is fitted
    fitted_on: str
    cells: dict[str, Sample]
    names: pd.Index | None = None  # displayed names of the genes of the space


def prepare(
    real: CountsLike,
    generated: CountsLike,
    train: CountsLike | None,
    groupby: str | None,
    settings: Settings,
    *,
    other_real: CountsLike | None = None,
    sources: Sequence[SampleSource] = (),
) -> Prepared:
    """Fit the space on training cells or half of the real cells, split the rest unless given, and add sources."""
    seed, labels = settings.seed, _groups(real, groupby, "real")
    half, rest = (np.arange(0), np.arange(len(labels))) if train is not None else split_halves(labels, seed=seed)
    fitted_on, source = ("real", real) if train is None else ("train", train)
    names = _shown_names(source, settings.gene_symbols, fitted_on)
    space = settings.space(real[half] if train is None else train, fitted_on)

    def sample(counts: CountsLike, name: str) -> Sample:
        return Sample.of(space, counts, name, _groups(counts, groupby, name))

    whole = sample(real, "real")
    fitted = whole.take(half) if train is None else sample(train, "train")
    if train is not None:
        _warn_of_training_cells(whole.counts, fitted.counts)
    if other_real is None:
        first, second = split_halves(labels[rest], seed=seed + 1)
        cells = {"reference": whole.take(rest[first]), "other_real": whole.take(rest[second])}
    else:
        cells = {"reference": whole.take(rest), "other_real": sample(other_real, "other_real")}
    cells["generated"], other = sample(generated, "generated"), cells["other_real"]
    drawn = cells["reference"].labels[np.isin(cells["reference"].labels, other.labels)]
    for name in (name for name in sources if name in CONTROLS):
        cells[name] = Sample.of(space, CONTROLS[name](other.counts, other.labels, drawn, seed=seed), name, drawn)
    return Prepared(space, fitted, fitted_on, cells, names)


def _warn_of_training_cells(real: Matrix, train: Matrix) -> None:
    """Warn if more than half of the distinct rows of counts are also rows of the training cells."""
    weights = np.random.default_rng(0).integers(1 << 30, size=real.shape[1])  # equal rows have equal, exact sums
    hashes, known = (counts.astype(np.float64) @ weights for counts in (real, train))
    if np.isin(distinct := np.unique(hashes), known).sum() > len(distinct) / 2:
        copied = f"{np.isin(hashes, known).sum():,} of {len(hashes):,} real cells are also training cells"
        warn_user(f"{copied}: scores of training cells show no generalisation. Pass held-out cells.")


def _shown_names(cells: CountsLike, gene_symbols: str | None, name: str) -> pd.Index | None:
    """Return gene names for messages and figures; ``None`` for a matrix."""
    if isinstance(cells, AnnData):
        return symbols_of(cells, gene_symbols, name)
    if gene_symbols is not None:
        raise TypeError(f"`gene_symbols` is {gene_symbols!r}, but `{name}` is a matrix: pass an AnnData with `.var`.")
    return None


def _groups(cells: CountsLike, groupby: str | None, name: str) -> NDArray:
    """Return the group of each cell; one group for all by default."""
    if groupby is None:
        return np.full(cells.shape[0], OVERALL, dtype=object)
    labels = labels_of(cells, groupby, name)
    if OVERALL in labels:
        raise ValueError(f"obs[{groupby!r}] of `{name}` has a group {OVERALL!r}, the name of the row over all cells.")
    return labels


def group_names(cells: Mapping[str, Sample]) -> list[str]:
    """List the group of all cells, then each label."""
    known = np.unique(np.concatenate([side.labels for side in cells.values()]).astype(str))
    return [OVERALL, *(label for label in known if label != OVERALL)]


def pairs(cells: Mapping[str, Sample], asked: Sequence[str], settings: Settings) -> Iterator[tuple[Key, Pair]]:
    """Pair the reference cells of each group with equally many cells of each source, or with none."""
    for g, group in enumerate(group_names(cells)):
        members = {
            source: np.flatnonzero((group == OVERALL) | (side.labels == group)) for source, side in cells.items()
        }
        reference = members.pop("reference")
        n = min([settings.max_cells, len(reference), *(len(rows) for rows in members.values() if len(rows))])
        for source in asked:
            rows, seeds = members[source], ([settings.seed, g], [settings.seed, g, SOURCES.index(source)])
            n_drawn = min(n, len(rows))
            x = cells["reference"].take(reference[subsample(len(reference), n_drawn, seeds[0])])
            y = cells[source].take(rows[subsample(len(rows), n_drawn, seeds[1])])
            pair = settings.pair(x, y, n_drawn, seeds)
            yield {"group": group, "source": source, "n": len(pair.real.pcs)}, pair
