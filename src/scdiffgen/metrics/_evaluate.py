"""Evaluation of generated against held-out real cells, with ceiling and negative controls."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np
from rich.console import Console
from rich.progress import track

from scdiffgen._names import as_names
from scdiffgen._shared_docs import shared_docs

from ._classifiers import label_hits
from ._comparison import HEADLINES, METRICS, OF_LABELS, OF_TRAIN, Key, Pair, Sample, Settings, choose, compare
from ._dispersion import disperse
from ._distances import compare_novelty, nearest_distances
from ._evaluation import Evaluation
from ._input import CountsLike
from ._label_contrasts import label_contrasts
from ._samples import OVERALL, SOURCES, Prepared, SampleSource, group_names, pairs, prepare
from ._score_verdicts import with_verdicts


@shared_docs
def evaluate(
    real: CountsLike,
    generated: CountsLike,
    train: CountsLike | None = None,
    groupby: str | None = None,
    *,
    other_real: CountsLike | None = None,
    layer: str | None = None,
    gene_symbols: str | None = None,
    metrics: Sequence[str] | str | None = None,
    sources: Sequence[SampleSource] | SampleSource = SOURCES,
    n_pcs: int = 30,
    max_cells: int = 2000,
    n_bootstrap: int = 100,
    n_trees: int = 100,
    n_jobs: int = 1,
    seed: int = 0,
    silent: bool = False,
) -> Evaluation:
    """Score generated cells against held-out real cells, with a real-versus-real ceiling and negative controls.

    Each source is compared with the same half of the real cells, the *reference*, at equal numbers of cells:
    ``"generated"``; ``"other_real"``, the other half of the real cells (the real-versus-real ceiling); and the negative
    controls `baselines.null_poisson` and `baselines.null_shuffled` of the other half, with the groups of the reference.

    Expression space and label classifier are fitted on ``train``. Without ``train``, they are fitted on half of the
    real cells, the other half is split into reference and ceiling, and novelty is not computed. Generate cells for the
    groups of the real cells: another composition counts as an error in the overall row.

    Parameters
    ----------
    groupby
        Column of ``obs`` of all cells: one row per group, and the label of `label_accuracy`; by default no groups.
    metrics
        Metric or metrics of ``EVALUATION_METRICS``, or ``"all"`` (``"wasserstein"`` only if POT is installed). The
        default is three classifiers (``"c2st_auc_..."``), ``"mmd"``, ``"recall"``, ``"mean_distance"``,
        ``"gene_correlation"``, and with ``train`` ``"novelty"``. The user guide describes what each metric detects.
    sources
        Source or sources to compute.
    n_bootstrap
        Number of bootstrap resamples of cells for the intervals; 0 computes none. Intervals exclude the uncertainty of
        fits: classifiers are not refitted, and transport is linearised.
    {forests}
    {draws}

    Returns
    -------
    An `Evaluation`, which shows scores and verdicts by group. ``.frame`` has the index ``(group, source)``; the first
    group is ``"overall"``. Columns: ``n``, the number of compared cells per side; each metric, followed by the verdict
    on generated cells in a column that states the best value (``"mmd, lower is better"``); and 95 % intervals
    ``<metric>_low``, ``<metric>_high``. ``.attrs`` holds ``direction`` and ``ideal`` of each metric
    (``"other_real"``: the value in that row), the ``verdict`` columns, ``n_cells`` and ``settings``.

    Verdicts compare intervals. ``"like other real cells"``: the intervals of generated and other real cells overlap, or
    the score is better. ``"like the negative control"``: the interval overlaps that of the worse control or lies beyond
    it. ``"between"``: neither. ``"unlike other real cells"``: different, without a control. ``"undecided, too few
    cells"``: fewer than ten, or the intervals overlap, but that of generated cells extends to the worse control, or to
    halfway between other real cells and the worst possible score (an AUC of 1). ``"undecided, control like real
    cells"``: the metric does not distinguish them. Verdicts need intervals and ``"other_real"``.

    Raises
    ------
    ValueError
        If a metric, source or column is unknown, or a label is called ``"overall"`` or ``"within"``.
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
    >>> scores = evaluate(real, generated, metrics="mmd", n_pcs=5, silent=True)
    >>> scores.frame.loc[("overall", "generated"), "mmd, lower is better"]
    'like other real cells'
    """
    sources = as_names(sources)
    chosen = choose(HEADLINES if metrics is None else metrics, METRICS, sources, SOURCES, "sources")
    absent = (set() if train is not None else OF_TRAIN) | (set() if groupby is not None else OF_LABELS)
    settings = Settings(layer, n_pcs, max_cells, n_bootstrap, n_trees, n_jobs, seed, gene_symbols=gene_symbols)
    prepared = prepare(real, generated, train, groupby, settings, other_real=other_real, sources=sources)
    return evaluated(
        prepared, groupby, [name for name in chosen if name not in absent], sources, settings, silent=silent
    )


def evaluated(
    prepared: Prepared,
    groupby: str | None,
    metrics: Sequence[str],
    sources: Sequence[str],
    settings: Settings,
    *,
    silent: bool,
) -> Evaluation:
    """Compute scores, variances along components if there are verdicts, and classifiers over all cells."""
    space, fitted, fitted_on, cells, _ = prepared
    if "label_accuracy" in metrics:
        cells = _with_hits(cells, fitted, settings.seed)
    if OF_TRAIN & set(metrics):
        cells = {name: side._replace(to_train=nearest_distances(fitted.pcs, side.pcs)) for name, side in cells.items()}
        if "generated" in sources and len(cells["generated"].pcs) and len(cells["reference"].pcs):
            compare_novelty(cells["generated"].to_train, cells["reference"].to_train)
    if "label_fold_change_slope" in metrics:
        settings = settings._replace(contrasts=label_contrasts(fitted.expression, fitted.labels))
    settings = settings._replace(genes=space.most_variable_genes(200))
    asked = [source for source in SOURCES if source in sources]
    chosen, folds = {name: METRICS[name] for name in metrics}, {}

    def scored() -> Iterator[tuple[Key, Pair]]:
        n_pairs, console = len(asked) * len(group_names(cells)), Console(stderr=True)
        every = pairs(cells, asked, settings)
        for key, pair in every if silent else track(every, "Scoring", n_pairs, console=console):
            yield key, pair
            if (key["group"], key["source"]) == (OVERALL, "generated"):
                folds.update(pair.fitted)

    def in_words(key: Key) -> tuple[str, str]:
        return key["source"], f"{key['group']}, {key['n']} cells"

    scores = compare(scored(), chosen, ["group", "source", "n"], space, settings, in_words)
    scores = scores.set_index(["group", "source"])
    scores.attrs["settings"] |= {"fitted_on": fitted_on, "n_bootstrap": settings.n_bootstrap}
    scores.attrs["n_cells"] = {name: len(side.labels) for name, side in {"fitted": fitted, **cells}.items()}
    frame = with_verdicts(scores)
    return Evaluation(frame, disperse(prepared, groupby, settings) if "verdict" in frame.attrs else None, folds)


def _with_hits(cells: Mapping[str, Sample], fitted: Sample, seed: int) -> dict[str, Sample]:
    """Add whether each cell is classified as its label; NaN with only one label."""
    hits = {name: np.full(len(side.pcs), np.nan) for name, side in cells.items()}
    if len(np.unique(fitted.labels)) > 1:
        samples = {name: (side.pcs, side.labels) for name, side in cells.items() if len(side.pcs)}
        hits |= label_hits(fitted.pcs, fitted.labels, samples, seed=seed)
    return {name: side._replace(hits=hits[name]) for name, side in cells.items()}
