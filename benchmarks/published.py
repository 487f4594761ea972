"""Our predictions in a published benchmark of responses, beside its 14 methods.

``python -m benchmarks.published --task types --seeds 0 1 2 --threads 1``

The benchmark is that of Wei et al. (2025, scPerturBench) on the cells of Kang et al. (2018): the response to interferon
of a cell type (``types``) or a donor (``donors``), each left out in turn. Cells are prepared and scored as there. The
scores of the untreated cells are computed first, and have to be those that were published. ``types-iid`` and
``donors-iid`` are the in-distribution setting: half of the cells of every type or donor, treated and untreated, are
training cells, and each seed has another split. With ``--max-epochs 1`` the network is hardly trained.

``--export FOLDER`` writes what another program may be trained on, log-normalised, and ``--external NAME=OTHER`` adds
the rows of ``OTHER/<task>-<left out>-seed<seed>.h5ad`` to a result that is there.
"""

import argparse
import itertools
from collections.abc import Sequence
from pathlib import Path
from time import process_time
from typing import Any

import numpy as np
import pandas as pd
from anndata import AnnData
from scipy import sparse

from benchmarks._data import FOLDER, KANG
from benchmarks._external import LOGGED, add_external_argument, external_files, read_external
from benchmarks._perturbation_data import CONTROL, RESPONSE
from benchmarks._published_cells import (
    CONDITION,
    CONTEXT,
    DATASETS,
    EXCLUDED,
    PREPARE,
    STIMULATED,
    TABLE,
    Prepared,
    published,
)
from benchmarks._published_iid import IID, IID_TABLE, published_iid, run_iid
from benchmarks._published_iid_table import iid_tables
from benchmarks._published_predictions import CONTROLS, OURS, cells_of, predictions
from benchmarks._published_scores import all_scores
from benchmarks._published_table import HIGHER, rank_table
from benchmarks._record import benchmark_parser, environment, output_folder, read_result, start, write_result
from benchmarks.perturbation import resumed

UNTREATED = "baseControl"
COMPARED = {"mse": 0.0, "edistance": 0.0, "sym_kldiv": 0.0, "wasserstein": 5e-4}  # relative deviations allowed
DIGITS = 2e-4  # absolute deviation allowed: published values are of single precision, and have four digits


def main(arguments: Sequence[str] | None = None) -> None:
    options = parse(arguments)
    start(options.threads)
    folder = output_folder(options.output, quick=options.quick)
    name = f"published-kang-{options.task}"
    prepared = PREPARE[IID.get(options.task, options.task)](FOLDER)
    contexts = options.left_out or prepared.contexts
    if options.task in IID:
        theirs = published_iid(FOLDER, options.task)
        print(iid_tables(run_iid(options, prepared, theirs, folder / f"{name}.json")))
        return
    if options.export is not None:
        export(prepared, options.task, contexts, options.export)
        return
    if options.external:
        add_external(options, prepared, contexts, folder / f"{name}.json")
        return
    theirs = published(FOLDER, options.task).loc[pd.IndexSlice[:, contexts], :]
    untreated = {context: untreated_scores(prepared, context) for context in contexts}
    proof = proved(untreated, theirs)
    print(f"{proof['n_values']} scores of untreated cells are those that were published.", flush=True)
    result = new_result(options, prepared, theirs) | {"proof": proof}
    if options.resume and (folder / f"{name}.json").exists():
        result["rows"] = resumed(folder / f"{name}.json", result["settings"])
    for seed in options.seeds:
        done = {row["left_out"] for row in result["rows"] if row["seed"] == seed}
        for context in [context for context in contexts if context not in done]:
            began, (control, _) = process_time(), cells_of(prepared, context)
            rows = [{"prediction": CONTROLS, **untreated[context]}]
            for prediction, cells, real in predictions(prepared, options.task, context, seed):
                rows.append({"prediction": prediction, **all_scores(cells, real, control)})
            result["rows"] += [{"seed": seed, "left_out": context, **row} for row in rows]
            write_result(folder, name, result)
            print(f"{options.task}, seed {seed}: {context}, {process_time() - began:.0f} s", flush=True)
    print(f"\n## {options.task}: {OURS} among {len(result['published']['means']) + 1}\n\n{rank_table(result)}")


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = benchmark_parser("benchmarks.published", __doc__)
    parser.add_argument("--task", choices=[*PREPARE, *IID], required=True)
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1, 2])
    parser.add_argument("--left-out", nargs="+", help="cell types or donors to leave out (all)")
    parser.add_argument("--resume", action="store_true", help="keep the rows of a run that was stopped")
    parser.add_argument("--export", type=Path, metavar="FOLDER", help="write what may be trained on, and run nothing")
    add_external_argument(parser)
    options = parser.parse_args(arguments)
    if options.task in IID and (options.export or options.external):
        parser.error(f"--task {options.task} takes neither --export nor --external: choose one of {[*PREPARE]}.")
    return options


def available_tasks() -> list[str]:
    """Tasks whose data are there."""
    if not all((FOLDER / file).exists() for file in (KANG, TABLE, EXCLUDED)):
        return []
    return [*PREPARE, *(IID if (FOLDER / IID_TABLE).exists() else [])]


