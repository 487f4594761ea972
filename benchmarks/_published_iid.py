"""Measure the in-distribution setting of the published benchmark of responses (Wei et al. 2025, scPerturBench).

Half of the cells of each group (cell type or donor) and condition are training cells, so the response of every group is
partly known. Predictions start from the control test cells of a group and are compared with its treated test cells.
An earlier version of the benchmark's repository holds this split (scikit-learn's ``train_test_split`` with seed 0);
the order of its cells is unknown, so that our splits are others. The genes of the short list respond most in all cells
of a group.
"""

import argparse
from collections.abc import Iterator, Mapping
from pathlib import Path
from time import process_time
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from sklearn.model_selection import train_test_split

from benchmarks._perturbation_models import untrained_model
from benchmarks._published_cells import CONDITION, CONTEXT, CONTROL, DATASETS, STIMULATED, Prepared, data_path
from benchmarks._published_predictions import CONTROLS, HALF, SETUPS
from benchmarks._published_scores import Cells, ranked_genes, scores_of_genes
from benchmarks._record import environment, write_result
from benchmarks.perturbation import resumed
from scdiffgen.model import TokenDiffusion

IID_TABLE = "scperturbench_kang_iid.csv"
IID = {"types-iid": "types", "donors-iid": "donors"}
OWN_SHIFT, TREATED = "controls + mean change of the training cells", "treated training cells"
CONTROL_MEAN, TRAIN_MEAN = "controlMean", "trainMean"
"""Published baselines that are computed here as well: Gaussian draws around the mean of all training cells of a
condition, with the standard deviations of all control cells of the group."""
SCORES, N_TOP = ("pearson_delta", "edistance", "mse"), 100


def published_iid(folder: Path, task: str) -> pd.DataFrame:
    """Published values: a row a method and group; Pearson as it is, energy distance and MSE as min-max scores."""
    table = pd.read_csv(data_path(folder, IID_TABLE))
    table = table[table["dataset"] == DATASETS[IID[task]]].rename(
        columns={"pearson_of_changes": "pearson_delta", "edistance_score": "edistance", "mse_score": "mse"}
    )
    table["left_out"] = table["left_out"].str.removeprefix("stimulated_")
    table["method"] = table["method"].replace("baseControl", CONTROL_MEAN)  # its name at 5,000 genes
    wide = table.pivot(index=["method", "left_out"], columns="n_genes", values=[*SCORES])
    wide.columns = [f"{score}_{n}" for score, n in wide.columns]
    return wide


def split_in_half(obs: pd.DataFrame, seed: int) -> NDArray[np.bool_]:
    """Choose half of the cells of each group and condition for training."""
    train = np.zeros(len(obs), dtype=bool)
    for rows in obs.groupby([CONTEXT, CONDITION], observed=True).indices.values():
        train[train_test_split(rows, test_size=0.5, random_state=seed)[0]] = True
    return train


def run_iid(options: argparse.Namespace, prepared: Prepared, theirs: pd.DataFrame, path: Path) -> dict[str, Any]:
    """Score every prediction of every group, and write the result after each group; models are made once a split."""
    contexts = options.left_out or prepared.contexts
    result = new_iid_result(options, prepared, theirs)
    if options.resume and path.exists():
        result["rows"] = resumed(path, result["settings"])
    done = {(row["seed"], row["left_out"]) for row in result["rows"]}
    for seed in options.seeds:
        if not (missing := [context for context in contexts if (seed, context) not in done]):
            continue
        train = split_in_half(prepared.counts.obs, seed)
        setups = SETUPS[IID[options.task]].items()
        models = {
            name: untrained_model(
                prepared.counts[train].copy(), {"perturbation_key": CONDITION, "control": CONTROL, **setup}
            )
            for name, setup in setups
        }
        for context in missing:
            began = process_time()
            for name, *cells, ranked in iid_predictions(prepared, context, train, models, seed):
                row = {"seed": seed, "left_out": context, "prediction": name}
                result["rows"].append(row | iid_scores(*cells, ranked))
            write_result(path.parent, path.stem, result)
            print(f"{options.task}, seed {seed}: {context}, {process_time() - began:.0f} s", flush=True)
    return result


def iid_predictions(
    prepared: Prepared, context: str, train: NDArray[np.bool_], models: Mapping[str, TokenDiffusion], seed: int
) -> Iterator[tuple[str, Cells, Cells, Cells, NDArray[np.intp]]]:
    """Name, predicted, treated and control cells, and ranked genes of every prediction."""
    control, treated = (prepared.rows(context, condition) for condition in (CONTROL, STIMULATED))

    def expression(rows: NDArray) -> Cells:
        return prepared.expression(prepared.counts[rows])

    before, after = expression(control[~train[control]]), expression(treated[~train[treated]])
    known_before, known_after = expression(control[train[control]]), expression(treated[train[treated]])
    all_control = expression(control)
    ranked = ranked_genes(expression(treated), all_control)
    rng = np.random.default_rng(seed)
    for name, condition in ((CONTROL_MEAN, CONTROL), (TRAIN_MEAN, STIMULATED)):
        mean = expression(np.flatnonzero(train & (prepared.counts.obs[CONDITION] == condition))).mean(0)
        drawn = rng.normal(mean, all_control.std(0, ddof=1), all_control.shape)
        yield name, drawn, after, all_control, ranked
    half = rng.permutation(len(after))
    yield HALF, after[half[: len(half) // 2]], after[half[len(half) // 2 :]], before, ranked
    yield CONTROLS, before, after, before, ranked
    yield OWN_SHIFT, before + (known_after.mean(0) - known_before.mean(0)), after, before, ranked
    yield TREATED, known_after, after, before, ranked
    start = prepared.counts[control[~train[control]]].copy()
    for name, model in models.items():
        cells = model.predict_perturbation(start.copy(), {CONDITION: STIMULATED}, seed=seed, silent=True)
        yield name, prepared.expression(cells), after, before, ranked


def iid_scores(predicted: Cells, real: Cells, control: Cells, ranked: NDArray[np.intp]) -> dict[str, float]:
    """Pearson of changes, energy distance and MSE of all scored genes and of the 100 that respond most."""
    scores = {}
    for genes in (ranked, ranked[:N_TOP]):
        found = scores_of_genes(predicted[:, genes], real[:, genes], control[:, genes])
        scores |= {f"{name}_{len(genes)}": found[name] for name in SCORES}
    return scores


def new_iid_result(options: argparse.Namespace, prepared: Prepared, theirs: pd.DataFrame) -> dict[str, Any]:
    """Describe data, settings and published values."""
    groups = {str(name): of.droplevel("left_out").to_dict("index") for name, of in theirs.groupby(level="left_out")}
    data = {"name": DATASETS[IID[options.task]], "n_cells": prepared.counts.n_obs, "n_genes": prepared.counts.n_vars}
    return {
        "benchmark": "published-iid",
        "task": options.task,
        "data": data,
        "settings": {"network": "none"},
        "environment": environment(options.threads, options.seeds),
        "published": {context: groups[context] for context in options.left_out or prepared.contexts},
        "rows": [],
    }
