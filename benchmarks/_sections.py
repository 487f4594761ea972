"""What a page says of each result: a title, what was measured on, tables."""

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import pandas as pd
from matplotlib.figure import Figure

from benchmarks._chromatin_scores import imputed_table
from benchmarks._figures import augmentation_figure, generation_figure, scale_figure, soak_figure, speed_figure
from benchmarks._generation_table import generation_table, likelihood_table
from benchmarks._perturbation_figure import perturbation_figure
from benchmarks._perturbation_table import TASK_TITLES, primary, response_table, summary_of
from benchmarks._perturbation_transfer import transferred_by_default
from benchmarks._process_figure import network_figure, process_figure
from benchmarks._process_result import cost_table, evaluations_table, quality_table, shown_evaluations
from benchmarks._published_iid_table import iid_tables, largest_difference
from benchmarks._published_table import LEFT_OUT, SHOWN, context_table, mean_table, rank_table, rerun_tables
from benchmarks._tables import summary, value_table
from benchmarks._token_result import token_table
from benchmarks._where_time_goes import time_table
from benchmarks.augmentation import augmentation_table
from benchmarks.multimodal import imputation_table
from benchmarks.peaks import peaks_table
from benchmarks.published_cfgen import label_table, published_cfgen_table
from benchmarks.published_generation import published_generation_table
from benchmarks.scale import COLUMNS
from benchmarks.soak import soak_table
from benchmarks.speed import speed_tables

Result = Mapping[str, Any]
SOURCES = {"cells.zarr": ".zarr by annbatch", "cells.h5ad": ".h5ad by blocks"}
SETTINGS = {
    **{"preset": ("preset", ""), "n_genes": ("genes", ","), "batch_size": ("minibatch", ",")},
    **{"threads": ("threads", ""), "n_steps": ("sampling steps", "")},
}
MODELS, WORK = ("scdiffgen", "scVI"), ("training", "generating")  # of the costs in large_data.md
SIZES = {  # of the data, and what a page calls them
    "n_cells": "cells",
    "n_train": "training cells",
    "n_imputed": "seen without protein",
    "n_without_atac": "seen without peaks",
    "n_without_rna": "seen without RNA",
    "n_held_out": "held-out cells",
    "n_genes": "genes",
    "n_proteins": "proteins",
    "n_peaks": "peaks",
    "n_labels": "labels",
}


def sizes(result: Result) -> str:
    """Numbers of cells and columns of the data."""
    return ", ".join(f"{n:,} {SIZES[key]}" for key, n in result["data"].items() if key in SIZES) + "."


def generation(result: Result) -> Iterator[str]:
    yield result["data"]["description"]
    yield sizes(result)
    yield generation_table(result)
    yield likelihood_table(result)


def published(result: Result) -> Iterator[str]:
    proof = result["proof"]
    yield f"A {LEFT_OUT[result['task']]} left out"
    yield (
        f"`{result['data']['name']}`, {sizes(result)} {proof['n_values']} scores of the untreated cells differ from "
        f"the published ones by at most {proof['largest_difference']:.1g}, those with optimal transport by "
        f"{proof['largest_relative_difference_of_wasserstein']:.1g} of their size."
    )
    yield from (mean_table(result, n_genes) for n_genes in SHOWN)
    yield rank_table(result)
    yield context_table(result)
    yield from rerun_tables(result)


def published_generation(result: Result) -> Iterator[str]:
    yield ""
    yield f"{sizes(result)} {len(result['environment']['seeds'])} splits."
    yield published_generation_table(result)


def published_cfgen(result: Result) -> Iterator[str]:
    yield ""
    yield f"{sizes(result)} {len(result['environment']['seeds'])} splits."
    yield published_cfgen_table(result)
    yield "WD of the mended scorer by label, with the numbers of test cells:"
    yield label_table(result)


def published_iid(result: Result) -> Iterator[str]:
    yield f"Every {LEFT_OUT[result['task'].removesuffix('-iid')]} partly known"
    yield (
        f"`{result['data']['name']}`, {sizes(result)} Our Pearson correlations of `trainMean` differ from "
        f"the published ones by at most {largest_difference(result):.3f}."
    )
    yield iid_tables(result)


def perturbation(result: Result) -> Iterator[str]:
    yield TASK_TITLES[result["task"]]
    yield f"Default of the package: `{primary(result)}`. {transferred_by_default(result)}".rstrip()
    yield response_table(summary_of(pd.DataFrame(result["rows"])), result)


