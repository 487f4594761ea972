"""Coverage of the 80 % intervals of predicted responses, and whether scores of left-out responses tell the score.

``python -m benchmarks.studies.response_intervals --threads 1``

Of each task, the share of genes whose held-out measured change lies within the interval, as a mean over responses: of
all genes, and of the tenth with the largest predicted changes, which are not chosen by what is held out. Beside it, the
Pearson correlation expected by leaving other responses out, that realised, and their rank correlation over responses.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence

import numpy as np
import pandas as pd

from benchmarks._data import FOLDER
from benchmarks._perturbation_data import CONTEXT, RESPONSE, Fold
from benchmarks._perturbation_models import start_cells, untrained_model
from benchmarks._perturbation_tasks import TASKS
from benchmarks._record import start
from benchmarks._tables import markdown
from benchmarks.studies.responses import inner_folds
from scdiffgen._log_normalise import log_normalise

TASKS_HELD_OUT = ("kang", "zhao", "papalexi", "papalexi-guides", "norman", "mcfaline")
LARGEST = 10  # one in so many genes


def coverage(fold: Fold) -> Iterator[dict[str, object]]:
    """Coverage and correlations of each held-out response."""
    model = untrained_model(fold.train, dict(fold.setup))
    for target in fold.targets:
        table = model.get_mean_response(target.conditions, interval=True)
        change, low, high = (table[name].to_numpy().ravel() for name in ("change", "low", "high"))
        own = (fold.real.obs[[RESPONSE, CONTEXT]] == [target.response, target.context]).all(axis=1).to_numpy()
        after, before = (
            np.asarray(log_normalise(counts).mean(0)).ravel()
            for counts in (fold.real.X[own], fold.train.X[start_cells(fold, target, None, 0)])
        )
        measured = after - before
        inside = (low <= measured) & (measured <= high) if np.isfinite([low, high]).all() else np.full(len(low), np.nan)
        largest = np.argsort(-np.abs(change))[: max(1, len(change) // LARGEST)] if np.ptp(change) else []
        expected = model.get_response_weights(target.conditions)
        yield {
            "covered": float(inside.mean()),
            "covered, largest changes": float(inside[largest].mean()) if len(largest) else np.nan,
            "expected Pearson": float(expected.get("left_out_pearson", pd.Series([np.nan])).iloc[0]),
            "realised Pearson": float(np.corrcoef(change, measured)[0, 1]) if np.ptp(change) else np.nan,
        }


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        "python -m benchmarks.studies.response_intervals", description=__doc__.splitlines()[0]
    )
    parser.add_argument("--tasks", nargs="+", choices=TASKS_HELD_OUT, default=TASKS_HELD_OUT)
    parser.add_argument("--inner", action="store_true", help="hold out one more context of the training cells")
    parser.add_argument("--threads", type=int, default=1, help="threads of everything (1)")
    options = parser.parse_args(arguments)
    start(options.threads)
    found = []
    for task in options.tasks:
        folds = TASKS[task].folds(FOLDER, None)
        rows = pd.DataFrame(row for fold in (inner_folds(folds) if options.inner else folds) for row in coverage(fold))
        ranks = rows["expected Pearson"].corr(rows["realised Pearson"], method="spearman")
        means = [*rows.mean().tolist(), ranks]
        found.append([task, str(len(rows)), *("-" if np.isnan(value) else f"{value:.2f}" for value in means)])
    print(markdown(["task", "responses", *rows.columns, "their rank correlation"], found))


if __name__ == "__main__":
    main()
