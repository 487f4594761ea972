"""What does a trained network add to predicted responses? Means, whole cells, and how differently cells respond.

``python -m benchmarks.studies.response_heterogeneity --types "B cells" "CD14+ Monocytes" --seeds 0 --max-epochs 12``

Of a task of the perturbation benchmark, the transferred response with what a trained network expects of each cell, with
a cell's own molecules and 500 of its identity in its place (:mod:`benchmarks.studies.responses`), and what the network
predicts alone; beside the mean change of similar types and one real half against the other. ``--inner`` leaves out one
more type and scores that.

Each transferred response is also made without the strengths that cells draw by default, without the states of cells
(between contexts and within), and without either, so that all cells respond *alike*.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

import numpy as np
import pandas as pd
from anndata import AnnData

from benchmarks._data import FOLDER
from benchmarks._perturbation_data import CONTEXT, CONTROL, RESPONSE, Fold, predicted_cells
from benchmarks._perturbation_models import predictions_of, seen_cells, start_cells, trained_model
from benchmarks._perturbation_settings import Settings
from benchmarks._perturbation_table import SCORES, Score, markdown, summary_of
from benchmarks._perturbation_tasks import TASKS, score
from benchmarks._record import start
from benchmarks.studies.responses import inner_folds, untrained_model
from scdiffgen.metrics import ExpressionSpace, classifier_auc, response_heterogeneity, split_halves
from scdiffgen.model import TokenDiffusion

METRICS = (
    "pearson_delta weighted_mse fold_change_slope energy_distance wasserstein c2st_auc response_spread "
    "non_responders_error"
).split()
N_TREES = 100
STATES = ("state_covariance", "state_loadings")
WITHOUT = {"no strengths": ("strength_variance",), "no states": STATES, "all alike": ("strength_variance", *STATES)}
SHOWN = ("no_change", "similar_contexts", "similar_contexts, as counts", "real_half")
SCORES |= {
    "genes_auc": Score("forest AUC, genes", 0.5),
    "strength": Score("mean response", 1.0),
    "non_responders": Score("non-responders", "limit"),
}


def fold_predictions(fold: Fold, seed: int, max_epochs: int | None) -> dict[str, AnnData]:
    """Cells of each target; without epochs, those that need no trained network."""
    starts = [start_cells(fold, target, None, 0) for target in fold.targets]
    options = {"seed": seed, "silent": True}
    models = {"transferred, no network": untrained_model(fold.train, dict(fold.setup))}
    if max_epochs != 0:
        models = {"transferred": trained_model(fold, seed, max_epochs), **models}
    counts = {}
    for name, model in models.items():
        counts[name] = [cells.X for cells in predictions_of(model, fold, starts, options, keep=None)]
        for without, parts in WITHOUT.items():
            with without_parts(model, parts):
                cells_of = predictions_of(model, fold, starts, options, keep=None)
            counts[f"{name}, {without}"] = [cells.X for cells in cells_of]
    if max_epochs != 0:
        alone = predictions_of(models["transferred"], fold, starts, options, keep=None, measured=False)
        counts["network alone"] = [cells.X for cells in alone]
    predictions = {name: predicted_cells(fold, cells) for name, cells in counts.items()}
    others = seen_cells(fold, Settings().max_cells, seed)
    return predictions if others is None else predictions | {"other guides": others}


@contextmanager
def without_parts(model: TokenDiffusion, parts: Sequence[str]) -> Iterator[TokenDiffusion]:
    """The model as one that was saved before these parts of its pseudobulks were learned."""
    summary = model.training_summary_
    bulks = summary["pseudobulks"]
    summary["pseudobulks"] = {name: array for name, array in bulks.items() if name not in parts}
    yield model
    summary["pseudobulks"] = bulks


def fold_scores(fold: Fold, predictions: Mapping[str, AnnData], seed: int) -> pd.DataFrame:
    """A row a prediction and target, with what the report has no column for."""
    rows = score(fold, predictions, None, Settings(), seed, METRICS)
    rows = rows[rows["prediction"].isin([*predictions, *SHOWN])]
    space, found = ExpressionSpace.fit(fold.train), []
    for target in fold.targets:
        here = _of(fold.real, target.response, target.context)
        real, other = (here[half] for half in split_halves(np.zeros(here.n_obs), seed=seed))
        control = _of(fold.train, CONTROL, target.context)
        cells = {name: _of(each, target.response, target.context) for name, each in predictions.items()}
        for name, each in (cells | {"no_change": control, "real_half": other}).items():
            n = min(real.n_obs, each.n_obs, Settings().max_cells)
            rng = np.random.default_rng(seed)
            sides = [space.expression(side[rng.permutation(side.n_obs)[:n]]) for side in (real, each)]
            described = response_heterogeneity(real, each, control, seed=seed)
            found.append(
                {
                    "context": target.context,
                    "perturbation": target.response,
                    "prediction": name,
                    "genes_auc": classifier_auc(*sides, n_trees=N_TREES, seed=seed),
                    "strength": described.strength,
                    "non_responders": described.non_responders,
                }
            )
    return rows.merge(pd.DataFrame(found), how="left").assign(seed=seed, fold=fold.name)


def _of(cells: AnnData, response: str, context: str) -> AnnData:
    return cells[((cells.obs[RESPONSE] == response) & (cells.obs[CONTEXT] == context)).to_numpy()]


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        "python -m benchmarks.studies.response_heterogeneity", description=__doc__.splitlines()[0]
    )
    parser.add_argument("--task", choices=["kang", "zhao", "norman", "papalexi", "papalexi-guides"], default="kang")
    parser.add_argument("--seeds", nargs="+", type=int, default=[0])
    parser.add_argument("--types", nargs="+", help="what to hold out (all)")
    parser.add_argument("--max-epochs", type=int, help="of the network; 0 leaves it out (its default)")
    parser.add_argument("--inner", action="store_true", help="hold out one more type of the training cells")
    parser.add_argument("--threads", type=int, default=2, help="threads of everything (2)")
    options = parser.parse_args(arguments)
    start(options.threads)
    folds = TASKS[options.task].folds(FOLDER, options.types)
    tables = []
    for fold in inner_folds(folds) if options.inner else folds:
        for seed in options.seeds:
            predictions = fold_predictions(fold, seed, options.max_epochs)
            tables.append(fold_scores(fold, predictions, seed))
        print(f"## {fold.name}\n\n{markdown(summary_of(pd.concat(tables[-len(options.seeds) :])))}\n", flush=True)
    print(f"## Mean\n\n{markdown(summary_of(pd.concat(tables)))}")


if __name__ == "__main__":
    main()
