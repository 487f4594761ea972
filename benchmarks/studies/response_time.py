"""How long do transferred responses take? Seconds of processor time on types of Kang 2018.

``python -m benchmarks.studies.response_time --threads 1``

No network is trained. What a model remembers of its training cells is measured, and the prediction of 1,000 control
cells under interferon.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence

from benchmarks._data import FOLDER
from benchmarks._perturbation_data import kang
from benchmarks._perturbation_models import start_cells, untrained_model
from benchmarks._record import start

CELL_TYPE, N_CELLS, N_TURNS = "CD4 T cells", 1000, 5


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser("python -m benchmarks.studies.response_time", description=__doc__.splitlines()[0])
    parser.add_argument("--threads", type=int, default=1, help="threads of everything (1)")
    start(parser.parse_args(arguments).threads)
    fold = next(kang(FOLDER, [CELL_TYPE]))
    begun = time.process_time()
    model = untrained_model(fold.train, dict(fold.setup))
    print(f"making a model and remembering {fold.train.n_obs:,} cells: {time.process_time() - begun:.1f} s")
    target = fold.targets[0]
    cells, seconds = start_cells(fold, target, N_CELLS, 0), []
    for _ in range(N_TURNS):
        begun = time.process_time()
        model.predict_perturbation(None, target.conditions, indices=cells, silent=True)
        seconds.append(time.process_time() - begun)
    print(f"predicting {len(cells):,} cells: {min(seconds):.2f} to {max(seconds):.2f} s")


if __name__ == "__main__":
    main()
