"""The comparison of processes, and of forms of the network: its parts put together, and their tables."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from typing import Any

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


def methods(result: Mapping[str, Any]) -> list[str]:
    """Contenders, the first one first."""
    trained = [part["method"] for part in result["parts"] if part["training"]]
    first = [part["method"] for part in result["parts"] if part["training"] and part["budget"] == "both"]
    return list(dict.fromkeys([*first, *trained]))


def runs(result: Mapping[str, Any], method: str, budget: str) -> list[Mapping[str, Any]]:
    """Condition of a contender under a budget, a seed each."""
    return [p for p in result["parts"] if p["method"] == method and p["budget"] in (budget, "both")]


def real(result: Mapping[str, Any], metric: str) -> Values:
    """What other real cells score, by seed."""
    return [row["scores"][metric] for part in result["parts"] if not part["training"] for row in part["rows"]]


def at(of_runs: Iterable[Mapping[str, Any]], evaluations: int) -> list[Mapping[str, Any]]:
    """Rows drawn in so many evaluations, by seed."""
    return [row for part in of_runs for row in part["rows"] if row["evaluations"] == evaluations]


def evaluations_of(result: Mapping[str, Any], method: str) -> list[int]:
    """Numbers of evaluations that a contender was drawn in."""
    return sorted({row["evaluations"] for p in result["parts"] if p["method"] == method for row in p["rows"]})


def shown_evaluations(result: Mapping[str, Any]) -> int:
    """Those that tables show: of the default, if there are such, or the most that all were drawn in."""
    all_ = result["settings"]["evaluations"]
    return REFERENCE if REFERENCE in all_ else max(all_)


def quality_table(result: Mapping[str, Any], budget: str) -> str:
    """Scores of every contender under a budget."""
    metrics = result["metrics"]
    rows: dict[str, dict[str, Values]] = {REAL: {key: real(result, key) for key in metrics}}
    for method in methods(result):
        of_runs = runs(result, method, budget)
        if drawn := at(of_runs, shown_evaluations(result)):
            nll = [part["nll"] for part in of_runs if part["nll"] is not None]
            rows[method] = {"nll": nll} if nll else {}
            rows[method] |= {key: [row["scores"][key] for row in drawn] for key in metrics}
    columns = {key: Column(of["title"], digits=of["n_digits"]) for key, of in metrics.items()}
    return score_table("", {"nll": Column("nats per molecule", digits=4), **columns}, rows)


def cost_table(result: Mapping[str, Any]) -> str:
    """Training and sampling of every contender: epochs under both budgets, and cells a second."""
    evaluations = result["settings"]["evaluations"]
    titles = {
        "epochs": "epochs",
        "seconds": "seconds",
        "equal": "epochs in equal time",
        "cells_per_second": "training, cells/s",
        **{n: f"{n} evaluations, cells/s" for n in evaluations},
    }
    rows: dict[str, dict[Any, Values]] = {}
    for method in methods(result):
        by_steps, by_time = (runs(result, method, budget) for budget in ("steps", "time"))
        rows[method] = {key: [part["training"][key] for part in by_steps] for key in by_steps[0]["training"]}
        if by_time:
            rows[method]["equal"] = [part["training"]["epochs"] for part in by_time]
        for n in evaluations:
            rows[method][n] = [row["cells_per_second"] for row in at([*by_steps, *by_time], n)]
    return score_table("", {key: Column(title, digits=0) for key, title in titles.items()}, rows)


def evaluations_table(result: Mapping[str, Any], metric: str) -> str:
    """One score of every contender by the number of evaluations, in equal steps of training."""
    columns = sorted({n for method in methods(result) for n in evaluations_of(result, method)})
    of_metric = result["metrics"][metric]
    rows: dict[str, dict[Any, Values]] = {}
    for method in methods(result):
        drawn = {n: at(runs(result, method, "steps"), n) for n in columns}
        rows[method] = {n: [row["scores"][metric] for row in of_n] for n, of_n in drawn.items() if of_n}
    shown = {n: Column(f"{n:,} evaluations", digits=of_metric["n_digits"]) for n in columns}
    return score_table(of_metric["title"], shown, rows)
