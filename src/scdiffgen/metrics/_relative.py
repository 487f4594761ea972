"""Scores in one unit: from as good as other real cells to as bad as cells without a model."""

from __future__ import annotations

import numpy as np
import pandas as pd

from scdiffgen.metrics._evaluation_metrics import OF_TRAIN
from scdiffgen.metrics._real_cells import CONTROLS

CEILING, JUDGED = "other_real", "generated"
FEWEST_CELLS = 10


def relative_scores(scores: pd.DataFrame) -> pd.DataFrame:
    """Where generated cells stand between the real-versus-real ceiling and the negative controls, metric by metric.

    A score is turned into its distance from the best value of the metric; 0 is the distance of other real cells, 1
    that of the worse control. Better than other real cells is 0, worse than the control above 1.

    NaN where that means nothing: the intervals of the controls overlap with that of other real cells, so that the
    metric does not tell them apart with these cells; fewer than ten cells were compared, too few for an interval; a
    score is missing; or the metric is one of novelty, for negative controls do not copy.

    Parameters
    ----------
    scores
        From `evaluate`, with intervals and the sources ``"generated"``, ``"other_real"`` and a negative control.

    Returns
    -------
    A row a group, a column a metric.

    Raises
    ------
    ValueError
        If these are not the scores of `evaluate`, or a source or the intervals are missing.

    Examples
    --------
    >>> import numpy as np
    >>> from scdiffgen.metrics import evaluate
    >>> real, generated = np.random.default_rng(0).poisson(1.0, size=(2, 200, 20))
    >>> scores = evaluate(real, generated, metrics=["mmd", "gene_correlation"], n_pcs=5)
    >>> relative_scores(scores).shape
    (1, 2)
    """
    if scores.index.names != ["group", "source"] or not {"ideal", "direction"} <= set(scores.attrs):
        raise ValueError("`scores` is not what `metrics.evaluate` returns, with its index and its `.attrs`.")
    sources = scores.index.unique("source")
    controls = [name for name in CONTROLS if name in sources]
    lacking = [name for name in (JUDGED, CEILING) if name not in sources] + ["null_poisson"] * (not controls)
    if lacking:
        raise ValueError(f"`scores` lacks the source {lacking[0]!r}; it has {list(sources)}. Compute it as well.")
    lacking = [f"{name}_low" for name in scores.attrs["ideal"] if f"{name}_low" not in scores]
    if lacking:
        raise ValueError(f"`scores` lacks the intervals ({lacking[0]!r}): call `evaluate` with `n_bootstrap` above 1.")
    return pd.DataFrame({name: _relative(scores, name, controls) for name in scores.attrs["ideal"]})


def _relative(scores: pd.DataFrame, name: str, controls: list[str]) -> pd.Series:
    groups, ideal = scores.index.unique("group"), scores.attrs["ideal"][name]
    if name in OF_TRAIN:
        return pd.Series(np.nan, index=groups)
    values, low, high = (scores[f"{name}{end}"].unstack("source").loc[groups] for end in ("", "_low", "_high"))
    best = values[CEILING] if ideal == CEILING else pd.Series(float(ideal), index=groups)
    away, direction = values.sub(best, axis=0), scores.attrs["direction"][name]
    # of what is to be low or high, the other side of the best value is as good
    distance = away.abs() if direction == "closest to" else (away if direction == "lower" else -away).clip(lower=0)
    separate = low[controls].gt(high[CEILING], axis=0) | high[controls].lt(low[CEILING], axis=0)
    separate = separate.where(scores["n"].unstack("source").loc[groups, controls] >= FEWEST_CELLS, False)
    span = distance[controls].where(separate).max(axis=1) - distance[CEILING]
    return (distance[JUDGED] - distance[CEILING]).clip(lower=0) / span.where(span > 0)
