"""Verdicts on scores between other real cells and the negative control, as numbers and in words."""

import numpy as np
import pandas as pd

from ._comparison import METRICS, OF_TRAIN
from ._input import FEWEST_CELLS

ALIKE, BETWEEN, CONTROL = "like other real cells", "between", "like the negative control"
OTHER = "unlike other real cells"  # without a negative control that the metric distinguishes
TOO_FEW, POWERLESS = "undecided, too few cells", "undecided, control like real cells"


def relative_scores(scores: pd.DataFrame) -> pd.DataFrame:
    """Scale scores between other real cells (0) and the worse negative control (1), groups by metrics."""
    # NaN if the two intervals overlap, for fewer than ten cells, and for metrics of novelty.
    if scores.index.names != ["group", "source"] or not {"ideal", "direction"} <= set(scores.attrs):
        raise ValueError("`scores` lacks the index or `.attrs` of `metrics.evaluate`: pass its result unchanged.")
    sources, controls = scores.index.unique("source"), _controls(scores)
    lacking = [name for name in ("generated", "other_real") if name not in sources] + ["null_poisson"] * (not controls)
    if lacking:
        raise ValueError(f"`scores` lacks the source {lacking[0]!r}; it has {list(sources)}. Compute it as well.")
    lacking = [f"{name}_low" for name in scores.attrs["ideal"] if f"{name}_low" not in scores]
    if lacking:
        raise ValueError(f"`scores` lacks the intervals ({lacking[0]!r}): call `evaluate` with `n_bootstrap` above 1.")
    return pd.DataFrame({name: _relative(scores, name, controls) for name in scores.attrs["ideal"]})


def _relative(scores: pd.DataFrame, name: str, controls: list[str]) -> pd.Series:
    if name in OF_TRAIN:
        return pd.Series(np.nan, index=scores.index.unique("group"))
    distance = _distances(scores, name)
    span = distance[controls].where(_separate(scores, name, controls)).max(axis=1) - distance["other_real"]
    return (distance["generated"] - distance["other_real"]).clip(lower=0) / span.where(span > 0)


def _controls(scores: pd.DataFrame) -> list[str]:
    """List the negative controls among the sources."""
    return [source for source in scores.index.unique("source") if source.startswith("null_")]


def _separate(scores: pd.DataFrame, name: str, controls: list[str]) -> pd.DataFrame:
    """Test which controls the metric distinguishes from other real cells, groups by controls."""
    return _apart(scores, name, controls, "other_real") & (_of_sources(scores, "n")[controls] >= FEWEST_CELLS)


def _distances(scores: pd.DataFrame, name: str, values: pd.DataFrame | None = None) -> pd.DataFrame:
    """Compute distances of values, by default the scores (groups by sources), from the best value."""
    own, ideal = _of_sources(scores, name), scores.attrs["ideal"][name]
    best = own["other_real"] if ideal == "other_real" else pd.Series(float(ideal), index=own.index)
    away, direction = (own if values is None else values).sub(best, axis=0), scores.attrs["direction"][name]
    # for metrics that are to be low or high, values beyond the best one have distance 0
    return away.abs() if direction == "closest to" else (away if direction == "lower" else -away).clip(lower=0)


def _of_sources(scores: pd.DataFrame, column: str) -> pd.DataFrame:
    return scores[column].unstack("source").loc[scores.index.unique("group")]


def _apart(scores: pd.DataFrame, name: str, sources: list[str], other: str) -> pd.DataFrame:
    """Test whether the intervals of sources are disjoint from the interval of another source."""
    low, high = (_of_sources(scores, f"{name}_{end}") for end in ("low", "high"))
    return low[sources].gt(high[other], axis=0) | high[sources].lt(low[other], axis=0)


def _precise(scores: pd.DataFrame, name: str) -> pd.Series:
    """Test whether intervals of generated cells are nearer to other real cells than to the worst possible score."""
    best, metric = _distances(scores, name)["other_real"], METRICS[name]
    ends = scores.xs("generated", level="source")[[f"{name}_low", f"{name}_high"]]
    bounds = pd.DataFrame([(metric.lowest, metric.highest)] * len(ends), ends.index)
    furthest, worst = (_distances(scores, name, values).max(axis=1, skipna=False) for values in (ends, bounds))
    return furthest - best < worst - furthest


def with_verdicts(scores: pd.DataFrame) -> pd.DataFrame:
    """Add a verdict column after each score, named by its best value, if scores of other real cells exist."""
    metrics = list(scores.attrs["ideal"])
    sources = scores.index.unique("source")
    if not {"generated", "other_real"} <= set(sources) or not all(f"{name}_low" in scores for name in metrics):
        return scores
    controls, headers = _controls(scores), {name: f"{name}, {METRICS[name].best}" for name in metrics}
    words = {headers[name]: _verdicts(scores, name, controls) for name in metrics}
    table = scores.join(pd.concat({"generated": pd.DataFrame(words)}, names=["source", "group"]).swaplevel())
    table = table.fillna(dict.fromkeys(words, ""))
    by_metric = [column for name in metrics for column in (name, headers[name])]
    table = table[["n", *by_metric, *(column for column in scores if column not in {"n", *metrics})]]
    table.attrs = scores.attrs | {"verdict": headers}
    return table


def _verdicts(scores: pd.DataFrame, name: str, controls: list[str]) -> pd.Series:
    """Return the verdict on generated cells of each group."""
    distance, enough = _distances(scores, name), _of_sources(scores, "n")[["generated", "other_real"]] >= FEWEST_CELLS
    off = _apart(scores, name, ["generated"], "other_real")["generated"]
    off &= distance["generated"] > distance["other_real"]  # better than other real cells counts as equal
    decided = enough.all(axis=1) & (off | _precise(scores, name))
    words = pd.Series(np.where(off, OTHER, ALIKE), index=distance.index)
    if controls and name not in OF_TRAIN:
        place = _relative(scores, name, controls)
        worse = distance[controls].where(_separate(scores, name, controls), -np.inf).to_numpy().argmax(axis=1)
        apart = _apart(scores, name, controls, "generated").to_numpy()[np.arange(len(worse)), worse]
        reaches = pd.Series(~apart, index=distance.index) | (place >= 1)
        words = words.mask(~off & place.isna(), POWERLESS)
        words = words.mask(off & place.notna(), np.where(reaches, CONTROL, BETWEEN))
        decided &= off | place.isna() | ~reaches
    return words.where(decided, TOO_FEW)
