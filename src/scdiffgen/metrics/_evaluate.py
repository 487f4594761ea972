"""Score generated cells against held-out real ones, beside ceiling and negative controls, over all and by group."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from scdiffgen._names import as_names
from scdiffgen.metrics._classifiers import N_FOLDS, ClassifierRoc, cross_validated_scores, roc_of_folds
from scdiffgen.metrics._comparison import Cells, Key, Pair, Settings, choose_metrics, compare, describe
from scdiffgen.metrics._evaluation_metrics import CLASSIFIERS, METRICS, OF_LABELS, OF_TRAIN
from scdiffgen.metrics._input import CountsLike
from scdiffgen.metrics._manifold import compare_novelty
from scdiffgen.metrics._real_cells import OVERALL, SOURCES, Source, prepare, to_cells
from scdiffgen.metrics._resampling import subsample

N_CORRELATED_GENES = 200


def evaluate(
    real: CountsLike,
    generated: CountsLike,
    train: CountsLike | None = None,
    groupby: str | None = None,
    *,
    other_real: CountsLike | None = None,
    layer: str | None = None,
    metrics: Sequence[str] | None = None,
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

    - ``"generated"``: the cells to judge;
    - ``"other_real"``: the other half of the real cells, the real-versus-real ceiling;
    - ``"null_poisson"``, ``"null_shuffled"``: the negative controls `baselines.null_poisson` and
      `baselines.null_shuffled` of the other half, per group, with the groups of the reference.

    Halves are drawn within groups. Expression, principal components, the most variable genes and the classifier of
    labels are fitted on ``train``. Without it they are fitted on one half of the real cells, and the rest is halved
    again; label accuracy is then that of a classifier of real cells, and novelty is not computed.

    Generate cells for the groups of the real cells: a different composition counts as an error in the overall row.

    Parameters
    ----------
    real
        Held-out real counts, (cells, genes).
    generated
        Generated counts, over the same genes; AnnData objects are aligned by name.
    train
        Real counts that the generator was trained on, or ``None``.
    groupby
        Column of ``obs`` of all the AnnData objects: a row per group, and the label of `label_accuracy`. ``None``
        scores all cells together.
    other_real
        Independent real cells of the same composition. The real cells are then not halved for it.
    layer
        Layer that holds the counts; an AnnData without layers, as generated cells are, is read from ``.X``.
    metrics
        Column or columns to compute, by default all of ``EVALUATION_METRICS``, but ``"wasserstein"`` only where POT is
        installed. The forests take most of the time.
    sources
        Row or rows to compute.
    n_pcs
        Number of principal components.
    n_top_genes
        Number of most variable genes to compare; ``None`` compares all.
    max_cells
        Cells compared of each side, in the overall row and in each group; drawn without replacement.
    n_bootstrap
        Resamples of cells behind the intervals; 0 computes none. Classifiers are not fitted again and transport is
        linearised, so that intervals hold for the cells and not for the fits.
    n_trees, n_jobs
        Trees and threads of the forests.
    seed
        Seed of halves, subsamples, negative controls, folds, forests and resamples.

    Returns
    -------
    Scores with index ``(group, source)``, the first group being ``"overall"``. Columns: ``n``, cells compared of each
    side; the metrics; and for each its 95 % interval ``<metric>_low``, ``<metric>_high``. ``.attrs`` holds
    ``direction`` and ``ideal`` of each metric (``"other_real"``: the value in that row), ``n_cells`` given, and
    ``settings``.

    Raises
    ------
    ValueError
        If there is no such metric or source.
    ImportError
        If ``"wasserstein"`` is asked for by name, and POT is not installed.

    Warns
    -----
    UserWarning
        If ``metrics`` is ``None`` and POT is not installed.
    FewCellsWarning
        If groups have fewer cells than metrics need; these are NaN.
    CopyWarning
        If generated cells copy training cells.

    Examples
    --------
    >>> import numpy as np
    >>> real, generated = np.random.default_rng(0).poisson(1.0, size=(2, 200, 20))
    >>> scores = evaluate(real, generated, metrics=["mmd", "mean_slope"], n_pcs=5)
    >>> scores.loc[("overall", "generated"), "mmd"] < 0.05
    np.True_
    """
    sources = as_names(sources)
    chosen = choose_metrics(metrics, METRICS, sources, SOURCES, "sources")
    absent = (set() if train is not None else OF_TRAIN) | (set() if groupby is not None else OF_LABELS)
    chosen = {name: metric for name, metric in chosen.items() if name not in absent}
    options: dict[str, Any] = {
        "other_real": other_real,
        "layer": layer,
        "n_pcs": n_pcs,
        "n_top_genes": n_top_genes,
        "seed": seed,
    }
    space, samples = prepare(real, generated, train, groupby, sources=sources, **options)
    with_labels, with_train = (bool(special & set(chosen)) for special in (OF_LABELS, OF_TRAIN))
    cells = to_cells(samples, space, with_labels=with_labels, with_train=with_train, seed=seed)
    if with_train and "generated" in sources and len(cells["generated"].pcs) and len(cells["reference"].pcs):
        compare_novelty(cells["generated"].to_train, cells["reference"].to_train)
    genes = space.most_variable_genes(N_CORRELATED_GENES)
    settings = Settings(max_cells, n_bootstrap, n_trees, n_jobs, seed, genes)
    asked = [source for source in SOURCES if source in sources]
    scores = compare(
        _pairs(cells, asked, settings),
        chosen,
        ["group", "source", "n"],
        intervals=n_bootstrap > 0,
        in_words=lambda keys: _groups_in_words(keys, len(asked)),
    ).set_index(["group", "source"])
    more = {"fitted_on": "real" if train is None else "train", "n_bootstrap": n_bootstrap}
    scores.attrs = describe(chosen, space, settings, more)
    scores.attrs["n_cells"] = {name: len(sample.labels) for name, sample in samples.items()}
    return scores


