"""The summary of results in the README: generated cells told from real ones, and predicted responses."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from benchmarks._perturbation_table import SCORES, summary_of
from benchmarks._tables import OURS, markdown, scores_by_method

START, END = "<!-- {}, written by python -m benchmarks.render -->\n", "\n<!-- end of {} -->"
METRIC = "auc_forest_genes"
COLUMNS = {
    "other real cells": "other real cells",
    OURS: "scdiffgen",
    "scVI, Gaussian of the label": "scVI",
    "shuffled genes": "shuffled genes",
    "independent Poisson": "independent Poisson",
}


RESPONSES = {
    "real_half": "other real cells",
    "effect: coupled": "scdiffgen",
    "nearest_context": "controls, and the change of the nearest type",
    "latent_scvi": "scVI, latent arithmetic",
    "other_contexts": "controls, and the mean change of the other types",
}
RESPONSE_SCORES = ("pearson_delta", "de_overlap", "fold_change_slope", "energy_distance", "wasserstein", "c2st_auc")


def generation_summary(results: Sequence[Mapping[str, Any]]) -> str:
    """AUC of a forest on the genes: a row for the data of each result, a column for each method; - is not measured."""
    rows = []
    for result in results:
        scores = scores_by_method(result)
        medians = [f"{np.nanmedian(scores[name][METRIC]):.2f}" if name in scores else "-" for name in COLUMNS]
        rows.append([result["data"]["description"], *medians])
    return markdown(["", *COLUMNS.values()], rows)


def response_summary(result: Mapping[str, Any]) -> str:
    """Scores of predicted responses: a row a prediction."""
    scores = summary_of(pd.DataFrame(result["rows"]))
    rows = [
        [said, *(f"{scores.loc[name, score]:.2f}" for score in RESPONSE_SCORES)]
        for name, said in RESPONSES.items()
        if name in scores.index
    ]
    return markdown(["", *(SCORES[score].title for score in RESPONSE_SCORES)], rows)


def write_summary(readme: Path, name: str, table: str) -> None:
    """Write a table between the two marks of its name in the README."""
    before, rest = readme.read_text().split(START.format(name))
    _, after = rest.split(END.format(name))
    readme.write_text(before + START.format(name) + table + END.format(name) + after)
