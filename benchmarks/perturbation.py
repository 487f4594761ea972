"""How well are responses predicted that were held out? One task a run, beside all baselines and real cells.

=================== ==================================================================================================
task                held out
=================== ==================================================================================================
kang                the response of a cell type to interferon; the types are left out in turn
kang-donors         the response of a donor to interferon; the donors are left out in turn
zhao                the response of the tumour of a donor to panobinostat; the donors are left out in turn
mcfaline            responses of a cell line to knock-downs, nearly none; the lines are left out in turn
norman              two genes activated at once, each of which was alone in training
papalexi            knock-outs of genes never knocked out, by their loadings in a PCA; the genes are left out in turn
papalexi-guides     guides never used, of genes that other guides knock out
packer              a window of time in an embryo, with every way to see a number; the windows are left out in turn
dose                doses of simulated perturbations, with every way to see a number
=================== ==================================================================================================

``python -m benchmarks.perturbation --task kang --seeds 0 1 2``

To add another program: export what may be trained on with ``--export FOLDER``, let it write
``OTHER/<task>-<held out>-seed<seed>.h5ad`` with counts in ``.X`` (or log(1 + counts per 10,000), and ``"log1p"`` in
``.uns``) and the columns ``response`` and ``context``, about as many cells of each as
``FOLDER/<task>-<held out>-targets.csv`` asks for, and run with ``--external NAME=OTHER``; with ``--only-external`` to
add the rows to a result that is there. Predictions start from cells of the context whose ``response`` is ``control``.
``--only-scvi`` adds in the same way latent arithmetic in scVI, which is trained for its own default length. A later run
of some models keeps what was added, and the rows of the others, with ``--keep-added``.

``--only-transferred`` scores transferred responses again in a result that is there, without training a network. A seed
that has no other rows also gets those of baselines and real cells.
"""

import argparse
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pandas as pd
from anndata import AnnData

from benchmarks._data import FOLDER
from benchmarks._dose_task import NETWORKS, TRANSFERRED_DOSE, dose_scores, simulated_cells, untrained_dose_model
from benchmarks._external import add_external_argument, external_files, read_external
from benchmarks._perturbation_data import CONTEXT, QUICK, RESPONSE, Fold, Settings
from benchmarks._perturbation_models import start_cells
from benchmarks._perturbation_table import response_table, summary_of
from benchmarks._perturbation_tasks import (
    TASKS,
    TRANSFERRED_NAMES,
    run_fold,
    score,
    scvi_predictions,
    shrunk,
    transferred_scores,
)
from benchmarks._record import benchmark_parser, environment, output_folder, read_result, start, write_result

DOSE_SIZE, QUICK_DOSE_SIZE = (4000, 200), (300, 30)  # cells, genes

SCVI = ("latent_scvi",)  # what --only-scvi adds
SCORED_BY = ("max_cells", "n_trees", "train_cells", "n_genes")  # settings that scores depend on


def main(arguments: Sequence[str] | None = None) -> None:
    options = parse(arguments)
    start(options.threads)
    if options.export is not None:
        export(options.task, options.types, options.export)
        return
    folder = output_folder(options.output, quick=options.quick)
    result = new_result(options)
    path = folder / f"perturbation-{options.task}.json"
    if options.only_transferred or options.only_external or options.only_scvi:
        add(options, path)
        return
    if options.resume and path.exists():
        before = read_result(path)
        result["rows"] = resumed(path, result["settings"])
        result = before | result | {"settings": before["settings"] | result["settings"]}  # what was added stays
    others: list[dict[str, Any]] = []
    if options.keep_added and path.exists():
        result, others = with_added(result, read_result(path))
    for seed in options.seeds:
        done = {row["fold"] for row in result["rows"] if row["seed"] == seed}
        for fold, rows in measure(options, seed, done):
            print(f"{options.task}, seed {seed}: {fold}", flush=True)
            result["rows"] += [{"seed": seed, "fold": fold, **row} for row in rows.to_dict("records")]
            write_result(folder, path.stem, result | {"rows": [*result["rows"], *others]})
    print(f"\n## {options.task}\n\n{response_table(summary_of(pd.DataFrame(result['rows'])))}")


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = benchmark_parser("benchmarks.perturbation", __doc__)
    parser.add_argument("--task", choices=[*TASKS, "dose"], required=True)
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1, 2])
    parser.add_argument(
        "--types", nargs="+", help="what to hold out: cell types, donors, lines, pairs, genes, guides or windows (all)"
    )
    parser.add_argument("--models", nargs="+", help="variants of the model (all)")
    parser.add_argument("--max-epochs", type=int, help="epochs of every model (the default of each)")
    parser.add_argument("--no-scvi", action="store_true", help="leave out latent arithmetic in scVI")
    parser.add_argument("--export", type=Path, metavar="FOLDER", help="write what may be trained on, and run nothing")
    add_external_argument(parser)
    parser.add_argument("--only-external", action="store_true", help="add the rows of --external to the result")
    parser.add_argument("--only-scvi", action="store_true", help="add the rows of latent arithmetic in scVI")
    parser.add_argument("--only-transferred", action="store_true", help="score transferred responses again, untrained")
    parser.add_argument("--resume", action="store_true", help="keep the rows of a run that was stopped")
    parser.add_argument("--keep-added", action="store_true", help="keep rows that were added, or of other models")
    options = parser.parse_args(arguments)
    known = list(NETWORKS if options.task == "dose" else TASKS[options.task].models)
    options.models = known if options.models is None else options.models
    if options.only_external or options.only_scvi:
        options.models = []
    if options.only_transferred and options.task != "dose" and TASKS[options.task].of_time:
        parser.error(f"--only-transferred is for perturbations, not for {options.task}")
    if options.only_external and not options.external:
        parser.error("--only-external needs --external NAME=FOLDER")
    if unknown := set(options.models) - set(known):
        parser.error(f"--models {' '.join(sorted(unknown))}: {options.task} has {' '.join(known)}")
    if options.task == "dose" and (options.external or options.export):
        parser.error("--external and --export are for real cells, not for dose")
    return options


