"""The page of the documentation that compares processes, and forms of the network."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

from benchmarks._data import DATASETS
from benchmarks._page import figure, measured_with, section
from benchmarks._process_figure import network_figure, process_figure
from benchmarks._process_result import cost_table, evaluations_table, quality_table, runs, shown_evaluations
from benchmarks._record import read_result

INTRODUCTION = """\
# Processes and networks compared

This page is written by `python -m benchmarks.render` from what `python -m benchmarks.processes` measured.
[Processes](user_guide/processes.md) explains them, [decision 11](decisions/0011-thinning-by-default.md) draws the
conclusion.

Splits and scores are those of the [benchmarks](benchmarks.md): cells are generated with the labels of held-out cells
and compared with these. The first contender, the default, is trained for the default number of epochs, or as stated.
The others are trained for as many (*equal steps*), and once more for as many as take the same time (*equal time*).
An evaluation is one pass of the network for a batch of cells. The rows of flow matching
are of Heun's steps, which versions after 0.1.0 lack: two evaluations each, so half as many steps.
Only thinning has a likelihood of the counts. Numbers are medians over seeds, with the range where there are several;
with one thread, seconds are process time, which other work on the machine hardly changes.
"""
FIGURES: dict[str, Callable[[Mapping[str, Any]], Figure]] = {"processes": process_figure, "networks": network_figure}


def render_processes(results: Path, docs: Path) -> Path:
    """Write the page, and a figure for each result."""
    found = {path.stem: read_result(path) for path in sorted(results.glob("*.json"))}
    parts = []
    for kind in FIGURES:
        of_kind = {name: result for name, result in found.items() if result.get("benchmark") == kind}
        parts += [_section(kind, name, result, docs) for name, result in of_kind.items()]
    page = docs / "processes.md"
    page.write_text(INTRODUCTION + "\n" + _missing(found) + "\n" + "".join(parts))
    return page


def _section(kind: str, name: str, result: Mapping[str, Any], docs: Path) -> str:
    data, settings = result["data"], result["settings"]
    n_cells = min(settings["n_cells"] or data["n_held_out"], data["n_held_out"])
    epochs = settings["max_epochs"] or "the default number of"
    size = (
        f"{data['n_train']:,} training cells, {data['n_genes']:,} genes; {n_cells:,} generated cells against as many "
        f"held-out cells, forests of {settings['n_trees']} trees. The first contender is trained for {epochs} epochs."
    )
    shown = f"Scores in {shown_evaluations(result)} evaluations, trained for equal"
    tables = [f"**{shown} steps**", quality_table(result, "steps")]
    if any(part["budget"] == "time" for part in result["parts"]):
        tables += [f"**{shown} time**", quality_table(result, "time")]
    ancestral = _ancestral(result)
    if ancestral or len(settings["evaluations"]) > 1:
        tables += ["**By the number of evaluations, equal steps**", evaluations_table(result, "auc_forest_pcs")]
    if ancestral:
        tables.append(f"A thousand evaluations were made for {ancestral[0]} cells alone.")
    return section(
        f"{kind.capitalize()}: {data['description']}",
        size,
        figure(FIGURES[kind](result), name, docs),
        *tables,
        "**Cost**",
        cost_table(result),
        *(measured_with(result | {"environment": environment}) for environment in result["environments"]),
    )


def _ancestral(result: Mapping[str, Any]) -> list[int]:
    """Cells that were drawn in more evaluations than all contenders."""
    most = max(result["settings"]["evaluations"])
    return [
        row["n_cells"]
        for method in dict.fromkeys(part["method"] for part in result["parts"] if part["training"])
        for part in runs(result, method, "steps")
        for row in part["rows"]
        if row["evaluations"] > most
    ]


def _missing(found: Mapping[str, Mapping[str, Any]]) -> str:
    """Which data a comparison was not run on."""
    whole = [name for name, data in DATASETS.items() if data.n_train is None]
    missing = {kind: [name for name in whole if f"{kind}-{name}" not in found] for kind in FIGURES}
    listed = [f"{kind} on {', '.join(names)}" for kind, names in missing.items() if names]
    return f"Not measured yet: {'; '.join(listed)}.\n" if listed else ""
