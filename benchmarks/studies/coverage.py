"""How often 80 % intervals of predicted responses cover what was measured: all genes, and those that change most.

``python -m benchmarks.studies.coverage --tasks kang kang-donors zhao papalexi papalexi-guides norman --threads 1``

Tasks are those of the perturbation benchmark. The measured change is that of the held-out cells at equal depth. *ours*
are the 30 genes of the largest predicted change, *true* those of the largest measured one.

``--few 20 25 100`` instead measures own responses of so many CD4 T cells of Kang 2018: of untreated cells, whose
intervals should not exclude 0, and of treated ones, whose intervals should hold the change of as many others.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence

import numpy as np
import pandas as pd
from anndata import AnnData
from scipy.sparse import vstack

from benchmarks._data import FOLDER
from benchmarks._perturbation_data import CONTEXT, CONTROL, FEATURES_KEY, RESPONSE, Fold, kang_cells
from benchmarks._perturbation_tasks import TASKS
from benchmarks._record import start
from scdiffgen._log_normalise import log_normalise
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
        table = whole.predictor.comparisons
        truth = table.change(next(table.untreated(context)), treatment)
        is_covered = np.abs(found.change - truth) <= found.half_width
        tops = (np.argsort(-np.abs(change))[:N_TOP] for change in (found.change, truth))
        ours, true = (is_covered[genes].mean() for genes in tops)
        width = float(np.median(found.half_width))
        rows.append([fold.name, target.context, target.response, found.source, is_covered.mean(), ours, true, width])
    names = ["fold", "context", "response", "source", "all", "ours", "true", "median half-width"]
    return pd.DataFrame(rows, columns=names)


def few_scores(n_treated: int, seed: int) -> pd.Series:
    """Own responses of random untreated, then treated, CD4 T cells, and of a replicate with as many cells."""
    cells = kang_cells(FOLDER)
    cells = cells[cells.obs[CONTEXT] == "CD4 T cells"]
    rng = np.random.default_rng(seed)
    arms = [cells.X[rng.permutation(np.flatnonzero(cells.obs[RESPONSE] == name))] for name in (CONTROL, "stim")]
    before, after = (log_normalise(arm).mean(0) for arm in arms)
    top = np.argsort(-np.abs(np.ravel(after - before)))[:N_TOP]
    is_sparse = np.ravel((arms[0] > 0).mean(0)) < 0.02
    scores = {}
    for name, treated in zip(("untreated", "treated"), arms, strict=True):
        found = []
        for half in range(2):
            controls = arms[0][2 * n_treated + half :: 2]
            pair = treated[half * n_treated :][:n_treated], controls
            labels = np.repeat(["drug", CONTROL], [x.shape[0] for x in pair])
            found.append(ResponseEstimator.fit(vstack(pair), treatment=labels))
        change, width = (getattr(found[0].predict("drug"), field) for field in ("change", "half_width"))
        excluded = np.abs(change) > width
        truth = found[1].predictor.comparisons.measured(np.array([0]), {0: 1.0}).change[0]
        covered = np.abs(truth - change) <= width
        values = excluded[is_sparse].mean(), excluded[~is_sparse].mean(), covered.mean(), covered[top].mean()
        names = "excludes 0, sparse", "excludes 0, dense", "covered", "covered, true 30"
        scores |= {f"{name}: {key}": value for key, value in zip(names, values, strict=True)}
    return pd.Series(scores)


def main(arguments: Sequence[str] | None = None) -> None:
    """Print the coverage of each task."""
    parser = argparse.ArgumentParser("python -m benchmarks.studies.coverage", description=__doc__.splitlines()[0])
    parser.add_argument("--tasks", nargs="+", choices=sorted(TASKS), default=["kang", "kang-donors", "zhao"])
    parser.add_argument("--threads", type=int, default=2, help="threads of everything (2)")
    parser.add_argument("--few", nargs="+", type=int, default=[], help="numbers of treated cells, in place of tasks")
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1, 2], help="seeds of the splits (0 1 2)")
    options = parser.parse_args(arguments)
    start(options.threads)
    for n_treated in options.few:
        found = pd.DataFrame([few_scores(n_treated, seed) for seed in options.seeds])
        print(f"## {n_treated} treated cells\n\n{found.mean().round(3).to_string()}\n", flush=True)
    for task in () if options.few else options.tasks:
        found = pd.concat([fold_scores(fold) for fold in TASKS[task].folds(FOLDER, None)])
        print(f"## {task}\n\n{found.round(2).to_string(index=False)}")
        print(found.mean(numeric_only=True).round(3).to_string(), "\n", flush=True)


if __name__ == "__main__":
    main()
