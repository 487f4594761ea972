"""Results of the published benchmark of responses as tables: median over seeds, then mean over what was left out."""

from collections.abc import Mapping
from typing import Any

import pandas as pd

from benchmarks._published_predictions import HALF, OURS
from benchmarks._tables import Column, markdown, score_table

TITLES = {
    "pearson_delta": "Pearson of changes",
    "edistance": "energy distance",
    "mse": "MSE",
    "sym_kldiv": "symmetric KL",
    "wasserstein": "W, regularised",
    "common_degs": "common DEGs",
}
DIGITS = {"pearson_delta": 3, "edistance": 2, "mse": 4, "sym_kldiv": 1, "wasserstein": 1, "common_degs": 2}
HIGHER = ("pearson_delta", "common_degs")  # is better
N_GENES = (5000, 100, 50, 20)
SHOWN = (5000, 100)  # numbers of genes with a table of their own
HEADLINE = tuple(f"{score}_{n}" for n in SHOWN for score in ("pearson_delta", "edistance", "mse"))
LEFT_OUT = {"types": "type", "donors": "donor"}


def by_context(result: Mapping[str, Any]) -> pd.DataFrame:
    """Median over seeds: a row a prediction and what was left out, a column a score."""
    rows = pd.DataFrame(result["rows"]).drop(columns="seed")
    return rows.groupby(["prediction", "left_out"], sort=False).median()


def means(result: Mapping[str, Any]) -> pd.DataFrame:
    """Means over what was left out, of our predictions and of the published ones."""
    ours = by_context(result).groupby(level="prediction", sort=False).mean()
    return pd.concat([ours, pd.DataFrame(result["published"]["means"]).T])


def rank(result: Mapping[str, Any], score: str) -> int:
    """Place of our mean among those of the published methods, 1 the best."""
    values = means(result).loc[[OURS, *result["published"]["means"]], score]
    ours = values.pop(OURS)
    return 1 + int((values > ours).sum() if _higher(score) else (values < ours).sum())


def firsts(result: Mapping[str, Any], score: str) -> int:
    """Of how many left out no published method is better."""
    ours, best = by_context(result).loc[OURS, score], result["published"]["best"]
    sign = 1 if _higher(score) else -1
    return sum(sign * (value - best[context][score][1]) >= 0 for context, value in ours.items())


def mean_table(result: Mapping[str, Any], n_genes: int) -> str:
    """Means of every prediction at a number of genes, the published ones by their energy distance."""
    table = means(result)
    published = table.loc[[*result["published"]["means"]]].sort_values(f"edistance_{n_genes}").index
    ours = [name for name in table.index if name not in published]
    columns = {
        name: Column(title, 1.0 if _higher(name) else 0.0, DIGITS[score])
        for score, title in TITLES.items()
        if (name := f"{score}_{n_genes}") in table
    }
    rows = {
        name: {column: [table.at[name, column]] for column in columns}
        for name in [*sorted(ours, key=lambda name: (not name.startswith(OURS), name == HALF)), *published]
    }
    return score_table(f"{n_genes:,} genes", columns, rows, OURS, limit=HALF)


def rank_table(result: Mapping[str, Any]) -> str:
    """Our place, and in how many we are first: a row a score, a column a number of genes."""
    table, n_left_out = means(result), by_context(result).loc[OURS].shape[0]

    def place(name: str) -> str:
        return f"{rank(result, name)} (first in {firsts(result, name)} of {n_left_out})" if name in table else "-"

    rows = [[title, *(place(f"{score}_{n}") for n in N_GENES)] for score, title in TITLES.items()]
    return markdown([f"place among {len(result['published']['means']) + 1}", *(f"{n:,} genes" for n in N_GENES)], rows)


def context_table(result: Mapping[str, Any]) -> str:
    """Of each left out, our score and the best published one."""
    ours, best = by_context(result).loc[OURS], result["published"]["best"]
    rows = []
    for context, scores in ours.iterrows():
        cells = [f"{_number(name, scores[name])}; {_named(name, *best[context][name])}" for name in HEADLINE]
        rows.append([str(context), *cells])
    return markdown([f"{LEFT_OUT[result['task']]}: ours; best published", *map(_full_title, HEADLINE)], rows)


def rerun_table(result: Mapping[str, Any], name: str) -> str:
    """Of each left out, scores of a method that was run again, those published of it, and ours."""
    table, shown = by_context(result), [column for column in HEADLINE if not column.startswith("edistance")]
    rows = []
    for context, scores in table.loc[name].iterrows():
        others = result["rerun"][name]["published"][context], table.loc[(OURS, context)]
        values = ("; ".join(_number(column, each[column]) for each in (scores, *others)) for column in shown)
        rows.append([str(context), *values])
    first = f"{LEFT_OUT[result['task']]}: {name}; published; scdiffgen"
    return markdown([first, *map(_full_title, shown)], rows)


def ran_everywhere(result: Mapping[str, Any], name: str) -> bool:
    """Whether a method was run again on all that we were, so that its means can be compared."""
    table = by_context(result)
    return set(table.loc[OURS].index) == set(table.loc[name].index)


def with_rerun(result: Mapping[str, Any], name: str) -> dict[str, Any]:
    """The result with what a method scored when it was run again, in place of what was published of it."""
    method, again = name.partition(",")[0], by_context(result).loc[name]
    best = {str(context): dict(scores) for context, scores in result["rerun"][name]["best_of_others"].items()}
    for context, scores in again.iterrows():
        for score, (_, value) in best[str(context)].items():
            if (scores[score] > value) == _higher(score):
                best[str(context)][score] = [method, scores[score]]
    means_of = result["published"]["means"] | {method: again.mean().to_dict()}
    return {**result, "published": {"means": means_of, "best": best}}


def rerun_tables(result: Mapping[str, Any]) -> list[str]:
    """Build tables of each rerun method, and our ranks with its rerun in place of its published scores."""
    parts = []
    for name in result.get("rerun", {}):
        seeds = sorted({str(row["seed"]) for row in result["rows"] if row["prediction"] == name})
        parts += [f"`{name}`, seed {', '.join(seeds)}:", rerun_table(result, name)]
        if ran_everywhere(result, name):
            parts += ["Our ranks with the rerun in place of published numbers:", rank_table(with_rerun(result, name))]
    return parts


def _number(name: str, value: float) -> str:
    return "-" if pd.isna(value) else f"{value:.{DIGITS[name.rpartition('_')[0]]}f}"


def _named(name: str, method: str, value: float) -> str:
    return f"{method} ({_number(name, value)})"


def _title(name: str) -> str:
    return TITLES[name.rpartition("_")[0]]


def _full_title(name: str) -> str:
    return f"{_title(name)}, {int(name.rpartition('_')[2]):,} genes"


def _higher(name: str) -> bool:
    return name.startswith(HIGHER)