def export(prepared: Prepared, task: str, contexts: Sequence[str], folder: Path) -> None:
    """Write, of each context, expression of the genes that are scored without its stimulated cells."""
    folder.mkdir(parents=True, exist_ok=True)
    for context in contexts:
        counts = prepared.without(context)
        treated = counts.obs[CONDITION] == STIMULATED
        obs = pd.DataFrame(
            {RESPONSE: np.where(treated, STIMULATED, CONTROL), CONTEXT: counts.obs[CONTEXT].astype(str)},
            index=counts.obs_names,
        )
        expression = sparse.csr_matrix(prepared.expression(counts), dtype=np.float32)
        genes = pd.DataFrame(index=counts.var_names[prepared.scored])
        AnnData(expression, obs, genes, uns={LOGGED: {}}).write_h5ad(folder / f"{task}-{context}-train.h5ad")
        targets = pd.DataFrame({RESPONSE: [STIMULATED], CONTEXT: [context]})
        targets.to_csv(folder / f"{task}-{context}-targets.csv", index=False)


def add_external(options: argparse.Namespace, prepared: Prepared, contexts: Sequence[str], path: Path) -> None:
    """Score cells of other programs, and put the rows into the result; beside them stands what was published.

    Of ``"trVAE, run here"`` that is what was published of ``trVAE``.
    """
    result, genes = read_result(path), prepared.counts.var_names[prepared.scored]
    theirs, names = published(FOLDER, options.task), dict(options.external)
    methods = sorted(theirs.index.unique("method"))
    if unknown := [name for name in names if name.partition(",")[0] not in methods]:
        raise ValueError(
            f"--external {unknown[0]!r}: begin with a published method, such as {methods[0]!r}: {methods}."
        )
    rerun = result.setdefault("rerun", {})
    for name in names:
        method = name.partition(",")[0]
        others = theirs.drop(index=method, level="method").groupby(level="left_out")
        best = {str(context): best_of(scores.droplevel("left_out")) for context, scores in others}
        rerun[name] = {"published": theirs.loc[method].to_dict("index"), "best_of_others": best}
    result["added"] = [*result.get("added", []), environment(options.threads, options.seeds)]
    for seed, context in itertools.product(options.seeds, contexts):
        control, real = cells_of(prepared, context)
        for name, file in external_files(names, f"{options.task}-{context}-seed{seed}.h5ad"):
            cells = read_external(file, genes, [CONTEXT], may_be_logged=True)
            row = {"seed": seed, "left_out": context, "prediction": name}
            scores = all_scores(cells.X.toarray().astype(np.float64), real, control)
            result["rows"] = [each for each in result["rows"] if not row.items() <= each.items()] + [row | scores]
            result.setdefault("recipes", {})[f"{name}, {context}, {seed}"] = dict(cells.uns.get("recipe", {}))
            write_result(path.parent, path.stem, result)


def new_result(options: argparse.Namespace, prepared: Prepared, theirs: pd.DataFrame) -> dict[str, Any]:
    """What is written besides the rows; of the published scores, what the page needs."""
    counts = prepared.counts
    return {
        "benchmark": "published",
        "task": options.task,
        "data": {"name": DATASETS[options.task], "n_cells": counts.n_obs, "n_genes": counts.n_vars},
        "settings": {"network": "none"},
        "environment": environment(options.threads, options.seeds),
        "published": {
            "means": theirs.groupby(level="method").mean().to_dict("index"),
            "best": {str(name): best_of(of.droplevel(1)) for name, of in theirs.groupby(level="left_out")},
        },
        "rows": [],
    }


def best_of(scores: pd.DataFrame) -> dict[str, list[Any]]:
    """The best method and its value, for each score."""
    at = {name: scores[name].idxmax() if name.startswith(HIGHER) else scores[name].idxmin() for name in scores}
    return {name: [method, scores.at[method, name]] for name, method in at.items()}


def untreated_scores(prepared: Prepared, context: str) -> dict[str, float]:
    """Scores of the control cells as a prediction."""
    control, real = cells_of(prepared, context)
    return all_scores(control, real, control)


def proved(untreated: dict[str, dict[str, float]], theirs: pd.DataFrame) -> dict[str, float]:
    """How many scores of untreated cells were compared with published ones, and the largest differences."""
    expected = theirs.loc[UNTREATED]
    names = [name for name in expected if name.rpartition("_")[0] in COMPARED]
    ours = pd.DataFrame(untreated).T[names]
    expected = expected.loc[ours.index, names]
    allowed = expected * [COMPARED[name.rpartition("_")[0]] for name in names] + DIGITS
    wrong = ~((ours - expected).abs() <= allowed)
    if wrong.to_numpy().any():
        context, name = wrong.stack()[lambda found: found].index[0]
        raise RuntimeError(
            f"{int(wrong.to_numpy().sum())} of {wrong.size} scores of untreated cells are not those published "
            f"(first: {name} of {context}, {ours.at[context, name]:.6g} and not {expected.at[context, name]:.6g}). "
            "Nothing is measured: the cells, or their preparation, are others than in the benchmark."
        )
    off = (ours - expected).abs()
    exact = [name for name in names if not COMPARED[name.rpartition("_")[0]]]
    others = [name for name in names if name not in exact]
    return {
        "n_values": int(ours.size),
        "largest_difference": float(off[exact].to_numpy().max()),
        "largest_relative_difference_of_wasserstein": float((off[others] / expected[others]).to_numpy().max()),
    }


if __name__ == "__main__":
    main()
