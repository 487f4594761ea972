"""Sections of a page: a title, the sizes of the data and tables of each result."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, NamedTuple

import pandas as pd
from matplotlib.figure import Figure

from benchmarks import _physics_tables as physics
from benchmarks import _summary_lines as lines
from benchmarks._chromatin_scores import imputed_table
from benchmarks._figures import augmentation_figure, generation_figure, speed_figure
from benchmarks._generation_table import generation_table, likelihood_table
from benchmarks._perturbation_figure import perturbation_figure
from benchmarks._perturbation_table import TASK_TITLES, primary, response_table, summary_of
from benchmarks._perturbation_transfer import transferred_by_default
from benchmarks._process_figure import process_figure
from benchmarks._process_result import cost_table, evaluations_table, quality_table, shown_evaluations
from benchmarks._published_iid_table import iid_tables, largest_difference
from benchmarks._published_table import LEFT_OUT, SHOWN, context_table, mean_table, rank_table, rerun_tables
from benchmarks._summary import Line
from benchmarks._tables import summary, value_table
from benchmarks._token_result import token_table
from benchmarks._where_time_goes import time_table
from benchmarks.augmentation import augmentation_table
from benchmarks.multimodal import imputation_table
from benchmarks.peaks import peaks_table
from benchmarks.published_cfgen import label_table, published_cfgen_table
from benchmarks.published_generation import published_generation_table
from benchmarks.soak import soak_table
from benchmarks.speed import speed_tables

Result = Mapping[str, Any]
SOURCES = {"cells.zarr": ".zarr by annbatch", "cells.h5ad": ".h5ad by blocks"}
SETTINGS = {
    **{"preset": ("preset", ""), "n_genes": ("genes", ","), "batch_size": ("minibatch", ",")},
    **{"threads": ("threads", ""), "n_steps": ("sampling steps", "")},
}
MODELS, WORK = ("scdiffgen", "scVI"), ("training", "generating")  # of the costs in large_data.md
SIZES = {  # of data and settings, and what a page calls them
    **{"n_cells": "cells", "n_train": "training cells", "n_imputed": "seen without protein"},
    **{"n_without_atac": "seen without peaks", "n_without_rna": "seen without RNA", "n_held_out": "held-out cells"},
    **{"n_genes": "genes", "n_proteins": "proteins", "n_peaks": "peaks", "n_labels": "labels"},
    **{"batch_size": "cells a step", "cells_a_call": "cells a call", "n_steps": "steps"},
}
TRAINING = {
    **{"method": ("trained", ""), "seed": ("seed", ""), "epochs": ("epochs", "")},
    **{"default_epochs": ("by default", ""), "seconds": ("seconds", ".0f")},
}
CFGEN_LABELS = "WD of the mended scorer by label, with the numbers of test cells:"


class Section(NamedTuple):
    """Sizes and tables of a result, its lines of the summary, and its figure."""

    parts: Callable[[Result], Iterable[str]]
    lines: Callable[[Result], Iterable[Line]] = lambda result: ()
    figure: Callable[[Result], Figure] | None = None


def lines_of(result: Result) -> list[Line]:
    """Lines of the summary of a result in which scdiffgen has a score."""
    return [line for line in SECTIONS[result["benchmark"]].lines(result) if line.leader("ours")]


def title(result: Result) -> str:
    """What was measured: a task, or the data."""
    task = result.get("task", "")
    if left_out := LEFT_OUT.get(task.removesuffix("-iid")):
        return f"Every {left_out} partly known" if task.endswith("-iid") else f"A {left_out} left out"
    return TASK_TITLES[task] if task else result["data"].get("description", "")


def sizes(result: Result) -> str:
    """Numbers of cells and columns of the data."""
    numbers = {**result["data"], **result.get("settings", {})}
    return ", ".join(f"{n:,} {SIZES[key]}" for key, n in numbers.items() if key in SIZES) + "."


def measured(*tables: Callable[[Result], str]) -> Callable[[Result], Iterable[str]]:
    """Sizes and tables of a result."""
    return lambda result: (sizes(result), *(table(result) for table in tables))


def published(result: Result) -> Iterator[str]:
    proof = result["proof"]
    yield (
        f"`{result['data']['name']}`, {sizes(result)} {proof['n_values']} scores of the untreated cells differ from "
        f"the published ones by at most {proof['largest_difference']:.1g}, those with optimal transport by "
        f"{proof['largest_relative_difference_of_wasserstein']:.1g} (relative)."
    )
    yield rank_table(result)
    yield from (mean_table(result, n_genes) for n_genes in SHOWN)
    yield context_table(result)
    yield from rerun_tables(result)


def published_iid(result: Result) -> Iterator[str]:
    yield (
        f"`{result['data']['name']}`, {sizes(result)} Our Pearson correlations of `trainMean` differ from "
        f"the published ones by at most {largest_difference(result):.3f}."
    )
    yield iid_tables(result)


def shards(result: Result) -> Iterator[str]:
    what = "1 thread per process unless stated otherwise. A worker was killed during writing. Rates are those of the"
    yield f"{result['data']['n_genes']:,} genes, preset `small`, {what} fastest seed, and memory peaks are the highest."
    rate, peak = {"cells_per_second": ("cells/s", ",.0f")}, {"peak_memory": ("peak memory of a process, MB", ",.0f")}
    moved = [{"what": f"writing, {row['n_workers']} Dask workers"} | row for row in result.get("write", [])]
    moved += [{"what": f"reading {SOURCES.get(row['source'])}"} | row for row in result.get("read", [])]
    moved = [row | {"minutes": 1e7 / 60 / row["cells_per_second"]} for row in moved]
    columns = {
        "what": ("", ""),
        "n_cells": ("cells", ","),
        **rate,
        "minutes": ("ten million cells, min", ",.0f"),
        **peak,
    }
    yield value_table(columns | {"peak_of_a_worker": ("of a worker, MB", ",.0f")}, moved)
    columns = {"model": ("training", ""), "source": ("from", ""), "n_processes": ("processes", "")}
    trained = pd.DataFrame(result.get("train", []), columns=[*columns, *rate, *peak, "loss"])
    runs = [
        dict(zip(columns, (model, SOURCES.get(source, source), n), strict=True))
        | {**runs[[*rate, *peak]].max(), "loss": summary(runs["loss"], 4)}
        for (model, source, n), runs in trained.groupby(list(columns), sort=False)
    ]
    yield value_table({**columns, **rate, **peak, "loss": ("loss, nats a molecule", "")}, runs)
    work = {f"{model} {what}": (f"{model} {what}, cells/s", ",.0f") for model in MODELS for what in WORK}
    if "cost" in result:
        yield value_table(SETTINGS | work, result["cost"])


def processes(result: Result) -> Iterator[str]:
    data, settings = result["data"], result["settings"]
    n_cells = min(settings["n_cells"] or data["n_held_out"], data["n_held_out"])
    yield (
        f"{data['n_train']:,} training cells, {data['n_genes']:,} genes; {n_cells:,} generated cells against as many "
        f"held-out cells, forests of {settings['n_trees']} trees. The first contender is trained for "
        f"{settings['max_epochs'] or 'the default number of'} epochs. Scores are in {shown_evaluations(result)} "
        f"evaluations; {settings['n_ancestral']} cells are generated in 1,000 evaluations."
    )
    for budget in ("steps", "time"):
        if any(part["budget"] == budget for part in result["parts"]):
            yield f"**Trained for equal {budget}**"
            yield quality_table(result, budget)
    if len(settings["evaluations"]) > 1:
        yield "**By the number of evaluations, equal steps**"
        yield evaluations_table(result, "auc_forest_pcs")
    yield "**Cost**"
    yield cost_table(result)


def responses(result: Result) -> Iterator[str]:
    yield f"Default of the package: `{primary(result)}`. {transferred_by_default(result)}".rstrip()
    yield response_table(summary_of(pd.DataFrame(result["rows"])), result)


SECTIONS = {
    "generation": Section(measured(generation_table, likelihood_table), lines.generation, generation_figure),
    "augmentation": Section(lambda of: ("", augmentation_table(of)), lines.augmentation, augmentation_figure),
    "published-generation": Section(measured(published_generation_table), lines.published_generation),
    "published-cfgen": Section(
        measured(published_cfgen_table, lambda _: CFGEN_LABELS, label_table), lines.published_cfgen
    ),
    "perturbation": Section(responses, lines.responses, perturbation_figure),
    "published": Section(published, lines.published),
    "published-iid": Section(published_iid, lines.published_iid),
    "tokens": Section(measured(token_table), lines.tokens),
    "physics-mixtures": Section(physics.mixtures, physics.mixtures_lines),
    "physics-molecules": Section(physics.molecules, physics.molecules_lines),
    "physics-depth": Section(physics.depth, physics.depth_lines),
    "physics-batches": Section(physics.batches),
    "physics-integration": Section(physics.integration, physics.integration_lines),
    "physics-tokens": Section(physics.tokens),
    "physics-programs": Section(physics.programs, physics.programs_lines),
    "multimodal": Section(measured(generation_table, imputation_table), lines.multimodal),
    "chromatin": Section(
        measured(generation_table, imputed_table, lambda of: value_table(TRAINING, of["training"])), lines.chromatin
    ),
    "peaks": Section(measured(peaks_table)),
    "speed": Section(
        measured(speed_tables, lambda of: time_table(of["time"]) if "time" in of else ""), lines.speed, speed_figure
    ),
    "shards": Section(shards),
    "soak": Section(measured(soak_table)),
    "processes": Section(processes, figure=process_figure),
    "networks": Section(processes),
}
