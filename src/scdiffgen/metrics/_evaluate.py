"""Score generated cells against held-out real ones, beside the limit and the nulls, over all and per group."""

from __future__ import annotations

from collections.abc import Sequence

import pandas as pd

from scdiffgen._names import as_names
from scdiffgen.metrics._comparison import OF_TRAIN, Comparison
from scdiffgen.metrics._input import CountsLike
from scdiffgen.metrics._prepare import SOURCES, Preparer, Source, labelled, make_sources, split_real
from scdiffgen.metrics._scores import EVALUATION_METRICS, METRICS
from scdiffgen.metrics._transport import metrics_to_compute

N_CORRELATED_GENES = 200
OF_LABELS = {"label_accuracy"}  # metrics that need groups


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
    """Score generated cells against held-out real cells, beside what real cells and nulls score.

    All sources are compared with the same half of the real cells, the *reference*, at equal numbers of cells:

    - ``"generated"``: the cells to judge;
    - ``"other_real"``: the other half of the real cells, the limit of what can be reached;
    - ``"null_poisson"``, ``"null_shuffled"``: `null_poisson` and `null_shuffled` of the other half, per group, with the
      groups of the reference.

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
    n_trees
        Trees of the forests.
    n_jobs
        Threads of the forests.
    seed
        Seed of halves, subsamples, nulls, folds, forests and resamples.

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
    absent = (set() if train is not None else OF_TRAIN) | (set() if groupby is not None else OF_LABELS)
    sources = as_names(sources)
    wanted = _wanted(metrics_to_compute(metrics, EVALUATION_METRICS), sources, absent)
    parts = split_real(real, train, other_real, groupby, layer=layer, n_pcs=n_pcs, n_top_genes=n_top_genes, seed=seed)
    compared = make_sources(parts, labelled(generated, parts.space, groupby, "generated"), sources, seed=seed)
    preparer = Preparer.fit(
        parts, with_labels=bool(OF_LABELS & set(wanted)), with_train=bool(OF_TRAIN & set(wanted)), seed=seed
    )
    comparison = Comparison(
        reference=preparer.cells(parts.reference),
        sources={source: preparer.cells(compared[source]) for source in SOURCES if source in sources},
        reference_labels=parts.reference.labels,
        source_labels={source: cells.labels for source, cells in compared.items()},
        genes=parts.space.most_variable_genes(N_CORRELATED_GENES),
        max_cells=max_cells,
        n_bootstrap=n_bootstrap,
        n_trees=n_trees,
        n_jobs=n_jobs,
        seed=seed,
    )
    scores = comparison.score(wanted)
    scores.attrs = {
        "direction": {name: METRICS[name].direction for name in wanted},
        "ideal": {name: METRICS[name].ideal for name in wanted},
        "n_cells": {"fitted": len(parts.fitted.labels), "reference": len(parts.reference.labels)}
        | {source: len(cells.labels) for source, cells in compared.items()},
        "settings": {
            "fitted_on": "real" if train is None else "train",
            "n_genes": len(parts.space.columns),
            "n_pcs": len(parts.space.components),
            "max_cells": max_cells,
            "n_bootstrap": n_bootstrap,
            "n_trees": n_trees,
            "seed": seed,
        },
    }
    return scores


def _wanted(metrics: Sequence[str], sources: Sequence[Source], absent: set[str]) -> tuple[str, ...]:
    unknown = sorted(set(metrics) - set(METRICS)) + sorted(set(sources) - set(SOURCES))
    if unknown:
        raise ValueError(f"Unknown metrics or sources {unknown}. Metrics: {list(METRICS)}; sources: {list(SOURCES)}.")
    return tuple(name for name in METRICS if name in metrics and name not in absent)
