"""Tables of the in-distribution setting of the published benchmark (Wei et al. 2025)."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd

from benchmarks._published_iid import CONTROL_MEAN, SCORES, TRAIN_MEAN
from benchmarks._published_predictions import CONTROLS, HALF, OURS
from benchmarks._published_table import by_context
from benchmarks._tables import markdown

TITLES = {"pearson_delta": "Pearson of changes", "edistance": "energy score", "mse": "MSE score"}
MIN_GAP = 0.02  # of the two known scores of a group


def recovered(scores: pd.Series, control_mean: float, train_mean: float) -> pd.Series:
    """Recover the distances behind min-max scores of methods from those of two methods; NaN if these score alike."""
    gap = scores[TRAIN_MEAN] - scores[CONTROL_MEAN]
    if abs(gap) < MIN_GAP:
        return scores * np.nan
    width = (control_mean - train_mean) / gap
    return (control_mean + (scores[CONTROL_MEAN] - scores) * width).clip(lower=0)


def min_max(distances: pd.Series) -> pd.Series:
    """Score distances of methods: 1 is the lowest, 0 the highest."""
    return 1 - (distances - distances.min()) / (distances.max() - distances.min())


def beside_published(result: Mapping[str, Any], prediction: str) -> pd.DataFrame:
    """Mean scores of the published methods and one prediction that joins them: a row a method, a column a score."""
    table = by_context(result)
    groups = []
    for context, methods in result["published"].items():
        scores = pd.DataFrame(methods).T
        for name in scores:
            if not name.startswith(SCORES[0]):
                known = (table.at[(method, context), name] for method in (CONTROL_MEAN, TRAIN_MEAN))
                scores[name] = recovered(scores[name], *known)
        scores.loc[prediction] = table.loc[(prediction, context)]
        groups.append(scores.apply(lambda of: of if of.name.startswith(SCORES[0]) else min_max(of)))
    return pd.concat(groups).groupby(level=0).mean()


def iid_table(result: Mapping[str, Any], n_genes: int) -> str:
    """Mean scores at a number of genes: ours with places among 15, then the published methods."""
    names = [f"{score}_{n_genes}" for score in SCORES]
    predictions = dict.fromkeys(row["prediction"] for row in result["rows"])
    ours = [name for name in predictions if name not in (CONTROL_MEAN, TRAIN_MEAN)]
    rows = []
    for name in sorted(ours, key=lambda name: (not name.startswith(OURS), name != CONTROLS, name == HALF)):
        table = beside_published(result, name)[names]
        places = table.rank(ascending=False, method="min").loc[name]
        cells = [_shown(table.at[name, score], places[score]) for score in names]
        rows.append([f"**{name}**" if name == OURS else name, *cells])
    published = beside_published(result, OURS)[names].drop(OURS).sort_values(names[1], ascending=False)
    rows += [
        [str(name), *map(_shown, values)] for name, values in zip(published.index, published.to_numpy(), strict=True)
    ]
    return markdown([f"{n_genes:,} genes", *TITLES.values()], rows)


def iid_tables(result: Mapping[str, Any]) -> str:
    """One table a number of genes, the most genes first."""
    sizes = {int(name.rpartition("_")[2]) for name in by_context(result)}
    return "\n\n".join(iid_table(result, n_genes) for n_genes in sorted(sizes, reverse=True))


def largest_difference(result: Mapping[str, Any]) -> float:
    """Of our Pearson correlations of `TRAIN_MEAN` from the published ones."""
    ours = by_context(result).loc[TRAIN_MEAN]
    theirs = pd.DataFrame({context: methods[TRAIN_MEAN] for context, methods in result["published"].items()}).T
    columns = [name for name in ours if name.startswith(SCORES[0])]
    return float((ours[columns] - theirs[columns]).abs().to_numpy().max())


def _shown(value: float, place: float | None = None) -> str:
    if pd.isna(value):
        return "-"
    return f"{value:.3f}" + (f" ({place:.0f})" if place else "")
