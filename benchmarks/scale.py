"""What do more cells cost? Time and peak memory from 10,000 to 1,000,000 cells, on disk and in memory.

``python -m benchmarks.scale --threads 2``

Cells of 2,000 genes are simulated to disk. Each number of cells, from each source, is measured in a process of its own:
seconds of opening and registering, of the checks and sums before the first step, and of remembering the cells after the
last; cells a second while training; seconds to generate cells into a file; and the peak memory of all that.
"""

import argparse
import json
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import anndata as ad
import lightning.pytorch as pl

from benchmarks._memory import in_own_process, peak_of_this_process
from benchmarks._record import benchmark_parser, environment, output_folder, start, write_result
from benchmarks._scale_cells import LABEL, simulate_to
from benchmarks._tables import value_table
from scdiffgen.model import TokenDiffusion, open_cells

SIZES = (10_000, 31_623, 100_000, 316_228, 1_000_000)
QUICK_SIZES = (1_000,)
N_GENES, QUICK_GENES = 2_000, 50
N_STEPS, QUICK_STEPS = 300, 6
WARM_UP = 3  # steps
SOURCES = ("disk", "memory")
BATCH_SIZE = 256
GENERATED_SHARE = 0.1  # of as many cells as were trained on
COLUMNS = {  # of the table: title and format
    "n_cells": ("cells", ","),
    "source": ("from", ""),
    "registering": ("registering, s", ".1f"),
    "before_training": ("before training, s", ".1f"),
    "cells_per_second": ("training, cells/s", ",.0f"),
    "after_training": ("after training, s", ".1f"),
    "generated_per_second": ("generated to a file, cells/s", ",.0f"),
    "peak_memory": ("peak memory, MB", ",.0f"),
}


class StepTimer(pl.Callback):
    """When training starts, and each step ends."""

    def __init__(self, clock: Callable[[], float] = time.perf_counter) -> None:
        self.clock = clock
        self.ends: list[float] = []

    def on_train_start(self, *arguments: Any) -> None:
        """Read the clock."""
        self.start = self.clock()

    def on_train_batch_end(self, *arguments: Any) -> None:
        """Read the clock."""
        self.ends.append(self.clock())

    def on_train_end(self, *arguments: Any) -> None:
        """Read the clock."""
        self.end = self.clock()


def main(arguments: Sequence[str] | None = None) -> None:
    parser = benchmark_parser("benchmarks.scale", __doc__)
    parser.add_argument("--scratch", type=Path, default=None, help="folder for the simulated files (a temporary one)")
    parser.add_argument("--one", nargs=2, metavar=("FILE", "SOURCE"), help="measure one file, and print it")
    options = parser.parse_args(arguments)
    if options.one:
        start(options.threads)
        print(json.dumps(measure(Path(options.one[0]), options.one[1], QUICK_STEPS if options.quick else N_STEPS)))
        return
    sizes, n_genes = (QUICK_SIZES, QUICK_GENES) if options.quick else (SIZES, N_GENES)
    with tempfile.TemporaryDirectory(dir=options.scratch) as folder:
        rows = [row for size in sizes for row in measured(size, n_genes, Path(folder), options)]
    result = {
        "benchmark": "scale",
        "data": {"n_genes": n_genes, "batch_size": BATCH_SIZE},
        "environment": environment(options.threads, [0]),
        "rows": rows,
    }
    write_result(output_folder(options.output, quick=options.quick), "scale", result)
    print(value_table(COLUMNS, rows))


def measured(n_cells: int, n_genes: int, folder: Path, options: argparse.Namespace) -> list[dict[str, Any]]:
    """Simulate one file, and measure it from each source in a process of its own."""
    file = folder / f"{n_cells}.h5ad"
    simulate_to(file, n_cells, n_genes)
    rows = []
    for source in SOURCES:
        quick = ["--quick"] * options.quick
        rows.append(in_own_process("scale", "--threads", str(options.threads), "--one", str(file), source, *quick))
        print(rows[-1], flush=True)
    file.unlink()
    return rows


def measure(file: Path, source: str, n_steps: int) -> dict[str, Any]:
    """Register, train for some steps, generate; all in this process."""
    before = time.perf_counter()
    adata = open_cells(file) if source == "disk" else ad.read_h5ad(file)
    TokenDiffusion.setup_anndata(adata, labels_key=LABEL)
    registered = time.perf_counter()
    model, timer = TokenDiffusion(adata, preset="small"), StepTimer()
    model.train(
        max_epochs=1,
        batch_size=BATCH_SIZE,
        limit_train_batches=n_steps,
        limit_val_batches=1,
        callbacks=[timer],
        enable_progress_bar=False,
    )
    trained = time.perf_counter()
    n_timed = len(timer.ends) - WARM_UP
    path = file.with_suffix(f".{source}.h5ad")
    n_generated = max(int(GENERATED_SHARE * adata.n_obs), 1)
    model.generate_to(path, n_cells=n_generated, n_steps=16, silent=True)
    generated = time.perf_counter()
    path.unlink()
    return {
        "n_cells": adata.n_obs,
        "source": source,
        "registering": registered - before,
        "before_training": timer.start - registered,
        "cells_per_second": BATCH_SIZE * n_timed / (timer.ends[-1] - timer.ends[WARM_UP - 1]),
        "after_training": trained - timer.end,
        "generated_per_second": n_generated / (generated - trained),
        "peak_memory": peak_of_this_process(),
    }


if __name__ == "__main__":
    main()
