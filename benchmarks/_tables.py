"""Results as markdown tables: median over seeds, and the range where there are several."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from benchmarks._best_prior import best_prior

OURS = "scdiffgen, 32 steps"  # the default

LOW_PRECISION = "scdiffgen, bf16-mixed"
"""Our model where it is trained in low precision."""


def generation_table(result: Mapping[str, Any]) -> str:
    """Scores of every method, and in how many it wins: a row a method, a column a metric; or a table each kind."""
    scores, won = best_prior(scores_by_method(result)), wins(result)
    tables = []
    for name in dict.fromkeys(metric.get("table") for metric in result["metrics"].values()):
        metrics = {key: metric for key, metric in result["metrics"].items() if metric.get("table") == name}
        rows = []
        for method, of_method in scores.items():
            n_won = str(len(won[method] & set(metrics))) if method in won else ""
            rows.append([method, *(summary(of_method[key], of["n_digits"]) for key, of in metrics.items()), n_won])
        tables.append(markdown(["", *(metric["title"] for metric in metrics.values()), "wins"], rows))
    return "\n\n".join(tables)


def wins(result: Mapping[str, Any]) -> dict[str, set[str]]:
    """Metrics in which no other program is nearer to the best value, medians, of each program that generates cells."""
    rivals = [primary(result), *methods_of_kind(result, "other")]
    won: dict[str, set[str]] = {name: set() for name in rivals}
    for key in result["metrics"]:
        distances = {name: np.median(distance_from_ideal(result, key)[name]) for name in rivals}
        for name in rivals:
            if distances[name] == min(distances.values()) < np.inf:
                won[name].add(key)
    return won


def distance_from_ideal(result: Mapping[str, Any], metric: str) -> dict[str, list[float]]:
    """How far every method is from the ideal of a metric, over seeds; NaN is infinitely far."""
    scores, ideal = scores_by_method(result), result["metrics"][metric]["ideal"]
    if ideal == "limit":
        (limit,) = methods_of_kind(result, "limit")
        ideal = np.median(scores[limit][metric])
    return {
        name: [float(np.nan_to_num(abs(value - ideal), nan=np.inf)) for value in of_method[metric]]
        for name, of_method in scores.items()
    }


def fewer_seeds(result: Mapping[str, Any]) -> str:
    """Sentence on the methods that were not run for all seeds; empty if there are none."""
    seeds: dict[str, list[int]] = {}
    for row in result["rows"]:
        seeds.setdefault(row["method"], []).append(row["seed"])
    short = [name for name, of_method in seeds.items() if len(of_method) < max(map(len, seeds.values()))]
    listed = "; ".join(f"{name}: {', '.join(map(str, seeds[name]))}" for name in short)
    return f"Of fewer seeds: {listed}." if short else ""


def likelihood_table(result: Mapping[str, Any]) -> str:
    """Held-out nats per molecule."""
    names = [name for name in result["likelihood"][0] if name != "seed"]
    rows = [[name, summary([record[name] for record in result["likelihood"]], 4)] for name in names]
    return markdown(["", "nats per molecule"], rows)


def speed_tables(result: Mapping[str, Any]) -> str:
    """Cells a second of training and generating, and memory."""
    rates = [
        markdown([heading, "cells a second"], [[row["model"], summary(row["cells_per_second"], 0)] for row in rows])
        for heading, rows in (("training", result["training"]), ("generating", result["generating"]))
    ]
    stages = ("imports", "data", "training", "generating")
    rows = [[row["model"], *(f"{row[stage]:.0f}" for stage in stages)] for row in result["memory"]]
    memory = markdown(["peak memory, MB, up to the end of", *stages], rows)
    return "\n\n".join([*rates, memory])


def import_table(result: Mapping[str, Any]) -> str:
    """Seconds of importing one after the other; the sum is of what is not scvi-tools'."""
    rows = [[name, summary(seconds, 3)] for name, seconds in result["seconds"].items()]
    beyond = [sum(run) for run in zip(*(s for name, s in result["seconds"].items() if name != "scvi"), strict=True)]
    return markdown(["imported, after those above", "seconds"], [*rows, ["all but scvi", summary(beyond, 3)]])


def soak_table(result: Mapping[str, Any]) -> str:
    """Memory at the start and after each fifth of the cells."""
    marks = np.linspace(0, len(result["generated"]) - 1, 6).round().astype(int)
    rows = [[f"{result['generated'][mark]:,}", f"{result['resident'][mark]:.0f}"] for mark in marks]
    return markdown(["cells generated", "resident memory, MB"], rows)


def scale_table(result: Mapping[str, Any]) -> str:
    """Seconds, rates and memory by number of cells and source."""
    header = ["cells", "from", "registering, s", "before training, s", "training, cells/s", "after training, s"]
    rows = [
        [
            f"{row['n_cells']:,}",
            row["source"],
            *(f"{row[key]:.1f}" for key in ("registering", "before_training")),
            f"{row['cells_per_second']:,.0f}",
            f"{row['after_training']:.1f}",
            f"{row['generated_per_second']:,.0f}",
            f"{row['peak_memory']:,.0f}",
        ]
        for row in result["rows"]
    ]
    return markdown([*header, "generated to a file, cells/s", "peak memory, MB"], rows)


