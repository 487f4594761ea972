"""What does a trained network add to predicted responses? Means, whole cells, and how differently cells respond.

``python -m benchmarks.studies.response_heterogeneity --types "B cells" "CD14+ Monocytes" --seeds 0 --max-epochs 12``

Of a task of the perturbation benchmark, the transferred response with what a trained network expects of each cell, with
a cell's own molecules and 500 of its identity in its place (:mod:`benchmarks.studies.responses`), and what the network
predicts alone; beside the mean change of similar types and one real half against the other. ``--inner`` leaves out one
more type and scores that.

``--strengths`` also draws how strongly each cell responds, from a normal distribution around 1 (cut off at 0) with the
standard deviation that makes predicted cells of the measured types vary as their real treated ones do.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
from anndata import AnnData
from numpy.typing import NDArray
from scipy import sparse
from scipy.stats import norm

from benchmarks._data import FOLDER
from benchmarks._perturbation_data import CONTEXT, CONTROL, RESPONSE, Fold, predicted_cells
from benchmarks._perturbation_models import predictions_of, seen_cells, start_cells, trained_model
from benchmarks._perturbation_settings import Settings
from benchmarks._perturbation_table import SCORES, Score, markdown, summary_of
from benchmarks._perturbation_tasks import TASKS, score
from benchmarks._record import start
from benchmarks.studies.responses import inner_folds, untrained_model
from scdiffgen._log_normalise import log_normalise
from scdiffgen.metrics import ExpressionSpace, classifier_auc, response_heterogeneity, split_halves
from scdiffgen.metrics._heterogeneity import RealResponse
from scdiffgen.metrics._response import rank_genes
from scdiffgen.model import TokenDiffusion

METRICS = "pearson_delta fold_change_slope energy_distance c2st_auc response_spread non_responders_error".split()
SHOWN = ("no_change", "similar_contexts", "similar_contexts, as counts", "real_half")
N_STRENGTHS, TRIAL = 9, 0.3  # strengths that a cell can have; their standard deviation when its effect is measured
FEWEST, MOST = 40, 600  # cells of a training response that strengths are measured in
SCORES |= {
    "genes_auc": Score("forest AUC, genes", 0.5),
    "strength": Score("mean response", 1.0),
    "non_responders": Score("non-responders", "limit"),
}


def fold_predictions(fold: Fold, seed: int, max_epochs: int | None, *, strengths: bool) -> dict[str, AnnData]:
    """Cells of each target; without epochs, those that need no trained network."""
    starts = [start_cells(fold, target, None, 0) for target in fold.targets]
    options = {"seed": seed, "silent": True}
    models = {"transferred, no network": untrained_model(fold.train, dict(fold.setup))}
    if max_epochs != 0:
        models = {"transferred": trained_model(fold, seed, max_epochs), **models}
    counts = {}
    for name, model in models.items():
        counts[name] = [cells.X for cells in predictions_of(model, fold, starts, options, keep=None)]
        if strengths:
            spread = strength_spread(model, fold, seed)
            print(f"{fold.name}, {name}: strengths with a standard deviation of {spread:.3f}", flush=True)
            pairs = zip(fold.targets, starts, strict=True)
            counts[f"{name}, strengths drawn"] = [
                varied(model, fold, target.conditions, rows, spread, seed) for target, rows in pairs
            ]
    if max_epochs != 0:
        alone = predictions_of(models["transferred"], fold, starts, options, keep=None, measured=False)
        counts["network alone"] = [cells.X for cells in alone]
    predictions = {name: predicted_cells(fold, cells) for name, cells in counts.items()}
    others = seen_cells(fold, Settings().max_cells, seed)
    return predictions if others is None else predictions | {"other guides": others}


def varied(
    model: TokenDiffusion, fold: Fold, conditions: Mapping[str, Any], rows: NDArray[np.intp], spread: float, seed: int
) -> sparse.csr_matrix:
    """Counts of controls whose responses are stronger or weaker, by the quantiles of a normal distribution."""
    normal = norm.ppf((np.arange(N_STRENGTHS) + 0.5) / N_STRENGTHS)
    strengths = np.clip(1 + spread * normal / normal.std(), 0, None)
    which = np.random.default_rng(seed).permutation(np.arange(len(rows)) % N_STRENGTHS)
    parts = []
    for k in range(min(N_STRENGTHS, len(rows))):
        options = {"guidance_scale": {fold.setup["perturbation_key"]: float(strengths[k])}, "silent": True}
        parts.append(model.predict_perturbation(None, conditions, indices=rows[which == k], seed=seed + k, **options).X)
    return sparse.vstack(parts, format="csr")[np.argsort(np.argsort(which, kind="stable"), kind="stable")]


def strength_spread(model: TokenDiffusion, fold: Fold, seed: int) -> float:
    """Median over training responses of the standard deviation of strengths with which predicted cells vary as real."""
    obs, context_key, found = fold.train.obs, fold.setup.get("labels_key"), []
    response_key = fold.setup["perturbation_key"]
    for (context, response), names in obs.groupby([CONTEXT, RESPONSE], observed=True).groups.items():
        rows = fold.train.obs_names.get_indexer(names)[:MOST]
        control = np.flatnonzero((obs[CONTEXT] == context) & (obs[RESPONSE] == CONTROL))[:MOST]
        if response == CONTROL or min(len(rows), len(control)) < FEWEST:
            continue
        treated, untreated = fold.train.X[rows], fold.train.X[control]
        responding = rank_genes(log_normalise(treated), log_normalise(untreated)).significant
        if not responding.any():
            continue
        real = RealResponse(treated, untreated, responding, log_normalise, seed)
        conditions = {response_key: response} | ({context_key: context} if context_key else {})
        alike, drawn = (varied(model, fold, conditions, control, spread, seed) for spread in (0.0, TRIAL))
        of_real, of_alike, of_drawn = map(real.noiseless_variance, (treated, alike, drawn))
        found.append(TRIAL**2 * max(of_real - of_alike, 0.0) / max(of_drawn - of_alike, 0.1 * TRIAL**2))
    return float(np.sqrt(np.median(found))) if found else 0.0


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
                    "genes_auc": classifier_auc(*sides, n_trees=100, seed=seed),
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
    parser.add_argument("--task", choices=["kang", "zhao", "papalexi-guides"], default="kang")
    parser.add_argument("--seeds", nargs="+", type=int, default=[0])
    parser.add_argument("--types", nargs="+", help="what to hold out (all)")
    parser.add_argument("--max-epochs", type=int, help="of the network; 0 leaves it out (its default)")
    parser.add_argument("--inner", action="store_true", help="hold out one more type of the training cells")
    parser.add_argument("--strengths", action="store_true", help="also draw how strongly each cell responds")
    parser.add_argument("--threads", type=int, default=2, help="threads of everything (2)")
    options = parser.parse_args(arguments)
    start(options.threads)
    folds = TASKS[options.task].folds(FOLDER, options.types)
    tables = []
    for fold in inner_folds(folds) if options.inner else folds:
        for seed in options.seeds:
            predictions = fold_predictions(fold, seed, options.max_epochs, strengths=options.strengths)
            tables.append(fold_scores(fold, predictions, seed))
        print(f"## {fold.name}\n\n{markdown(summary_of(pd.concat(tables[-len(options.seeds) :])))}\n", flush=True)
    print(f"## Mean\n\n{markdown(summary_of(pd.concat(tables)))}")


if __name__ == "__main__":
    main()
