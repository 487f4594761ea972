"""The README's table of results: scdiffgen, the best other program, the best baseline and real cells, by task."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from benchmarks._generation_table import OURS, scores_by_method
from benchmarks._perturbation_table import summary_of
from benchmarks._published_predictions import HALF, SIMILAR
from benchmarks._published_predictions import OURS as OUR_PREDICTION
from benchmarks._published_table import LEFT_OUT, means
from benchmarks._tables import markdown

Result = Mapping[str, Any]
HEADER = ("task", "score", "scdiffgen", "best other program", "best simple baseline", "real cells")
AUCS = ("auc_forest_pcs", "auc_forest_genes")
COPULA = "linear Gaussian copula, no network"
GENERATORS = {  # of the tables of generation, by what the README calls them
    **dict.fromkeys(("scVI, Gaussian of the label", "scVI, Gaussian mixture of the label"), "scVI"),
    **dict.fromkeys(("CFGen, full length", "CFGen"), "CFGen"),
    **{"scDiffusion": "scDiffusion", "scDiffusion, drawn": "scDiffusion", "scLDM": "scLDM"},
}
GENERATING_BASELINES = {
    COPULA: "linear copula",
    "shuffled genes": "shuffled genes",
    "independent Poisson": "independent Poisson",
}
RESPONDING = {
    **{"CellFlow": "CellFlow", "latent_scvi": "scVI arithmetic", "CPA, counts": "CPA", "scGen": "scGen"},
    "biolord": "biolord",
}
RESPONDING_BASELINES = {
    "similar_contexts": "similarity-weighted mean shift",
    "nearest_context": "shift of the nearest type",
    "other_contexts": "mean shift",
}
MODEL, DISTANCE = "effect: coupled", "energy_distance"


def results_table(
    generation: Sequence[Result], responses: Result, published: Sequence[Result], published_cells: Result
) -> str:
    """Write a row for each task; the best of several programs or baselines is named."""
    rows = [_generation_row(result) for result in generation]
    cells = pd.DataFrame(published_cells["rows"]).groupby("method")[["WD", "MMD"]].median()
    theirs = pd.DataFrame(published_cells["published"]).T.drop("training cells against test cells")
    rows.append(
        [
            "published table of generated PBMC (MOE-FB)",
            "Wasserstein distance; MMD",
            _pair(cells.loc[OURS], "{:.2f}; {:.4f}"),
            "; ".join(f"{theirs[score].min():.4g} ({theirs[score].idxmin()})" for score in ("WD", "MMD")),
            _pair(cells.loc[COPULA], "{:.2f}; {:.4f}") + " (linear copula)",
            _pair(cells.loc["training cells"], "{:.2f}; {:.4f}"),
        ]
    )
    scores = summary_of(pd.DataFrame(responses["rows"]))[DISTANCE]
    rows.append(
        [
            "response of a cell type never treated (Kang 2018)",
            "energy distance",
            f"{scores[MODEL]:.2f}",
            *(_best(scores, names, "{:.2f}") for names in (RESPONDING, RESPONDING_BASELINES)),
            f"{scores['real_half']:.2f}",
        ]
    )
    for result in published:
        scores = means(result)["edistance_5000"]
        rows.append(
            [
                f"published benchmark (scPerturBench), a {LEFT_OUT[result['task']]} left out",
                "energy distance",
                f"{scores[OUR_PREDICTION]:.2f}",
                _best(scores, {name: name for name in result["published"]["means"]}, "{:.2f}"),
                _best(scores, {SIMILAR: "similarity-weighted mean shift"}, "{:.2f}"),
                f"{scores[HALF]:.2f}",
            ]
        )
    return markdown([*HEADER], rows)


def _generation_row(result: Result) -> list[str]:
    """AUCs of forests on components and on genes: medians over seeds."""
    medians = {
        name: [float(np.nanmedian(scores[auc])) for auc in AUCS]
        for name, scores in scores_by_method(result).items()
        if all(auc in scores for auc in AUCS)
    }
    table = pd.DataFrame(medians, index=AUCS).T

    def best(names: Mapping[str, str]) -> str:
        return "; ".join(_best(table[auc], names, "{:.2f}") for auc in AUCS)

    return [
        f"generation: {result['data']['description']}",
        "AUC; components; genes",
        _pair(table.loc[OURS], "{:.2f}; {:.2f}"),
        best(GENERATORS),
        best(GENERATING_BASELINES),
        _pair(table.loc["other real cells"], "{:.2f}; {:.2f}"),
    ]


def _best(scores: pd.Series, names: Mapping[str, str], form: str) -> str:
    """The lowest of some scores, and whose it is."""
    there = scores.loc[[name for name in names if name in scores.index]].dropna()
    return f"{form.format(there.min())} ({names[there.idxmin()]})" if len(there) else "-"


def _pair(values: Iterable[float], form: str) -> str:
    return form.format(*values)
