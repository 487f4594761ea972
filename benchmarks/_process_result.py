"""The comparison of processes, and of forms of the network: its parts put together, and their tables."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from typing import Any

import numpy as np

from benchmarks._data import Split, described
from benchmarks._process_parts import ProcessPart
from benchmarks._record import distinct_environments
from benchmarks._scores import METRICS
from benchmarks._tables import markdown, summary

REFERENCE = 32
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


def real(result: Mapping[str, Any], metric: str) -> list[float]:
    """What other real cells score, by seed."""
    return _numbers(row["scores"][metric] for p in result["parts"] if not p["training"] for row in p["rows"])


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
    limit = [summary(real(result, key), metric["n_digits"]) for key, metric in metrics.items()]
    rows = [["other real cells", "", *limit]]
    for method in methods(result):
        of_runs = runs(result, method, budget)
        drawn = at(of_runs, shown_evaluations(result))
        if drawn:
            likelihoods = _numbers(part["nll"] for part in of_runs)
            scores = [
                summary(_numbers(row["scores"][key] for row in drawn), metric["n_digits"])
                for key, metric in metrics.items()
            ]
            rows.append([method, summary(likelihoods, 4) if likelihoods else "", *scores])
    return markdown(["", "nats per molecule", *(metric["title"] for metric in metrics.values())], rows)


def cost_table(result: Mapping[str, Any]) -> str:
    """Training and sampling of every contender: epochs under both budgets, and cells a second."""
    columns = result["settings"]["evaluations"]
    rows = []
    for method in methods(result):
        by_steps, by_time = (runs(result, method, budget) for budget in ("steps", "time"))
        rates = [summary(_numbers(row["cells_per_second"] for row in at([*by_steps, *by_time], n)), 0) for n in columns]
        training = [part["training"] for part in by_steps]
        rows.append(
            [
                method,
                summary([of["epochs"] for of in training], 0),
                summary([of["seconds"] for of in training], 0),
                summary([part["training"]["epochs"] for part in by_time], 0) if by_time else "",
                summary([of["cells_per_second"] for of in training], 0),
                *rates,
            ]
        )
    heads = ["", "epochs", "seconds", "epochs in equal time", "training, cells/s"]
    return markdown([*heads, *(f"{n} evaluations, cells/s" for n in columns)], rows)


def evaluations_table(result: Mapping[str, Any], metric: str) -> str:
    """One score of every contender by the number of evaluations, in equal steps of training."""
    columns = sorted({n for method in methods(result) for n in evaluations_of(result, method)})
    n_digits = result["metrics"][metric]["n_digits"]
    rows = []
    for method in methods(result):
        drawn = [at(runs(result, method, "steps"), n) for n in columns]
        scores = [summary(_numbers(row["scores"][metric] for row in of_n), n_digits) if of_n else "" for of_n in drawn]
        rows.append([method, *scores])
    return markdown([result["metrics"][metric]["title"], *(f"{n:,} evaluations" for n in columns)], rows)


def _numbers(values: Iterable[float | None]) -> list[float]:
    """What was written as null is not a number; nothing if none is."""
    found = [np.nan if value is None else value for value in values]
    return [] if np.isnan(found).all() else found
