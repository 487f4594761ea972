"""Tables and section of the page on the in-distribution setting of the published benchmark (Wei et al. 2025)."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from benchmarks._page import bullets, measured_with, section
from benchmarks._published_iid import CONTROL_MEAN, IID, OWN_SHIFT, SCORES, TRAIN_MEAN, TREATED
from benchmarks._published_predictions import CONTROLS, HALF, OURS
from benchmarks._published_table import LEFT_OUT, by_context
from benchmarks._tables import markdown

TITLES = {"pearson_delta": "Pearson of changes", "edistance": "energy score", "mse": "MSE score"}
MIN_GAP = 0.02  # of the two known scores of a group
SETTING = """\
{{cite:t}}`wei2025scperturbench` (scPerturBench, `{name}`), in-distribution setting: half of the cells of each {one} and
condition are training cells, so the interferon response of every {one} is partly known. Predictions start from the
control test cells and are compared with the treated test cells; cells are prepared as in the sections above, and the
100 genes respond most in all cells of the {one}. An earlier version of the benchmark's code draws one such split. The
order of its cells is not published, so we draw another split for each seed."""
INVERSION = """\
The benchmark publishes Pearson correlations as they are, but energy distance and MSE only as min-max scores over its 14
methods: 1 for the best method of a {one}, 0 for the worst. We recover the distances from two baselines that we compute
on our cells: `{control}` and `{train}` draw Gaussian cells around the mean of all control or treated training cells.
Our Pearson correlations of `{train}` differ from the published ones by at most {off:.3f}. Recovered distances below
zero are set to zero, and a {one} whose two known scores differ by less than {gap} is left out of that score. Each row
of ours joins the 14 methods alone, and the scores are formed anew; published rows are scored beside `scdiffgen`.
Recovered distances carry the noise of the split: places by MSE at 100 genes are the least certain."""
ROWS = """\
`scdiffgen` is `predict_perturbation` from one model trained on the training cells. *{treated}* predicts the treated
training cells of the {one} themselves and needs no control cells: it shows what copying reaches. *{half}* compares half
as many test cells. Numbers in parentheses are places among 15. Numbers are medians over splits, then means over the
{one}s."""


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


def iid_shortcomings(result: Mapping[str, Any]) -> list[str]:
    """Name the published methods and simple predictions whose mean score is above ours."""
    table, lines = beside_published(result, OURS), []
    for name in table:
        for simple in (CONTROLS, OWN_SHIFT):
            table.loc[simple, name] = beside_published(result, simple).at[simple, name]
        values = table[name].sort_values(ascending=False)
        if better := [f"{of} ({_shown(value)})" for of, value in values.items() if value > table.at[OURS, name]]:
            score, _, n_genes = name.rpartition("_")
            ours = f"{TITLES[score]}, {int(n_genes):,} genes ({_shown(table.at[OURS, name])})"
            lines.append(f"{ours}: better is {', '.join(better)}.")
    return lines


def iid_section(name: str, result: Mapping[str, Any], docs: Path) -> str:
    """Write the section of the page."""
    one = LEFT_OUT[IID[result["task"]]]
    train_mean = by_context(result).loc[TRAIN_MEAN]
    columns = [name for name in train_mean if name.startswith(SCORES[0])]
    theirs = pd.DataFrame({context: methods[TRAIN_MEAN] for context, methods in result["published"].items()}).T
    off = float((train_mean[columns] - theirs[columns]).abs().to_numpy().max())
    return section(
        f"A published benchmark of responses: every {one} partly known",
        SETTING.format(name=result["data"]["name"], one=one),
        INVERSION.format(one=one, control=CONTROL_MEAN, train=TRAIN_MEAN, off=off, gap=MIN_GAP),
        ROWS.format(one=one, half=HALF, treated=TREATED),
        iid_tables(result),
        bullets("Where it falls short", iid_shortcomings(result)),
        measured_with(result),
    )


def _shown(value: float, place: float | None = None) -> str:
    if pd.isna(value):
        return "-"
    return f"{value:.3f}" + (f" ({place:.0f})" if place else "")