def tokens(result: Result) -> Iterator[str]:
    settings = result["settings"]
    epochs = {kind: of_kind["max_epochs"] or "default" for kind, of_kind in settings.items()}
    yield result["data"]["description"]
    yield (
        f"{sizes(result)} Epochs of our models: {epochs['ours']}; of other networks: {epochs.get('other', '-')}. "
        f"{settings['ours']['n_permutations']} permutations."
    )
    yield token_table(result)


def augmentation(result: Result) -> Iterator[str]:
    yield result["data"]["description"]
    yield augmentation_table(result)


def multimodal(result: Result) -> Iterator[str]:
    yield result["data"]["description"]
    yield sizes(result)
    yield generation_table(result)
    yield imputation_table(result)


def chromatin(result: Result) -> Iterator[str]:
    yield result["data"]["description"]
    yield sizes(result)
    yield generation_table(result)
    yield imputed_table(result)
    training = {
        "method": ("trained", ""),
        "seed": ("seed", ""),
        "epochs": ("epochs", ""),
        "default_epochs": ("by default", ""),
        "seconds": ("seconds", ".0f"),
    }
    yield value_table(training, result["training"])


def peaks(result: Result) -> Iterator[str]:
    data = result["data"]
    yield ""
    yield f"{data['n_cells']:,} cells, {data['batch_size']} a step, median of {data['n_steps']} steps."
    yield peaks_table(result)


def speed(result: Result) -> Iterator[str]:
    yield ""
    yield f"{result['data']['name']}: {sizes(result)}"
    yield speed_tables(result)
    if "time" in result:
        yield time_table(result["time"])


def scale(result: Result) -> Iterator[str]:
    yield ""
    yield f"{sizes(result)} {result['data']['batch_size']} cells a step."
    yield value_table(COLUMNS, result["rows"])


def shards(result: Result) -> Iterator[str]:
    yield ""
    yield (
        f"{result['data']['n_genes']:,} genes, preset `small`, 1 thread a process, unless a column says otherwise. "
        "While cells were written, workers were killed and the calls interrupted."
    )
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
        | {**runs[[*rate, *peak]].median(), "loss": summary(runs["loss"], 4)}
        for (model, source, n), runs in trained.groupby(list(columns), sort=False)
    ]
    yield value_table({**columns, **rate, **peak, "loss": ("loss, nats a molecule", "")}, runs)
    work = {f"{model} {what}": (f"{model} {what}, cells/s", ",.0f") for model in MODELS for what in WORK}
    if "cost" in result:
        yield value_table(SETTINGS | work, result["cost"])


def soak(result: Result) -> Iterator[str]:
    settings = result["settings"]
    yield ""
    yield (
        f"{result['generated'][-1]:,} cells of {result['data']['n_genes']:,} genes, {settings['cells_a_call']:,} a "
        f"call, {settings['n_steps']} steps."
    )
    yield soak_table(result)


def processes(result: Result) -> Iterator[str]:
    data, settings = result["data"], result["settings"]
    n_cells = min(settings["n_cells"] or data["n_held_out"], data["n_held_out"])
    yield data["description"]
    yield (
        f"{data['n_train']:,} training cells, {data['n_genes']:,} genes; {n_cells:,} generated cells against as many "
        f"held-out cells, forests of {settings['n_trees']} trees. The first contender is trained for "
        f"{settings['max_epochs'] or 'the default number of'} epochs. Scores are in {shown_evaluations(result)} "
        f"evaluations; {settings['n_ancestral']} cells are generated in a thousand."
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


SECTIONS: dict[str, Callable[[Result], Iterator[str]]] = {
    "generation": generation,
    "published": published,
    "published-iid": published_iid,
    "published-generation": published_generation,
    "published-cfgen": published_cfgen,
    "perturbation": perturbation,
    "tokens": tokens,
    "augmentation": augmentation,
    "multimodal": multimodal,
    "chromatin": chromatin,
    "peaks": peaks,
    "speed": speed,
    "scale": scale,
    "shards": shards,
    "soak": soak,
    "processes": processes,
    "networks": processes,
}
FIGURES: dict[str, Callable[[Result], Figure]] = {
    "generation": generation_figure,
    "perturbation": perturbation_figure,
    "augmentation": augmentation_figure,
    "speed": speed_figure,
    "scale": scale_figure,
    "soak": soak_figure,
    "processes": process_figure,
    "networks": network_figure,
}
