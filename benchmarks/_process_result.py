"""The comparison of processes, and of forms of the network: its parts put together, and their tables."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

import numpy as np
import pandas as pd
from pandas.core.groupby import DataFrameGroupBy

from benchmarks._data import Split, described
from benchmarks._parts import ProcessPart
from benchmarks._record import distinct_environments
from benchmarks._scores import METRICS
from benchmarks._tables import Column, Values, score_table

REAL, REFERENCE = "other real cells", 32
"""Evaluations of the default of the package."""


def gather(title: str, split: Split, parts: Sequence[ProcessPart]) -> dict[str, Any]:
    """Put the parts of a data set together; metrics are those that all parts have."""
    scored = set.intersection(*(set(row["scores"]) for part in parts for row in part.rows))
    return {
        "benchmark": title,
        "data": described(split),
        "settings": dict(parts[0].settings),
        "metrics": {key: asdict(metric) for key, metric in METRICS.items() if key in scored},
        "environments": distinct_environments((part.environment, part.seed) for part in parts),
        "parts": [
            {key: value for key, value in vars(part).items() if key not in ("settings", "environment")}
            for part in parts
        ],
    }


def drawings(result: Mapping[str, Any]) -> pd.DataFrame:
    """A row for each set of cells that was drawn, with its training and scores: real cells first, then the default."""
    parts = sorted(result["parts"], key=lambda part: (part["training"] is not None, part["budget"] != "both"))
    return pd.DataFrame(
        [
            {key: part[key] for key in ("method", "budget", "nll")}
            | {"epochs": np.nan, "seconds": np.nan, **(part["training"] or {})}
            | {"evaluations": np.nan, "drawing": row["cells_per_second"], **row, **row["scores"]}
            | {"training": (part["training"] or {}).get("cells_per_second")}
            for part in parts
            for row in part["rows"]
        ]
    )


def of_budget(frame: pd.DataFrame, budget: str) -> pd.DataFrame:
    """Rows of a budget; real cells and the default are of both."""
    return frame[frame["budget"].isin([budget, "both"])]


def shown(result: Mapping[str, Any], budget: str) -> DataFrameGroupBy:
    """Rows of each method that tables show: in the evaluations of the default, or the most that all were drawn in."""
    frame = of_budget(drawings(result), budget)
    return frame[frame["evaluations"].isin([shown_evaluations(result), np.nan])].groupby("method", sort=False)


def shown_evaluations(result: Mapping[str, Any]) -> int:
    """Those of the default, if there are such, or the most that all were drawn in."""
    all_ = result["settings"]["evaluations"]
    return REFERENCE if REFERENCE in all_ else max(all_)


def quality_table(result: Mapping[str, Any], budget: str) -> str:
    """Scores of every contender under a budget."""
    columns = {key: Column(of["title"], digits=of["n_digits"]) for key, of in result["metrics"].items()}
    columns = {"nll": Column("nats per molecule", digits=4), **columns}
    rows = {
        name: {key: of[key].tolist() for key in columns if of[key].notna().any()} for name, of in shown(result, budget)
    }
    return score_table("", columns, rows)


def cost_table(result: Mapping[str, Any]) -> str:
    """Training and sampling of every contender: epochs under both budgets, and cells a second."""
    evaluations = result["settings"]["evaluations"]
    titles = {
        **{"epochs": "epochs", "seconds": "seconds", "equal": "epochs in equal time", "training": "training, cells/s"},
        **{n: f"{n} evaluations, cells/s" for n in evaluations},
    }
    rows: dict[str, dict[Any, Values]] = {}
    for method, of in drawings(result).dropna(subset="epochs").groupby("method", sort=False):
        rows[method] = {key: of_budget(of, "steps")[key].tolist() for key in ("epochs", "seconds", "training")}
        if len(in_time := of_budget(of, "time")):
            rows[method]["equal"] = in_time["epochs"].tolist()
        rows[method] |= {n: of.loc[of["evaluations"] == n, "drawing"].tolist() for n in evaluations}
    return score_table("", {key: Column(title, digits=0) for key, title in titles.items()}, rows)


def evaluations_table(result: Mapping[str, Any], metric: str) -> str:
    """One score of every contender by the number of evaluations, in equal steps of training."""
    title, digits = result["metrics"][metric]["title"], result["metrics"][metric]["n_digits"]
    frame = of_budget(drawings(result), "steps").dropna(subset="evaluations")
    rows = {
        method: {n: values.tolist() for n, values in of.groupby("evaluations")[metric]}
        for method, of in frame.groupby("method", sort=False)
    }
    columns = {n: Column(f"{n:,.0f} evaluations", digits=digits) for n in sorted(frame["evaluations"].unique())}
    return score_table(title, columns, rows)
