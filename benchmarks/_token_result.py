"""The comparison of read-outs as a result: parts put together, as a table and in words."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import combinations
from typing import Any

import numpy as np

from benchmarks._data import Split, described
from benchmarks._record import distinct_environments
from benchmarks._tables import markdown, summary
from benchmarks._token_methods import BASELINES, VARIANTS
from benchmarks._token_parts import Part
from benchmarks._token_scores import stability

QUALITY = ("mmd", "label_accuracy", "c2st_auc_forest_pcs")
DEFAULT, BY_READOUT = "default", "default, by read-out"


def _metric(title: str, ideal: float | None, n_digits: int, scale: float = 1.0) -> dict[str, Any]:
    return {"title": title, "ideal": ideal, "n_digits": n_digits, "scale": scale}


METRICS = {
    "nll": _metric("nats per molecule", 0.0, 4),
    "mmd": _metric("MMD² x 1000", 0.0, 2, 1e3),
    "c2st_auc_forest_pcs": _metric("forest AUC, PCs", 0.5, 3),
    "label_accuracy": _metric("label accuracy", None, 3),
    "n_programs": _metric("programs", None, 0),
    "enriched": _metric("enriched", 1.0, 2),
    "enriched_null": _metric("enriched, permuted", None, 2),
    "sparsity": _metric("sparsity", 1.0, 2),
    "redundancy": _metric("redundancy", 0.0, 2),
    "stability": _metric("stability", 1.0, 2),
}


def gather(split: Split, parts: Sequence[Part]) -> dict[str, Any]:
    """Put parts together: the scores of every method over its seeds; stability over all pairs of these."""
    rows = []
    for method in (DEFAULT, BY_READOUT, *(name for name in VARIANTS if name != DEFAULT), *BASELINES):
        runs = sorted((part for part in parts if part.method == method), key=lambda part: part.seed)
        if runs:
            scores = {key: [run.scores[key] for run in runs] for key in METRICS if key in runs[0].scores}
            pairs = combinations([run.loadings for run in runs], 2)
            scores["stability"] = [stability(pair) for pair in pairs]
            rows.append({"method": method, "kind": runs[0].kind, "seeds": [run.seed for run in runs], "scores": scores})
    return {
        "benchmark": "tokens",
        "data": described(split),
        "settings": {part.kind: dict(part.settings) for part in parts},
        "environments": distinct_environments((part.environment, part.seed) for part in parts),
        "rows": rows,
    }


def token_table(result: Mapping[str, Any]) -> str:
    """A row a method, a column a score: median over seeds (pairs of seeds for stability) and range."""
    rows = [[f"{row['method']} ({len(row['seeds'])})", *(_cell(row, key) for key in METRICS)] for row in result["rows"]]
    return markdown(["read-out (seeds)", *(metric["title"] for metric in METRICS.values())], rows)


def token_shortcomings(result: Mapping[str, Any]) -> list[str]:
    """Sentences: what other methods, and other forms of the read-out, do better than the default by the median."""
    rows = {row["method"]: row for row in result["rows"]}
    default, lines = rows.pop(DEFAULT), []
    rows.pop(BY_READOUT, None)
    for key, metric in METRICS.items():
        if metric["ideal"] is None:
            continue
        distance = {name: abs(_median(row, key) - metric["ideal"]) for name, row in rows.items()}
        better = [name for name in distance if distance[name] < abs(_median(default, key) - metric["ideal"])]
        if better:
            better.sort(key=distance.__getitem__)
            named = ", ".join(f"{name} ({_shown(_median(rows[name], key), metric)})" for name in better)
            lines.append(f"{metric['title']} ({_shown(_median(default, key), metric)}): better with {named}.")
    return lines


def _median(row: Mapping[str, Any], key: str) -> float:
    """Median over seeds; NaN, which is no better than anything, without a value."""
    return float(np.median(row["scores"].get(key) or [np.nan]))


def _shown(value: float, metric: Mapping[str, Any]) -> str:
    return f"{value * metric['scale']:.{metric['n_digits']}f}"


def _cell(row: Mapping[str, Any], key: str) -> str:
    values, metric = row["scores"].get(key), METRICS[key]
    return summary([value * metric["scale"] for value in values], metric["n_digits"]) if values else ""
