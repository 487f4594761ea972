"""The summary of results in the README: generated cells told from real ones, and predicted responses."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from benchmarks._generation_table import OURS, PRIOR_METRIC, PRIORS, best_prior, scores_by_method
from benchmarks._perturbation_table import SCORES, summary_of
from benchmarks._tables import markdown

COLUMNS = {
    "other real cells": ("other real cells",),
    "scdiffgen": (OURS,),
    "linear copula": ("linear Gaussian copula, no network",),
    "scVI": PRIORS,
    "CFGen": ("CFGen, full length",),
    "shuffled genes": ("shuffled genes",),
    "independent Poisson": ("independent Poisson",),
}
RESPONSES = {
    "real_half": "other real cells",
    "effect: coupled": "scdiffgen",
    "similar_contexts": "controls, and the mean change of the other types, similar ones above all",
    "CellFlow": "CellFlow, smaller and for less than it recommends",
    "latent_scvi": "scVI, latent arithmetic",
    "nearest_context": "controls, and the change of the nearest type",
    "other_contexts": "controls, and the mean change of the other types",
    "CPA, counts": "CPA, its counts",
    "scGen": "scGen",
    "biolord": "biolord",
}
RESPONSE_SCORES = ("pearson_delta", "de_overlap", "fold_change_slope", "wasserstein", "c2st_auc", "energy_distance")
NEARER, MODEL = "energy_distance", "effect: coupled"


def generation_summary(results: Sequence[Mapping[str, Any]]) -> str:
    """AUC of a forest on the genes: a row for the data of each result, a column for each method; - is not measured.

    Of scVI it is that of the better prior.
    """
    rows = []
    for result in results:
        scores = best_prior(scores_by_method(result))
        found = [next((scores[name] for name in names if name in scores), None) for names in COLUMNS.values()]
        medians = ["-" if of is None else f"{np.nanmedian(of[PRIOR_METRIC]):.2f}" for of in found]
        rows.append([result["data"]["description"], *medians])
    return markdown(["", *COLUMNS], rows)


def response_summary(result: Mapping[str, Any]) -> str:
    """Scores of predicted responses, a row a prediction; by energy distance also the range, and who is nearer.

    Ranges are over what is held out, each at its median over seeds, and wins are ours against a prediction.
    """
    table = pd.DataFrame(result["rows"])
    scores = summary_of(table)
    distances = table.pivot_table(index="prediction", columns="fold", values=NEARER, aggfunc="median")
    rows = []
    for name, said in RESPONSES.items():
        if name not in scores.index:
            continue
        means = [f"{scores.loc[name, score]:.2f}" for score in RESPONSE_SCORES]
        here = distances.loc[name]
        opponent = name not in ("real_half", MODEL)
        wins = f"{int((distances.loc[MODEL] < here).sum())} of {distances.shape[1]}" if opponent else "-"
        rows.append([said, *means, f"{here.median():.2f} ({here.min():.2f} to {here.max():.2f})", wins])
    titles = [SCORES[score].title for score in RESPONSE_SCORES]
    return markdown(["", *titles, "its median (range)", "scdiffgen is nearer in"], rows)