def settings_of(options: argparse.Namespace) -> Settings:
    settings = QUICK if options.quick else Settings()
    return settings if options.max_epochs is None else replace(settings, max_epochs=options.max_epochs)


def new_result(options: argparse.Namespace) -> dict[str, Any]:
    """What is written besides the rows."""
    chosen = {name: getattr(options, name) for name in ("models", "no_scvi")}
    if options.external:
        chosen["external"] = sorted(dict(options.external))
    return {
        "benchmark": "perturbation",
        "task": options.task,
        "settings": {**asdict(settings_of(options)), **chosen},
        "environment": environment(options.threads, options.seeds),
        "rows": [],
    }


def resumed(path: Path, settings: dict[str, Any]) -> list[dict[str, Any]]:
    """Rows of a run with the same settings; raise if they were others."""
    before = read_result(path)
    changed = [name for name, value in settings.items() if before["settings"].get(name) != value]
    if changed:
        raise ValueError(f"{path} was run with other {', '.join(changed)}: drop --resume, or choose another --output.")
    return before["rows"]


def with_added(result: dict[str, Any], before: dict[str, Any]) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """A new result with what an old one of the same task has besides, and the rows of that; raise if scored otherwise.

    These are of other programs that were added, and of models that are not run again.
    """
    if changed := [name for name in SCORED_BY if before["settings"][name] != result["settings"][name]]:
        raise ValueError(f"What was added was scored with other {', '.join(changed)}: drop --keep-added.")
    theirs, ours = before["settings"].get("external", []), result["settings"]["models"]
    not_run = [name for name in before["settings"]["models"] if name not in ours]
    names = {*not_run, *(theirs if "added" not in before else (*theirs, *SCVI))}
    rows = [row for row in before["rows"] if row["prediction"].partition(":")[0] in names]
    added = before.get("added", [])
    if not all(any(name in later["command"] for later in added) for name in not_run):
        added = [*added, before["environment"]]
    kept = {"added": added} if rows else {}
    kept |= {"recipes": before["recipes"]} if "recipes" in before else {}
    settings = result["settings"] | {"external": theirs, "models": [*ours, *not_run]}
    return result | kept | {"settings": settings}, rows


def measure(options: argparse.Namespace, seed: int, done: Collection[str]) -> Iterator[tuple[str, pd.DataFrame]]:
    """Scores of every fold that is not done yet, by its name."""
    settings = settings_of(options)
    if options.task == "dose":
        if "dose" not in done:
            adata = simulated_cells(*(QUICK_DOSE_SIZE if options.quick else DOSE_SIZE), seed)
            yield "dose", dose_scores(adata, options.models, settings, seed)
        return
    task = TASKS[options.task]
    for fold in task.folds(FOLDER, options.types):
        if fold.name in done:
            continue
        rows = run_fold(
            task,
            fold,
            options.models,
            settings,
            seed,
            with_scvi=not options.no_scvi,
            external=external_predictions(dict(options.external), options.task, fold, seed),
        )
        yield fold.name, rows


