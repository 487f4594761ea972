"""Generated cells against held-out real ones, beside ceiling and negative controls, over all and by group."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Literal, NamedTuple, TypeAlias

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from scdiffgen._names import as_names
from scdiffgen._shared_docs import shared_docs
from scdiffgen.metrics._classifiers import fit_labels, label_hits
from scdiffgen.metrics._comparison import (
    HEADLINES,
    METRICS,
    OF_LABELS,
    OF_TRAIN,
    Cells,
    Key,
    Pair,
    Settings,
    choose,
    compare,
)
from scdiffgen.metrics._distances import compare_novelty, nearest_distances
from scdiffgen.metrics._input import CountsLike, labels_of
from scdiffgen.metrics._label_contrasts import label_contrasts
from scdiffgen.metrics._resampling import split_halves, subsample
from scdiffgen.metrics._score_verdicts import with_verdicts
from scdiffgen.metrics._space import ExpressionSpace
from scdiffgen.metrics._spread import detected_residuals
from scdiffgen.metrics.baselines import null_poisson, null_shuffled

Source: TypeAlias = Literal["generated", "other_real", "null_poisson", "null_shuffled"]
SOURCES: tuple[Source, ...] = ("generated", "other_real", "null_poisson", "null_shuffled")
CONTROLS = {"null_poisson": null_poisson, "null_shuffled": null_shuffled}
OVERALL = "overall"
N_CORRELATED_GENES = 200


class Prepared(NamedTuple):
    """What is compared, and where: cells by source, beside ``"reference"``, in one space."""

    space: ExpressionSpace
    fitted: Cells  # that the space is fitted on
    fitted_on: str
    cells: dict[str, Cells]


@shared_docs
def evaluate(
    real: CountsLike,
    generated: CountsLike,
    train: CountsLike | None = None,
    groupby: str | None = None,
    *,
    other_real: CountsLike | None = None,
    layer: str | None = None,
    metrics: Sequence[str] | str | None = None,
    sources: Sequence[Source] | Source = SOURCES,
    n_pcs: int = 30,
    n_top_genes: int | None = None,
    max_cells: int = 2000,
    n_bootstrap: int = 100,
    n_trees: int = 100,
    n_jobs: int = 1,
    seed: int = 0,
) -> pd.DataFrame:
    """Score generated cells against held-out real cells, beside what real cells and negative controls score.

    All sources are compared with the same half of the real cells, the *reference*, at equal numbers of cells:
    ``"generated"``, the cells to judge; ``"other_real"``, the other half of the real cells, the real-versus-real
    ceiling; and the negative controls `baselines.null_poisson` and `baselines.null_shuffled` of the other half, per
    group, with the groups of the reference.

    Halves are drawn within groups. Expression, principal components, the most variable genes and the classifier of
    labels are fitted on ``train``. Without it they are fitted on one half of the real cells, and the rest is halved
    again; label accuracy is then that of a classifier of real cells, and novelty is not computed. Generate cells for
    the groups of the real cells: a different composition counts as an error in the overall row.

    Parameters
    ----------
    {sides}
    {train}
    groupby
        Column of ``obs`` of all cells: a row per group, and the label of `label_accuracy`; by default no groups.
    other_real
        Independent real cells of the same composition; the real cells are then not halved for them.
    {layer}
    metrics
        Metric or metrics to compute, or ``"all"`` of ``EVALUATION_METRICS`` (``"wasserstein"`` only where POT is
        installed). By default five, of which each sees what the others miss: ``"c2st_auc_forest_genes"``, can a
        classifier distinguish the cells at all; ``"mmd"``, how far apart the two clouds of cells are; ``"recall"``, are
        states lost; ``"gene_correlation"``, do genes go together; and with ``train`` ``"novelty"``, are cells copies,
        which all others reward.
    sources
        Row or rows to compute.
    {space}
    {max_cells}
    n_bootstrap
        Resamples of cells behind the intervals, which hold for the cells and not for the fits: classifiers are not
        fitted again, and transport is linearised. 0 computes none.
    {forests}
    {draws}

    Returns
    -------
    Scores with index ``(group, source)``, the first group being ``"overall"``. Columns: ``n``, cells compared of each
    side; each metric, and beside it its verdict on the generated cells in words, in a column that says where the metric
    is best, such as ``"mmd, lower is better"``; and the 95 % intervals ``<metric>_low``, ``<metric>_high``. ``.attrs``
    holds ``direction`` and ``ideal`` of each metric (``"other_real"``: the value in that row), the ``verdict`` column,
    ``n_cells`` given, and ``settings``.

    Verdicts compare intervals: ``"like other real cells"``, if those of generated and other real cells overlap or the
    score is better; ``"like the negative control"``, if it overlaps with the worse control or lies beyond it;
    ``"between"``; or ``"undecided"``, with fewer than ten cells, an interval that overlaps with both, or a metric that
    does not distinguish the controls from other real cells. Without controls, and of novelty, as controls do not copy,
    ``"unlike other real cells"`` takes the place of the last two. There are none without intervals or ``"other_real"``.

    Raises
    ------
    ValueError
        If there is no such metric or source.
    {raises_pot}

    Warns
    -----
    {warns}
    CopyWarning
        If generated cells copy training cells.

    Examples
    --------
    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> programme = np.exp(rng.normal(size=(2, 400, 1)) * (np.arange(20) < 10))
    >>> real, generated = rng.poisson(3 * programme)
    >>> scores = evaluate(real, generated, metrics="mmd", n_pcs=5)
    >>> scores.loc[("overall", "generated"), "mmd, lower is better"]
    'like other real cells'
    """
    sources = as_names(sources)
    chosen = choose(HEADLINES if metrics is None else metrics, METRICS, sources, SOURCES, "sources")
    absent = (set() if train is not None else OF_TRAIN) | (set() if groupby is not None else OF_LABELS)
    settings = Settings(layer, n_pcs, n_top_genes, max_cells, n_bootstrap, n_trees, n_jobs, seed)
    prepared = prepare(real, generated, train, groupby, settings, other_real=other_real, sources=sources)
    return with_verdicts(score(prepared, [name for name in chosen if name not in absent], sources, settings))


def score(prepared: Prepared, metrics: Sequence[str], sources: Sequence[str], settings: Settings) -> pd.DataFrame:
    """The table of `evaluate`."""
    space, fitted, fitted_on, cells = prepared
    if "label_accuracy" in metrics:
        cells = _with_hits(cells, fitted, settings.seed)
    if OF_TRAIN & set(metrics):
        cells = {name: side._replace(to_train=nearest_distances(fitted.pcs, side.pcs)) for name, side in cells.items()}
        if "generated" in sources and len(cells["generated"].pcs) and len(cells["reference"].pcs):
            compare_novelty(cells["generated"].to_train, cells["reference"].to_train)
    if "detected_spread" in metrics:
        residuals = detected_residuals(fitted.counts, *(side.counts for side in cells.values()))
        cells = {n: side._replace(detected=off) for (n, side), off in zip(cells.items(), residuals, strict=True)}
    if "label_fold_change_slope" in metrics:
        settings = settings._replace(contrasts=label_contrasts(fitted.expression, fitted.labels))
    settings = settings._replace(genes=space.most_variable_genes(N_CORRELATED_GENES))
    asked = [source for source in SOURCES if source in sources]
    in_words = partial(_groups_in_words, n_sources=len(asked))
    chosen = {name: METRICS[name] for name in metrics}
    scores = compare(pairs(cells, asked, settings), chosen, ["group", "source", "n"], space, settings, in_words)
    scores = scores.set_index(["group", "source"])
    scores.attrs["settings"] |= {"fitted_on": fitted_on, "n_bootstrap": settings.n_bootstrap}
    scores.attrs["n_cells"] = {name: len(side.labels) for name, side in {"fitted": fitted, **cells}.items()}
    return scores


def prepare(
    real: CountsLike,
    generated: CountsLike,
    train: CountsLike | None,
    groupby: str | None,
    settings: Settings,
    *,
    other_real: CountsLike | None = None,
    sources: Sequence[Source] = (),
) -> Prepared:
    """Fit the space on training or half of the real cells, halve the rest unless other cells are given, add sources.

    The cells are ``"reference"``, the first two sources, and the negative controls among ``sources``: these are made of
    other real cells, for the groups of the reference.
    """
    seed, labels = settings.seed, _groups(real, groupby, "real")
    half, rest = (np.arange(0), np.arange(len(labels))) if train is not None else split_halves(labels, seed=seed)
    space = settings.space(real[half] if train is None else train)

    def sample(counts: CountsLike, name: str) -> Cells:
        return Cells.of_many(space, counts, name, _groups(counts, groupby, name))

    whole = sample(real, "real")
    fitted = whole.take(half) if train is None else sample(train, "train")
    if other_real is None:
        first, second = split_halves(labels[rest], seed=seed + 1)
        cells = {"reference": whole.take(rest[first]), "other_real": whole.take(rest[second])}
    else:
        cells = {"reference": whole.take(rest), "other_real": sample(other_real, "other_real")}
    cells["generated"], other = sample(generated, "generated"), cells["other_real"]
    drawn = cells["reference"].labels[np.isin(cells["reference"].labels, other.labels)]
    for name in (name for name in sources if name in CONTROLS):
        cells[name] = Cells.of_many(space, CONTROLS[name](other.counts, other.labels, drawn, seed=seed), name, drawn)
    return Prepared(space, fitted, "real" if train is None else "train", cells)


def _groups(cells: CountsLike, groupby: str | None, name: str) -> NDArray:
    """Group of every cell; without groups, one for all."""
    if groupby is None:
        return np.full(cells.shape[0], OVERALL, dtype=object)
    labels = labels_of(cells, groupby, name)
    if OVERALL in labels:
        raise ValueError(f"obs[{groupby!r}] of `{name}` has a group {OVERALL!r}, the name of the row over all cells.")
    return labels


def _with_hits(cells: Mapping[str, Cells], fitted: Cells, seed: int) -> dict[str, Cells]:
    """Add whether each cell is classified as its label; NaN where there is one label only."""
    hits = {name: np.full(len(side.pcs), np.nan) for name, side in cells.items()}
    if len(np.unique(fitted.labels)) > 1:
        model = fit_labels(fitted.pcs, fitted.labels, seed=seed)
        there = {name: side for name, side in cells.items() if len(side.pcs)}
        hits |= {name: label_hits(model, side.pcs, side.labels, "generated") for name, side in there.items()}
    return {name: side._replace(hits=hits[name]) for name, side in cells.items()}


def pairs(cells: Mapping[str, Cells], asked: Sequence[str], settings: Settings) -> Iterator[tuple[Key, Pair]]:
    """Pair the reference cells of each group with equally many of each source, or with none where there are none."""
    known = np.unique(np.concatenate([side.labels for side in cells.values()]).astype(str))
    for g, group in enumerate([OVERALL, *(label for label in known if label != OVERALL)]):
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


def _groups_in_words(keys: list[Key], n_sources: int) -> str:
    """Groups that lack cells, and the sources if it is not all of them."""
    cells: dict[str, dict[str, int]] = {}
    for key in keys:
        cells.setdefault(key["group"], {})[key["source"]] = key["n"]
    return ", ".join(
        f"{group} ({'' if len(of) == n_sources else ' and '.join(of) + ': '}{min(of.values())} cells)"
        for group, of in cells.items()
    )
