"""Where the package falls short, computed from results."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from benchmarks._tables import (
    LOW_PRECISION,
    distance_from_ideal,
    methods_of_kind,
    pearson_by_method,
    primary,
    scores_by_method,
)

LEAST_RATE = 0.8  # of training from disk, over that from memory
MOST_MEMORY = 4000  # MB, whatever the number of cells on disk
LEAST_NOVELTY = 0.8
FLAT = 0.02  # share by which memory may grow and still be called flat


def shortcomings(result: Mapping[str, Any]) -> list[str]:
    """Sentences on generation: where another method comes nearer to the ideal, and where real cells do.

    A score is as good as its median over seeds is near to the ideal of the metric. Against real cells, only what no
    seed reaches counts: the best seed of the package is farther from the ideal than the worst of other real cells.
    """
    return [*generation_shortcomings(result), *_likelihood(result), *_copied(result)]


def soak_shortcomings(result: Mapping[str, Any]) -> list[str]:
    """How much memory grew, if it did by more than `FLAT` from the second fifth of the calls to the last, medians."""
    fifths = np.array_split(result["resident"], 5)
    growth = float(np.median(fifths[-1]) - np.median(fifths[1]))
    if growth <= FLAT * float(np.median(fifths[1])):
        return []
    return [f"Memory grew by {growth:.0f} MB over the last {0.6 * result['generated'][-1]:,.0f} cells."]


def scale_shortcomings(result: Mapping[str, Any]) -> list[str]:
    """Where training from disk is slower than 0.8 times that from memory, or takes more than 4 GB."""
    rate = {(row["source"], row["n_cells"]): row["cells_per_second"] for row in result["rows"]}
    lines = [
        f"Training on {n_cells:,} cells from disk is {each / rate['memory', n_cells]:.2f} times as fast as from memory."
        for (source, n_cells), each in rate.items()
        if source == "disk" and each < LEAST_RATE * rate["memory", n_cells]
    ]
    return lines + [
        f"{row['n_cells']:,} cells on disk take {row['peak_memory'] / 1000:.1f} GB."
        for row in result["rows"]
        if row["source"] == "disk" and row["peak_memory"] > MOST_MEMORY
    ]


def many_conditions_shortcomings(result: Mapping[str, Any]) -> list[str]:
    """Where an embedding is further from the true responses than what needs no network."""
    networks = [row for row in result["rows"] if "parameters" in row]
    others = [row for row in result["rows"] if "parameters" not in row and row["method"] != "truth"]
    lines = []
    for place in ("seen", "unseen"):
        known = {row["method"]: row[place]["pearson"] for row in others if place in row}
        best = max((name for name in known if known[name] is not None), key=lambda name: known[name])
        lines += [
            f"Responses to {place} perturbations by {row['method']}: Pearson {row[place]['pearson']:.3f}; {best} "
            f"reaches {known[best]:.3f}."
            for row in networks
            if place in row and row[place]["pearson"] < known[best]
        ]
    return lines


def generation_shortcomings(result: Mapping[str, Any]) -> list[str]:
    """Sentences on generated cells: where another method draws better ones, and where they are no real cells."""
    return [*_lost(result), *_short_of_real_cells(result)]


def multimodal_shortcomings(result: Mapping[str, Any]) -> list[str]:
    """Sentences on several modalities: where another method draws better cells, or tells protein better from RNA."""
    means = {name: float(np.median(of["mean"])) for name, of in pearson_by_method(result).items()}
    better = [f"{name} ({mean:.3f})" for name, mean in means.items() if mean > means["scdiffgen"]]
    lines = generation_shortcomings(result)
    if better:
        lines.append(f"Imputed protein, mean Pearson {means['scdiffgen']:.3f}: better with {', '.join(better)}.")
    return lines


def speed_shortcomings(result: Mapping[str, Any]) -> list[str]:
    """Sentences on speed and memory: where scVI needs less than our model by default."""
    lines = []
    for stage in ("training", "generating"):
        rows = [row for row in result[stage] if row["model"] != LOW_PRECISION]
        rates = {row["model"]: float(np.median(row["cells_per_second"])) for row in rows}
        fastest = max((name for name in rates if name.startswith("scdiffgen")), key=rates.__getitem__)
        lines += [
            f"{stage.capitalize()}: {name} is {rate / rates[fastest]:.1f} times as fast as {fastest}."
            for name, rate in rates.items()
            if rate > rates[fastest]
        ]
    peak = {row["model"]: row["generating"] for row in result["memory"]}
    lines += [
        f"Peak memory: {peak['scdiffgen']:.0f} MB, {name} {value:.0f} MB."
        for name, value in peak.items()
        if value < peak["scdiffgen"]
    ]
    return lines


def augmentation_shortcomings(result: Mapping[str, Any]) -> list[str]:
    """Sentences on augmentation: where a way without the package recognises rare labels better."""
    rows, lines = result["rows"], []
    for n_kept in dict.fromkeys(row["n_kept"] for row in rows):
        names = dict.fromkeys(row["training"] for row in rows)
        f1 = {
            name: float(np.median([r["f1_rare"] for r in rows if r["training"] == name and r["n_kept"] == n_kept]))
            for name in names
        }
        ours, limit = f1.pop("real + generated"), f1.pop("all real cells")
        better = [f"{name} ({value:.3f})" for name, value in f1.items() if value > ours]
        if better:
            lines.append(
                f"{n_kept} cells kept: F1 of rare labels {ours:.3f} with generated cells (all real cells: {limit:.3f});"
                f" better with {', '.join(better)}."
            )
    return lines


def _lost(result: Mapping[str, Any]) -> list[str]:
    scores, ours, lines = scores_by_method(result), primary(result), []
    rivals = methods_of_kind(result, "other", "redrawn", "null")
    for key, metric in result["metrics"].items():
        distances = {name: np.median(values) for name, values in distance_from_ideal(result, key).items()}
        shown = {name: f"{np.median(of_method[key]):.{metric['n_digits']}f}" for name, of_method in scores.items()}
        better = sorted((name for name in rivals if distances[name] < distances[ours]), key=distances.__getitem__)
        if better:
            named = ", ".join(f"{name} ({shown[name]})" for name in better)
            lines.append(f"{metric['title']} ({shown[ours]}): nearer to the best value is {named}.")
    return lines


def _short_of_real_cells(result: Mapping[str, Any]) -> list[str]:
    (limit,), ours = methods_of_kind(result, "limit"), primary(result)
    titles = []
    for key, metric in result["metrics"].items():
        distances = distance_from_ideal(result, key)
        if min(distances[ours]) > max(distances[limit]):
            titles.append(metric["title"])
    return [f"In no seed as good as other real cells: {'; '.join(titles)}."] if titles else []


def _copied(result: Mapping[str, Any]) -> list[str]:
    """Where generated cells are clearly nearer to training cells than held-out ones are."""
    scores = scores_by_method(result)[primary(result)].get("novelty")
    if scores is None or np.median(scores) >= LEAST_NOVELTY:
        return []
    return [f"Generated cells are nearer to training cells than held-out cells are: novelty {np.median(scores):.2f}."]


def _likelihood(result: Mapping[str, Any]) -> list[str]:
    names = [name for name in result["likelihood"][0] if name != "seed"]
    ours, *others = (np.median([record[name] for record in result["likelihood"]]) for name in names)
    return [
        f"Nats per molecule ({ours:.4f}): lower with {name} ({value:.4f})."
        for name, value in zip(names[1:], others, strict=True)
        if value < ours
    ]