def evaluation_roc(
    real: CountsLike,
    generated: CountsLike,
    train: CountsLike | None = None,
    groupby: str | None = None,
    *,
    layer: str | None = None,
    n_pcs: int = 30,
    n_top_genes: int | None = None,
    max_cells: int = 2000,
    n_trees: int = 100,
    n_jobs: int = 1,
    seed: int = 0,
) -> dict[str, ClassifierRoc]:
    """ROC of the three classifiers of `evaluate`, over all cells; given the same arguments, their AUCs are the same.

    Parameters
    ----------
    real, generated, train, groupby, layer, n_pcs, n_top_genes, max_cells, n_trees, n_jobs, seed
        As in `evaluate`. Groups only say how the real cells are halved.

    Returns
    -------
    By the name of the metric in `evaluate`: ``false_positive``, shares of the real cells taken for generated ones,
    (points,), from 0, which stands twice, to 1; ``true_positive``, shares of the generated cells found at each of
    these, a curve for each test fold, (folds, points); and the area ``auc`` of each fold, (folds,).

    Raises
    ------
    ValueError
        If a side has fewer than five cells.

    Examples
    --------
    >>> import numpy as np
    >>> real, generated = np.random.default_rng(0).poisson(1.0, size=(2, 200, 20))
    >>> list(evaluation_roc(real, generated, n_pcs=5, n_trees=10))
    ['c2st_auc_forest_pcs', 'c2st_auc_forest_genes', 'c2st_auc_logistic_genes']
    """
    options: dict[str, Any] = {"layer": layer, "n_pcs": n_pcs, "n_top_genes": n_top_genes, "seed": seed}
    space, samples = prepare(real, generated, train, groupby, other_real=None, sources=(), **options)
    cells = to_cells(samples, space, with_labels=False, with_train=False, seed=seed)
    reference, judged = cells["reference"], cells["generated"]
    sizes = {"real": min(len(reference.pcs), len(cells["other_real"].pcs)), "generated": len(judged.pcs)}
    for name, n_cells in sizes.items():
        if n_cells < N_FOLDS:
            raise ValueError(f"`{name}` has {n_cells} cells to compare; a classifier needs at least {N_FOLDS}.")
    n = min(max_cells, *sizes.values())
    x = reference.take(subsample(len(reference.pcs), n, [seed, 0]))
    y = judged.take(subsample(len(judged.pcs), n, [seed, 0, 0]))
    forest = {"n_trees": n_trees, "n_jobs": n_jobs, "seed": seed}
    return {
        name: roc_of_folds(cross_validated_scores(getattr(x, features), getattr(y, features), kind, **forest))
        for name, (kind, features) in CLASSIFIERS.items()
    }


def _pairs(cells: Mapping[str, Cells], asked: Sequence[str], settings: Settings) -> Iterator[tuple[Key, Pair]]:
    """Pair the reference cells of each group with equally many of each source, or with none where there are none."""
    known = np.unique(np.concatenate([sample.labels for sample in cells.values()]).astype(str))
    for g, group in enumerate([OVERALL, *(label for label in known if label != OVERALL)]):
        members = {source: _members(sample.labels, group) for source, sample in cells.items()}
        reference = cells["reference"].take(members.pop("reference"))
        n = min([len(reference.pcs), *(len(rows) for rows in members.values() if len(rows))])
        for source in asked:
            rows, seeds = members[source], ([settings.seed, g], [settings.seed, g, SOURCES.index(source)])
            pair = settings.pair(reference, cells[source].take(rows), min(n, len(rows)), seeds)
            yield {"group": group, "source": source, "n": len(pair.real.pcs)}, pair


def _members(labels: NDArray, group: str) -> NDArray[np.intp]:
    return np.arange(len(labels)) if group == OVERALL else np.flatnonzero(labels == group)


def _groups_in_words(keys: list[Key], n_sources: int) -> str:
    """Groups that lack cells, and the sources if it is not all of them."""
    cells: dict[str, dict[str, int]] = {}
    for key in keys:
        cells.setdefault(key["group"], {})[key["source"]] = key["n"]
    return ", ".join(
        f"{group} ({'' if len(of) == n_sources else ' and '.join(of) + ': '}{min(of.values())} cells)"
        for group, of in cells.items()
    )