def peaks_table(result: Mapping[str, Any]) -> str:
    """Seconds of a step and memory by the number of peaks, and of those open in a cell."""
    header = ["peaks", "open in a cell", "open, %", "parameters, million", "before training, s", "a step, s"]
    rows = [
        [
            f"{row['n_peaks']:,}",
            f"{row['nonzeros_per_cell']:,.0f}",
            f"{100 * row['nonzeros_per_cell'] / row['n_peaks']:.1f}",
            f"{row['parameters'] / 1e6:.1f}",
            f"{row['before_training']:.1f}",
            f"{row['seconds_per_step']:.2f}",
            f"{row['memory_of_data']:,.0f}",
            f"{row['peak_memory']:,.0f}",
        ]
        for row in result["rows"]
    ]
    return markdown([*header, "memory with the data, MB", "peak memory, MB"], rows)


def many_conditions_table(result: Mapping[str, Any]) -> str:
    """Sizes of the embeddings, and how near each is to the true responses."""
    header = ["perturbations by", "embedding, parameters", "all parameters", "file, MB", "training, s"]
    scores = ("pearson", "slope", "nll")
    header += [f"{score}, {place}" for place in ("seen", "unseen") for score in ("Pearson", "slope", "nats/molecule")]

    def shown(value: float | None, form: str) -> str:
        return "-" if value is None or np.isnan(value) else format(value, form)

    rows = []
    for row in result["rows"]:
        sizes = [shown(row.get(key), ",.0f") for key in ("embedding_parameters", "parameters")]
        costs = [shown(row.get(key), ".1f") for key in ("file", "seconds")]
        values = [row.get(place, {}).get(score) for place in ("seen", "unseen") for score in scores]
        rows.append([row["method"], *sizes, *costs, *(shown(value, ".3f") for value in values)])
    return markdown(header, rows)


def augmentation_table(result: Mapping[str, Any]) -> str:
    """F1 of rare labels by the number of cells that they keep, and of the other labels."""
    kept, names = (list(dict.fromkeys(row[key] for row in result["rows"])) for key in ("n_kept", "training"))
    rows = []
    for name in names:
        cells = [
            summary([row[key] for row in result["rows"] if row["training"] == name and row["n_kept"] == n], 3)
            for key in ("f1_rare", "f1_other")
            for n in kept
        ]
        rows.append([name, *cells])
    header = [f"{kind} labels, {n} cells kept" for kind in ("rare", "other") for n in kept]
    return markdown(["mean F1", *header], rows)


def imputation_table(result: Mapping[str, Any]) -> str:
    """Pearson correlation of measured and expected counts, a row a method; and what intervals of draws hold."""
    by_method = pearson_by_method(result)
    proteins = list(dict.fromkeys(name for row in result["imputation"] for name in row["pearson"]))
    coverage: dict[str, list[float]] = {name: [] for name in by_method}
    for row in result["imputation"]:
        coverage[row["method"]].append(row.get("interval_coverage", np.nan))
    rows = [
        [
            name,
            summary(of_method["mean"], 3),
            *(summary(of_method.get(protein, [np.nan]), 2) for protein in proteins),
            summary(coverage[name], 3),
        ]
        for name, of_method in by_method.items()
    ]
    return markdown(["Pearson of imputed protein", "mean", *proteins, "80 % intervals hold"], rows)


def pearson_by_method(result: Mapping[str, Any]) -> dict[str, dict[str, list[float]]]:
    """Correlations over seeds of each protein, and of their mean, of every method."""
    scores: dict[str, dict[str, list[float]]] = {}
    for row in result["imputation"]:
        of_method = scores.setdefault(row["method"], {})
        for protein, value in (row["pearson"] | {"mean": float(np.mean(list(row["pearson"].values())))}).items():
            of_method.setdefault(protein, []).append(value)
    return scores


def scores_by_method(result: Mapping[str, Any]) -> dict[str, dict[str, list[float]]]:
    """Scores over seeds of every metric of every method, in the order of the result."""
    scores: dict[str, dict[str, list[float]]] = {}
    for row in result["rows"]:
        of_method = scores.setdefault(row["method"], {key: [] for key in result["metrics"]})
        for key in result["metrics"]:
            of_method[key].append(np.nan if row["scores"][key] is None else row["scores"][key])
    return scores


def methods_of_kind(result: Mapping[str, Any], *kinds: str) -> list[str]:
    """Names of the methods of some kinds, in the order of the result."""
    return list(dict.fromkeys(row["method"] for row in result["rows"] if row["kind"] in kinds))


def primary(result: Mapping[str, Any]) -> str:
    """The method that stands for the package: its default, or what was run with the most steps."""
    ours = methods_of_kind(result, "ours")
    return OURS if OURS in ours else ours[-1]


def summary(values: Sequence[float], n_digits: int) -> str:
    """Median and range, as ``0.58 (0.55 to 0.61)``; - where nothing could be measured."""
    if not np.isfinite(np.asarray(values, dtype=float)).any():
        return "-"
    median, low, high = (f"{f(values):.{n_digits}f}" for f in (np.nanmedian, np.nanmin, np.nanmax))
    return median if low == high else f"{median} ({low} to {high})"


def markdown(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Markdown table; the first column is to the left, the others to the right."""
    lines = [header, ["---", *["---:"] * (len(header) - 1)], *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)
