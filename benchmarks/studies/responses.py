"""Are predicted responses as good as the best simple baseline? All tasks in minutes, without a network.

``python -m benchmarks.studies.responses --tasks kang zhao norman papalexi papalexi-guides dose --seeds 0 1 2``

Transferred responses need no network, so none is trained. ``--inner`` leaves out the response of one more context, or
half of the cells of each treatment where there is one context alone, and scores that: for choices, which must not be
made on the responses that are reported. ``transferred, mean alone`` adds to each control the mean response that cells
are drawn for (``get_mean_response``), as simple baselines add theirs: without sampling noise.
"""

import argparse
from collections.abc import Iterator, Sequence

import pandas as pd

from benchmarks._data import FOLDER
from benchmarks._dose_task import dose_scores, simulated_cells, untrained_dose_model
from benchmarks._perturbation_data import CONTEXT, CONTROL, RESPONSE, Fold, Settings, Target, predicted_cells, split
from benchmarks._perturbation_models import (
    mean_response_cells,
    predictions_of,
    seen_cells,
    start_cells,
    untrained_model,
)
from benchmarks._perturbation_table import response_table, summary_of
from benchmarks._perturbation_tasks import TASKS, score
from benchmarks._record import start
from benchmarks.perturbation import DOSE_SIZE

METRICS = "pearson_delta weighted_mse de_overlap fold_change_slope energy_distance wasserstein c2st_auc".split()
REAL_TASKS = ("kang", "kang-donors", "mcfaline", "zhao", "norman", "papalexi", "papalexi-guides")


def inner_folds(folds: Iterator[Fold]) -> Iterator[Fold]:
    """Of each fold, one of its training cells, in which the next context is held out.

    Where there is one context alone, every other cell of each treatment is.
    """
    for fold in folds:
        treated = fold.train.obs.loc[fold.train.obs[RESPONSE] != CONTROL]
        contexts = sorted(treated[CONTEXT].unique())
        outer, response = fold.targets[0].context, fold.targets[0].response
        if contexts == [outer]:
            yield _half(fold, treated)
            continue
        name = next((each for each in contexts if each > outer), contexts[0])
        held_out = ((fold.train.obs[CONTEXT] == name) & (fold.train.obs[RESPONSE] != CONTROL)).to_numpy()
        conditions = {key: name if of == outer else of for key, of in fold.targets[0].conditions.items()}
        yield split(f"{name} without {outer}", fold.train, held_out, [Target(response, name, conditions)], fold.setup)


def _half(fold: Fold, treated: pd.DataFrame) -> Fold:
    """Every other cell of each treatment held out, under another name."""
    half = treated.index[treated.groupby(RESPONSE).cumcount() % 2 == 1]
    cells, key = fold.train.copy(), fold.setup["perturbation_key"]
    targets = [Target(f"{name}, held out", fold.targets[0].context, {key: name}) for name in treated[RESPONSE].unique()]
    cells.obs[RESPONSE] = cells.obs[RESPONSE].mask(cells.obs_names.isin(half), cells.obs[RESPONSE] + ", held out")
    return split(f"half without {fold.name}", cells, cells.obs_names.isin(half), targets, fold.setup)


def fold_scores(fold: Fold, seeds: Sequence[int]) -> pd.DataFrame:
    """Scores of the prediction and of all baselines, a row a seed, prediction and held-out response."""
    settings, model = Settings(), untrained_model(fold.train, dict(fold.setup))
    starts = [start_cells(fold, target, None, 0) for target in fold.targets]
    rows = []
    for seed in seeds:
        drawn = predictions_of(model, fold, starts, {"seed": seed, "silent": True}, keep=None)
        predictions = {"transferred": predicted_cells(fold, [each.X for each in drawn], starts)}
        if (means := mean_response_cells(model, fold)) is not None:
            predictions["transferred, mean alone"] = means
        if (others := seen_cells(fold, settings.max_cells, seed)) is not None:
            predictions["other_guides"] = others
        rows.append(score(fold, predictions, None, settings, seed, METRICS).assign(seed=seed, fold=fold.name))
    return pd.concat(rows)


def task_scores(task: str, seeds: Sequence[int], types: Sequence[str] | None, *, inner: bool) -> pd.DataFrame:
    """Scores of a task."""
    if task == "dose":
        found = [
            dose_scores(simulated_cells(*DOSE_SIZE, seed), ["replaced"], Settings(), seed, untrained_dose_model).assign(
                seed=seed
            )
            for seed in seeds
        ]
        rows = pd.concat(found)
        return rows[rows["prediction"] != "replaced"]
    folds = TASKS[task].folds(FOLDER, types)
    chosen = inner_folds(folds) if inner else folds
    return pd.concat([fold_scores(fold, seeds) for fold in chosen])


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser("python -m benchmarks.studies.responses", description=__doc__.splitlines()[0])
    parser.add_argument("--tasks", nargs="+", choices=[*REAL_TASKS, "dose"], default=[*REAL_TASKS, "dose"])
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1, 2])
    parser.add_argument("--types", nargs="+", help="what to hold out (all)")
    parser.add_argument("--inner", action="store_true", help="hold out one more context of the training cells")
    parser.add_argument("--threads", type=int, default=2, help="threads of everything (2)")
    options = parser.parse_args(arguments)
    start(options.threads)
    for task in options.tasks:
        rows = task_scores(task, options.seeds, options.types, inner=options.inner)
        print(f"## {task}\n\n{response_table(summary_of(rows))}\n", flush=True)


if __name__ == "__main__":
    main()
