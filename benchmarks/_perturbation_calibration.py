"""The factor of an effect, chosen without the cells that are held out.

Cell types come in pairs of the most alike. One model is trained without the treated cells of both; the factor for one
of them is that by which the response of the other is predicted best. Neither sees its own treated cells.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pandas as pd
from anndata import AnnData
from scipy.spatial.distance import pdist, squareform

from benchmarks._perturbation_data import CONTEXT, CONTROL, RESPONSE, kang_cells, kang_fold
from benchmarks._perturbation_models import response_predictions, trained_model
from benchmarks._perturbation_settings import Settings
from benchmarks._perturbation_tasks import shrunk
from scdiffgen.metrics import ExpressionSpace, perturbation_report

FACTORS = (1.0, 1.2, 1.4, 1.6, 1.8, 2.0)


def calibrated_factor(folder: Path, cell_type: str, settings: Settings, seed: int, cache: Path) -> float:
    """Factor for a cell type.

    Parameters
    ----------
    folder
        Where the data are.
    cell_type
        Cell type to predict.
    settings
        How much work to do.
    seed
        Seed of training and prediction.
    cache
        JSON file of scores, of which those computed before are read; others are added.
    """
    adata = kang_cells(folder)
    partner = partners_of(adata)[cell_type]
    pair = sorted((cell_type, partner))
    key = " | ".join([*pair, f"seed {seed}", str(settings)])
    known = json.loads(cache.read_text()) if cache.exists() else {}
    if key not in known:
        known[key] = factor_scores(adata, pair, settings, seed)
        cache.parent.mkdir(parents=True, exist_ok=True)
        cache.write_text(json.dumps(known, indent=1))
    scores = known[key][partner]
    return float(min(scores, key=scores.get))


def factor_scores(adata: AnnData, types: Sequence[str], settings: Settings, seed: int) -> dict[str, dict[str, float]]:
    """Energy distance of the predicted to the real response of each of the types, by factor."""
    fold = shrunk(kang_fold(adata, types), settings, seed)
    model = trained_model(fold, seed, settings.max_epochs, **settings.size)
    predictions = {
        str(factor): response_predictions(
            model, fold, keep=(None,), factor=factor, max_cells=settings.max_cells, seed=seed
        )["coupled"]
        for factor in FACTORS
    }
    report = perturbation_report(
        fold.real,
        fold.control,
        predictions,
        fold.train,
        perturbation_key=RESPONSE,
        context_key=CONTEXT,
        control_label=CONTROL,
        metrics=["energy_distance"],
        baselines=[],
        max_cells=settings.max_cells,
        seed=seed,
    )
    table = report.pivot(index="context", columns="prediction", values="energy_distance")
    return {name: row.to_dict() for name, row in table.iterrows()}


def partners_of(adata: AnnData) -> dict[str, str]:
    """Partner of each cell type: pairs are made of the two most alike controls, then of the two next, and so on."""
    controls = adata[adata.obs[RESPONSE] == CONTROL]
    space = ExpressionSpace.fit(controls)
    means = pd.DataFrame(space.pcs(controls)).groupby(controls.obs[CONTEXT].to_numpy()).mean()
    between = squareform(pdist(means))
    np.fill_diagonal(between, np.inf)
    distances = pd.DataFrame(between, index=means.index, columns=means.index)
    partners: dict[str, str] = {}
    left = distances
    while len(left) > 1:
        one, other = left.stack().idxmin()
        partners |= {one: other, other: one}
        left = left.drop(index=[one, other], columns=[one, other])
    for alone in left.index:
        partners[alone] = str(distances[alone].idxmin())
    return partners
