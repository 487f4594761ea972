"""How often 80 % intervals of predicted responses cover what was measured: all genes, and those that change most.

``python -m benchmarks.studies.coverage --tasks kang kang-donors zhao papalexi papalexi-guides norman --threads 1``

Tasks are those of the perturbation benchmark. The measured change is that of the held-out cells at equal depth. *ours*
are the 30 genes of the largest predicted change, *true* those of the largest measured one.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence

import numpy as np
import pandas as pd
from anndata import AnnData

from benchmarks._data import FOLDER
from benchmarks._perturbation_data import CONTEXT, CONTROL, FEATURES_KEY, RESPONSE, Fold
from benchmarks._perturbation_tasks import TASKS
from benchmarks._record import start
from scdiffgen.conditions import Code
from scdiffgen.responses import ResponseEstimator

N_TOP = 30


def fitted(cells: AnnData) -> ResponseEstimator:
    """Estimator of the responses of cells."""
    labels, table = cells.obs[RESPONSE], cells.uns.get(FEATURES_KEY)
    features = None if table is None else dict(zip(table.index, table.to_numpy(), strict=True))
    return ResponseEstimator.fit(cells.X, cells.obs[CONTEXT], None, labels, features=features, control=CONTROL)


def fold_scores(fold: Fold) -> pd.DataFrame:
    """Coverage of the responses of a fold."""
    known, whole = fitted(fold.train), fitted(fold.with_treated)
    rows = []
    for target in fold.targets:
        *_, asked = target.conditions.values()  # the knocked-out gene, if the response is that of a guide
        found = known.predict(asked, target.context)
        context = np.array([[*whole.contexts].index(target.context), Code.MISSING])
        treatment = {[*whole.names].index(part): 1.0 for part in target.response.split("+")}
        truth = whole.predictor.comparisons.change(context, np.array([0]), treatment)
        is_covered = np.abs(found.change - truth) <= found.half_width
        tops = (np.argsort(-np.abs(change))[:N_TOP] for change in (found.change, truth))
        ours, true = (is_covered[genes].mean() for genes in tops)
        width = float(np.median(found.half_width))
        rows.append([fold.name, target.context, target.response, found.source, is_covered.mean(), ours, true, width])
    names = ["fold", "context", "response", "source", "all", "ours", "true", "median half-width"]
    return pd.DataFrame(rows, columns=names)


def main(arguments: Sequence[str] | None = None) -> None:
    """Print the coverage of each task."""
    parser = argparse.ArgumentParser("python -m benchmarks.studies.coverage", description=__doc__.splitlines()[0])
    parser.add_argument("--tasks", nargs="+", choices=sorted(TASKS), default=["kang", "kang-donors", "zhao"])
    parser.add_argument("--threads", type=int, default=2, help="threads of everything (2)")
    options = parser.parse_args(arguments)
    start(options.threads)
    for task in options.tasks:
        found = pd.concat([fold_scores(fold) for fold in TASKS[task].folds(FOLDER, None)])
        print(f"## {task}\n\n{found.round(2).to_string(index=False)}")
        print(found.mean(numeric_only=True).round(3).to_string(), "\n", flush=True)


if __name__ == "__main__":
    main()