def add(options: argparse.Namespace, path: Path) -> None:
    """Score other programs, scVI or transferred responses alone, and put the rows into the result, if there is one."""
    result = read_result(path) if path.exists() or options.only_transferred else new_result(options)
    settings = settings_of(options)
    if changed := [name for name in SCORED_BY if result["settings"][name] != getattr(settings, name)]:
        raise ValueError(f"{path} was scored with other {', '.join(changed)}: choose another --output.")
    result["added"] = [*result.get("added", []), environment(options.threads, options.seeds)]
    for seed in options.seeds:
        folds = transferred_folds if options.only_transferred else other_folds
        for fold, scores, names in folds(options, settings, seed, result):
            replaced = {(seed, fold, name) for name in names}
            kept = [row for row in result["rows"] if (row["seed"], row["fold"], row["prediction"]) not in replaced]
            rows = [{"seed": seed, "fold": fold, **row} for row in scores.to_dict("records")]
            result["rows"] = [*rows, *kept] if options.only_transferred else [*kept, *rows]
            write_result(path.parent, path.stem, result)
    print(f"\n## {options.task}\n\n{response_table(summary_of(pd.DataFrame(result['rows'])))}")


def other_folds(
    options: argparse.Namespace, settings: Settings, seed: int, result: dict[str, Any]
) -> Iterator[tuple[str, pd.DataFrame, Collection[str]]]:
    """Scores of other programs, or of scVI, by fold, and their names; the result gets these and their recipes."""
    folders = dict(options.external)
    result["settings"]["external"] = sorted({*result["settings"].get("external", []), *folders})
    for fold in TASKS[options.task].folds(FOLDER, options.types):
        cells = external_predictions(folders, options.task, fold, seed)
        fold = shrunk(fold, settings, seed)
        if options.only_scvi:
            cells |= scvi_predictions(fold, settings, seed)
        recipes = {f"{name}, {fold.name}, {seed}": of.uns["recipe"] for name, of in cells.items() if "recipe" in of.uns}
        result.setdefault("recipes", {}).update({name: dict(recipe) for name, recipe in recipes.items()})
        yield fold.name, score(fold, cells, (), settings, seed) if cells else pd.DataFrame(), cells


def transferred_folds(
    options: argparse.Namespace, settings: Settings, seed: int, result: dict[str, Any]
) -> Iterator[tuple[str, pd.DataFrame, Collection[str]]]:
    """Scores of transferred responses by fold; seeds without other rows get those of baselines."""
    scored = {(row["seed"], row["fold"]) for row in result["rows"]}
    if options.task == "dose":
        size = QUICK_DOSE_SIZE if options.quick else DOSE_SIZE
        found = dose_scores(simulated_cells(*size, seed), [TRANSFERRED_DOSE], settings, seed, untrained_dose_model)
        name = f"{TRANSFERRED_DOSE}: transferred"
        alone = found["prediction"] == name if (seed, "dose") in scored else found["prediction"] != TRANSFERRED_DOSE
        yield "dose", found[alone], set(found.loc[alone, "prediction"])
        return
    for fold in TASKS[options.task].folds(FOLDER, options.types):
        alone = (seed, fold.name) in scored
        found = transferred_scores(shrunk(fold, settings, seed), settings, seed, alone=alone)
        yield fold.name, found, {*TRANSFERRED_NAMES, *found["prediction"]}


def available_tasks() -> list[str]:
    """Tasks whose data are there."""
    return [*(name for name, task in TASKS.items() if (FOLDER / task.file).exists()), "dose"]


def external_predictions(folders: Mapping[str, Path], task: str, fold: Fold, seed: int) -> dict[str, AnnData]:
    """Responses that other programs predicted; a folder without the file is left out.

    As many cells of a target as there are controls are predicted from these in order, and get their names.
    """
    files, columns = external_files(folders, f"{file_name(task, fold)}-seed{seed}.h5ad"), [RESPONSE, CONTEXT]
    found = {name: read_external(path, fold.train.var_names, columns, may_be_logged=True) for name, path in files}
    for cells in found.values():
        names = cells.obs_names.to_numpy(dtype=object, copy=True)
        for target in fold.targets:
            own = ((cells.obs[RESPONSE] == target.response) & (cells.obs[CONTEXT] == target.context)).to_numpy()
            start = start_cells(fold, target, None, seed)
            if own.sum() == len(start):
                names[own] = fold.train.obs_names[start]
        cells.obs_names = names
    return found


def export(task: str, types: Sequence[str] | None, folder: Path) -> None:
    """Write training cells, and how many cells of each response are held out, for other programs."""
    folder.mkdir(parents=True, exist_ok=True)
    for fold in TASKS[task].folds(FOLDER, types):
        fold.train.write_h5ad(folder / f"{file_name(task, fold)}-train.h5ad")
        wanted = fold.real.obs[[RESPONSE, CONTEXT]].value_counts().rename("n_cells")
        wanted.to_csv(folder / f"{file_name(task, fold)}-targets.csv")


def file_name(task: str, fold: Fold) -> str:
    """Beginning of the names of the files of a fold."""
    return f"{task}-{fold.name.replace(' ', '_').replace('/', '_')}"


if __name__ == "__main__":
    main()
