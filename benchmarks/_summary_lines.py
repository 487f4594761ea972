"""Lines of the summary by benchmark: medians over seeds, and means over what was held out."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from benchmarks._chromatin_scores import IMPUTATION
from benchmarks._generation_table import OURS, methods_of_kind, primary, scores_by_method
from benchmarks._perturbation_table import SCORES, TASK_TITLES, kinds_of, summary_of
from benchmarks._perturbation_table import primary as response_primary
from benchmarks._published_iid_table import TITLES as IID_TITLES
from benchmarks._published_iid_table import beside_published
from benchmarks._published_predictions import CONTROLS, HALF
from benchmarks._published_predictions import OURS as OUR_PREDICTION
from benchmarks._published_table import LEFT_OUT, TITLES, means
from benchmarks._summary import Line
from benchmarks._token_result import DEFAULT, METRICS
from benchmarks.published_cfgen import PUBLISHED

Result = Mapping[str, Any]
Scores, Kinds, Methods = Mapping[str, tuple[str, float]], Mapping[str, str], Iterable[tuple[Any, Any]]
DATA = {
    **{"kang": "Kang 2018", "kang700": "Kang 2018, 700 cells", "paul15": "Paul 2015", "pbmc3k": "PBMC 3k"},
    **{"paul700": "Paul 2015, 700 cells", "pbmc68k": "bundled PBMC, 700 cells", "pbmc10k": "PBMC, 14 proteins"},
    "snareseq": "mouse cortex, SNARE-seq",
}
COPULA = "linear Gaussian copula, no network"
AUCS, JOINT_AUC = ("auc_forest_pcs", "auc_forest_genes"), ("joint_auc_forest",)
REAL = {"scdiffgen, 32 steps": "ours", COPULA: "simple", "training cells": "limit"}  # of published tables of generators
IMPUTING = {"scdiffgen": "ours", "totalVI": "other", "MULTIVI": "other", "profile of all cells": "null"}
FILLING = {
    **dict.fromkeys(("real", "real, classes weighted", "real + copies"), "simple"),
    **{"real + generated": "ours", "real + Poisson": "null", "all real cells": "limit"},
}


def lines(data: str, scores: Scores, methods: Methods, kinds: Kinds, form: str = ".3f") -> Iterator[Line]:
    """A line for each score, of a title and a best value; ``methods`` have values of each."""
    methods = [*methods]
    for key, (title, best) in scores.items():
        yield Line(data, title, best, {name: of[key] for name, of in methods if key in of}, kinds, form)


def generation(result: Result, keys: Sequence[str] = AUCS, others: Sequence[str] = ("other",)) -> Iterator[Line]:
    kinds = dict.fromkeys(methods_of_kind(result, *others), "other")
    kinds |= {name: kind for kind in ("null", "limit") for name in methods_of_kind(result, kind)}
    scores = {key: (of["title"], of["ideal"]) for key, of in result["metrics"].items() if key in keys}
    of_kind = {**kinds, COPULA: "simple", primary(result): "ours"}
    return lines(data_of(result), scores, scores_by_method(result).items(), of_kind)


def published_generation(result: Result) -> Iterator[Line]:
    theirs = pd.DataFrame(result["published"]).T.iloc[1:]  # the first are training cells
    kinds = dict.fromkeys(theirs.index, "other") | {"Gaussian copula": "simple"} | REAL
    methods = [*theirs.iterrows(), *pd.DataFrame(result["rows"]).groupby("method")]
    return lines("PBMC 3k, Turgut 2025", {key: (key, 0.0) for key in theirs}, methods, kinds, ".4f")


def published_cfgen(result: Result) -> Iterator[Line]:
    ours = pd.DataFrame(result["rows"]).groupby(["method", "seed"]).mean(numeric_only=True)
    scores = {f"{name}, mended": (f"{name} by CFGen's scorer", 0.0) for name in ("MMD", "WD")}
    theirs = {name: dict(zip(scores, of, strict=True)) for name, of in PUBLISHED.items()}
    kinds = dict.fromkeys(theirs, "other") | dict.fromkeys(("independent Poisson", "shuffled genes"), "null") | REAL
    return lines("PBMC 3k, CFGen", scores, [*theirs.items(), *ours.groupby("method")], kinds)


def responses(result: Result) -> Iterator[Line]:
    table = summary_of(pd.DataFrame(result["rows"]))
    kinds = {name: "simple" if kind == "null" else kind for name, kind in kinds_of(result).items() if kind != "ours"}
    kinds |= {"no_change": "null", "no change": "null", response_primary(result): "ours"}
    for span in table.index.unique("span") if "span" in table.index.names else [""]:
        keys = [key for key in ("rmse", "energy_distance", "pearson_delta") if key in table]
        scores = {key: (f"{SCORES[key].title}{span and f', {span}'}", float(SCORES[key].ideal)) for key in keys}
        methods = (table.xs(span, level="span") if span else table).iterrows()
        yield from lines(TASK_TITLES[result["task"]], scores, methods, kinds)


def published(result: Result) -> Iterator[Line]:
    data = f"scPerturBench, a {LEFT_OUT[result['task']]} left out"
    return _scperturbench(data, means(result), TITLES, 0.0)


def published_iid(result: Result) -> Iterator[Line]:
    theirs = beside_published(result, OUR_PREDICTION)
    own = dict.fromkeys(row["prediction"] for row in result["rows"] if row["prediction"] not in theirs.index)
    table = pd.concat([theirs, *(beside_published(result, name).loc[[name]] for name in own)])
    data = f"scPerturBench, every {LEFT_OUT[result['task'].removesuffix('-iid')]} partly known"
    return _scperturbench(data, table, IID_TITLES, 1.0)


def _scperturbench(data: str, table: pd.DataFrame, titles: Mapping[str, str], best: float) -> Iterator[Line]:
    """The two scores of 5,000 genes; of the published methods, four are simple baselines."""
    simple = ("controls", "base", "trainMean", "controlMean")
    others = [name for name in table.index if not name.startswith((OUR_PREDICTION, "treated"))]
    kinds = {name: "simple" if name.startswith(simple) else "other" for name in others}
    kinds |= {OUR_PREDICTION: "ours", CONTROLS: "null", HALF: "limit"}
    scores = {"edistance_5000": (titles["edistance"], best), "pearson_delta_5000": (titles["pearson_delta"], 1.0)}
    return lines(data, scores, table.iterrows(), kinds)


def tokens(result: Result) -> Iterator[Line]:
    methods = {row["method"]: row["scores"] for row in result["rows"]}
    methods["names of genes permuted"] = {"enriched": methods[DEFAULT].get("enriched_null", [])}
    kinds = dict.fromkeys((row["method"] for row in result["rows"] if row["kind"] == "other"), "other")
    kinds |= {"PCA": "simple", "NMF": "simple", DEFAULT: "ours", "names of genes permuted": "null"}
    scores = {key: (METRICS[key].title, 1.0) for key in ("enriched", "stability")}
    return lines(data_of(result), scores, methods.items(), kinds)


def augmentation(result: Result) -> Iterator[Line]:
    for n_kept, rows in pd.DataFrame(result["rows"]).groupby("n_kept"):
        scores = {"f1_rare": (f"F1, {n_kept} cells kept", 1.0)}
        yield from lines(f"rare labels, {data_of(result)}", scores, rows.groupby("training"), FILLING)


def multimodal(result: Result) -> Iterator[Line]:
    yield from generation(result, JOINT_AUC, ("other", "resampled"))
    rows = [{**row, "mean": np.mean([*row["pearson"].values()])} for row in result["imputation"]]
    yield from _imputation(result, ("Pearson of imputed protein", "mean"), rows)


def chromatin(result: Result) -> Iterator[Line]:
    yield from generation(result, JOINT_AUC, ("other", "resampled"))
    for target, name in (("atac", "peaks"), ("rna", "RNA")):
        rows = [{**row, **row["scores"]} for row in result["imputation"] if row["target"] == target]
        title = f"imputed {name}: {IMPUTATION['contrast']}"
        yield from _imputation(result, (title, "contrast"), rows)


def _imputation(result: Result, score: tuple[str, str], rows: Sequence[Mapping[str, Any]]) -> Iterator[Line]:
    methods = pd.DataFrame(rows).groupby("method")
    kinds = {**dict.fromkeys(methods.groups, "simple"), **IMPUTING, "mean protein, depth of RNA": "null"}
    return lines(data_of(result), {score[1]: (score[0], 1.0)}, methods, kinds)


def speed(result: Result) -> Iterator[Line]:
    ours = {"scdiffgen": "ours", OURS: "ours", "scVI": "other", "scVI, Gaussian of the label": "other"}
    for task in ("training", "generating", "memory"):
        score = ("generating", "peak memory, MB", 0.0) if task == "memory" else ("cells_per_second", "cells/s", np.inf)
        methods = ((row["model"], row) for row in result[task])
        yield from lines(f"{task}, {data_of(result)}", {score[0]: score[1:]}, methods, ours, ",.0f")


def data_of(result: Result) -> str:
    return DATA.get(result["data"].get("name"), result["data"].get("description", ""))
