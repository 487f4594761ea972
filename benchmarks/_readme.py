"""The summary of results in the README: how well a classifier tells generated cells from real ones."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks._tables import OURS, markdown, scores_by_method

START, END = "<!-- written by python -m benchmarks.render -->\n", "\n<!-- end of what it writes -->"
METRIC = "auc_forest_genes"
COLUMNS = {
    "other real cells": "other real cells",
    OURS: "scdiffgen",
    "scVI, Gaussian of the label": "scVI",
    "shuffled genes": "shuffled genes",
    "independent Poisson": "independent Poisson",
}


def summary_table(results: Sequence[Mapping[str, Any]]) -> str:
    """AUC of a forest on the genes: a row for the data of each result, a column for each method; - is not measured."""
    rows = []
    for result in results:
        scores = scores_by_method(result)
        medians = [f"{np.nanmedian(scores[name][METRIC]):.2f}" if name in scores else "-" for name in COLUMNS]
        rows.append([result["data"]["description"], *medians])
    return markdown(["", *COLUMNS.values()], rows)


def write_summary(readme: Path, results: Sequence[Mapping[str, Any]]) -> None:
    """Write the table between the two marks of the README."""
    before, rest = readme.read_text().split(START)
    _, after = rest.split(END)
    readme.write_text(before + START + summary_table(results) + END + after)
