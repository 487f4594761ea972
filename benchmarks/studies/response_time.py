"""How long do transferred responses take, with the states of cells and without? Cells a second of processor time.

``python -m benchmarks.studies.response_time --threads 1``

A type of Kang 2018 is left out, no network is trained, and its control cells are predicted in turns: by default, and as
a model predicts that was saved before states were learned.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence

import numpy as np

from benchmarks._data import FOLDER
from benchmarks._perturbation_data import kang
from benchmarks._perturbation_models import predictions_of, start_cells
from benchmarks._record import start
from benchmarks.studies.response_heterogeneity import STATES, without_parts
from benchmarks.studies.responses import untrained_model

CELL_TYPE, N_TURNS = "CD4 T cells", 5


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser("python -m benchmarks.studies.response_time", description=__doc__.splitlines()[0])
    parser.add_argument("--threads", type=int, default=1, help="threads of everything (1)")
    start(parser.parse_args(arguments).threads)
    fold = next(kang(FOLDER, [CELL_TYPE]))
    model = untrained_model(fold.train, dict(fold.setup))
    starts = [start_cells(fold, target, None, 0) for target in fold.targets]
    variants: dict[str, tuple[str, ...]] = {"with states": (), "without": STATES}
    seconds: dict[str, list[float]] = {name: [] for name in variants}
    for _ in range(N_TURNS):
        for name, parts in variants.items():
            with without_parts(model, parts):
                begun = time.process_time()
                predictions_of(model, fold, starts, {"seed": 0, "silent": True}, keep=None)
                seconds[name].append(time.process_time() - begun)
    n_cells = sum(map(len, starts))
    for name, taken in seconds.items():
        rates = n_cells / np.array(taken)
        print(f"{name}: {np.median(rates):,.0f} cells a second ({rates.min():,.0f} to {rates.max():,.0f})")


if __name__ == "__main__":
    main()
