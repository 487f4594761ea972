"""Compare sums of counts of predicted treated cells with those of real ones, beside means of log expression.

``python -m benchmarks.studies.sums --task kang --seeds 0 --threads 1``

Tasks are those of the perturbation benchmark, whose responses are predicted without a network. *up* and *down* are
median log2 ratios of predicted and real fold changes of sums of counts, over the 30 genes of each sign that truly
change most, *log up* and *log down* ratios of the changes of mean log expression; *error* is the root mean square error
of log2 fold changes of sums over the 100 genes that truly change most, *log error* that of changes of mean log
expression.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pandas as pd
from anndata import AnnData
from numpy.typing import NDArray
from scipy import sparse

from benchmarks._data import FOLDER
from benchmarks._perturbation_data import CONTEXT, CONTROL, RESPONSE
from benchmarks._perturbation_tasks import TASKS, TRANSFERRED_NAMES, transferred_predictions
from benchmarks._record import start
from scdiffgen._log_normalise import log_normalise

N_SIGNED, N_TOP = 30, 100
SCORES = ("up", "down", "log up", "log down", "error", "log error")
FLOOR = 1e-6  # share of molecules that is added to sums


def counts_of(cells: AnnData, response: str, context: str) -> sparse.csr_matrix:
    """Counts of the cells of a response and a context."""
    wanted = (cells.obs[RESPONSE] == response) & (cells.obs[CONTEXT] == context)
    return sparse.csr_matrix(cells.X[wanted.to_numpy()])


def fold_change(after: sparse.csr_matrix, before: sparse.csr_matrix) -> NDArray:
    """Log2 fold changes of shares of the sums of counts ``(genes,)``."""
    shares = [np.asarray(x.sum(0)).ravel() / x.sum() for x in (after, before)]
    return np.subtract(*(np.log2(share + FLOOR) for share in shares))


def change(after: sparse.csr_matrix, before: sparse.csr_matrix) -> NDArray:
    """Changes of mean log expression ``(genes,)``."""
    return np.subtract(*(np.asarray(log_normalise(x).mean(0)).ravel() for x in (after, before)))


def scores(task: str, seed: int, *, measured: bool) -> pd.DataFrame:
    """Scores of each target of a task, whose own cells may be measured."""
    rows = []
    for fold in TASKS[task].folds(FOLDER, None):
        if measured:
            fold = replace(fold, train=fold.with_treated)
        predicted = transferred_predictions(fold, seed)[TRANSFERRED_NAMES[0]]
        for target in fold.targets:
            pairs = (fold.train, CONTROL), (fold.real, target.response), (predicted, target.response)
            control, real, ours = (counts_of(cells, response, target.context) for cells, response in pairs)
            truth, log_truth = fold_change(real, control), change(real, control)
            found, log_found = fold_change(ours, control), change(ours, control)
            top = np.argsort(-np.abs(log_truth))
            signed = [top[sign * log_truth[top] > 0][:N_SIGNED] for sign in (1, -1)]
            up, down = (float(np.median((found - truth)[genes])) for genes in signed)
            ratios = (float(log_found[genes].sum() / log_truth[genes].sum()) for genes in signed)
            errors = (np.sqrt(((x - y)[top[:N_TOP]] ** 2).mean()) for x, y in ((found, truth), (log_found, log_truth)))
            rows.append([fold.name, target.context, target.response, up, down, *ratios, *errors])
    return pd.DataFrame(rows, columns=["fold", "context", "response", *SCORES])


def main(arguments: Sequence[str] | None = None) -> None:
    """Print the scores of a task."""
    parser = argparse.ArgumentParser("python -m benchmarks.studies.sums", description=__doc__.splitlines()[0])
    parser.add_argument("--task", choices=sorted(TASKS), default="kang")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0])
    parser.add_argument("--measured", action="store_true", help="train on the cells of the target, too")
    parser.add_argument("--threads", type=int, default=2, help="threads of everything (2)")
    options = parser.parse_args(arguments)
    start(options.threads)
    found = pd.concat([scores(options.task, seed, measured=options.measured) for seed in options.seeds])
    print(found.round(3).to_string(index=False))
    print(found.mean(numeric_only=True).round(3).to_string())


if __name__ == "__main__":
    main()
