"""How long do `evaluate` and `criticism` take, and what in it? Processor time on simulated cells of four types.

``python -m benchmarks.studies.evaluate_time --cells 3000 --genes 2000``

So many cells are held out, generated (here: simulated, too) and trained on. ``--scores`` writes the scores, to see what
a change of the code changes in them.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import pandas as pd
import scvi

from benchmarks._record import start
from benchmarks._tables import markdown
from scdiffgen.datasets import simulate
from scdiffgen.metrics import dispersion, evaluate
from scdiffgen.metrics._comparison import EVALUATION_METRICS
from scdiffgen.model import TokenDiffusion

LABEL = "cell_type"
NO_FOREST = [name for name in EVALUATION_METRICS if "forest" not in name]


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser("python -m benchmarks.studies.evaluate_time", description=__doc__.splitlines()[0])
    parser.add_argument("--cells", type=int, default=3000, help="of each of three samples (3000)")
    parser.add_argument("--genes", type=int, default=2000)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--scores", type=Path, help="folder for tables of the scores")
    options = parser.parse_args(arguments)
    start(options.threads)
    n = options.cells
    cells = simulate(3 * n, options.genes)
    cells.X = cells.layers["counts"]
    train, real, generated = (cells[first : first + n].copy() for first in range(0, 3 * n, n))
    scvi.settings.seed = 0
    TokenDiffusion.setup_anndata(train, labels_key=LABEL)
    model = TokenDiffusion(train, n_tokens=4, token_dim=32)
    model.train(max_epochs=1, enable_progress_bar=False)
    groups = {"train": train, "groupby": LABEL}
    calls: dict[str, Callable[[], pd.DataFrame]] = {
        "evaluate": lambda: evaluate(real, generated, **groups, silent=True).frame,
        "evaluate, all metrics": lambda: evaluate(real, generated, **groups, metrics="all", silent=True).frame,
        "evaluate, without forests": lambda: evaluate(real, generated, **groups, metrics=NO_FOREST, silent=True).frame,
        "dispersion": lambda: dispersion(real, generated, **groups),
        "criticism": lambda: model.criticism(real, silent=True).scores.frame,
    }
    rows = []
    for name, call in calls.items():
        began = time.process_time()
        table = call()
        rows.append([name, f"{time.process_time() - began:.1f}"])
        print(*rows[-1], flush=True)
        if options.scores is not None:
            table.to_csv(options.scores / f"{name}.csv")
    print(markdown(["call", "seconds"], rows))


if __name__ == "__main__":
    main()
