"""What does chromatin of many peaks cost? Time of a step and peak memory of training at 10,000 to 100,000 peaks.

``python -m benchmarks.peaks --threads 1``

Simulated cells have the same number of molecules at every number of peaks, and more of them at the largest, which tells
what grows with the peaks from what grows with the non-zeros. Each size is measured in a process of its own.
"""

import json
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import anndata as ad
import numpy as np

from benchmarks._memory import in_own_process, peak_of_this_process
from benchmarks._record import benchmark_parser, environment, output_folder, start, write_result
from benchmarks._scale_cells import LABEL, simulate_to
from benchmarks._step_timer import StepTimer
from benchmarks._tables import value_table
from scdiffgen.model import TokenDiffusion

SIZES = ((10_000, 300), (30_000, 300), (100_000, 300), (100_000, 2_500))  # peaks, molecules a cell
QUICK_SIZES = ((200, 30), (200, 60))
N_CELLS, BATCH_SIZE, N_STEPS, WARM_UP = 200, 128, 6, 2
COLUMNS = {  # of the table: title and format
    "n_peaks": ("peaks", ","),
    "nonzeros_per_cell": ("open in a cell", ",.0f"),
    "open": ("open, %", ".1f"),
    "parameters": ("parameters, million", ".1f"),
    "before_training": ("before training, s", ".1f"),
    "seconds_per_step": ("a step, s", ".2f"),
    "memory_of_data": ("memory with the data, MB", ",.0f"),
    "peak_memory": ("peak memory, MB", ",.0f"),
}


def main(arguments: Sequence[str] | None = None) -> None:
    parser = benchmark_parser("benchmarks.peaks", __doc__)
    parser.add_argument("--one", type=Path, metavar="FILE", help="measure one file, and print it")
    options = parser.parse_args(arguments)
    if options.one:
        start(options.threads)
        print(json.dumps(measure(options.one)))
        return
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        for n_peaks, n_molecules in QUICK_SIZES if options.quick else SIZES:
            file = Path(folder) / f"{n_peaks}-{n_molecules}.h5ad"
            simulate_to(file, N_CELLS, n_peaks, n_molecules=n_molecules)
            rows.append(in_own_process("peaks", "--threads", str(options.threads), "--one", str(file)))
            print(rows[-1], flush=True)
            file.unlink()
    result = {
        "benchmark": "peaks",
        "data": {"n_cells": N_CELLS, "batch_size": BATCH_SIZE, "n_steps": N_STEPS - WARM_UP},
        "environment": environment(options.threads, [0]),
        "rows": rows,
    }
    write_result(output_folder(options.output, quick=options.quick), "peaks", result)
    print(peaks_table(result))


def peaks_table(result: Mapping[str, Any]) -> str:
    """Seconds of a step and memory by the number of peaks, and of those open in a cell."""
    rows = [
        {**row, "open": 100 * row["nonzeros_per_cell"] / row["n_peaks"], "parameters": row["parameters"] / 1e6}
        for row in result["rows"]
    ]
    return value_table(COLUMNS, rows)


def measure(file: Path) -> dict[str, Any]:
    """Register and train for some steps, in this process."""
    adata = ad.read_h5ad(file)
    before, loaded = time.process_time(), peak_of_this_process()
    TokenDiffusion.setup_anndata(adata, labels_key=LABEL)
    model, timer = TokenDiffusion(adata), StepTimer(time.process_time)
    model.train(
        max_epochs=N_STEPS,
        batch_size=BATCH_SIZE,
        limit_train_batches=1,
        limit_val_batches=1,
        callbacks=[timer],
        enable_progress_bar=False,
    )
    return {
        "n_peaks": adata.n_vars,
        "nonzeros_per_cell": adata.X.nnz / adata.n_obs,
        "parameters": sum(weights.numel() for weights in model.module.parameters()),
        "before_training": timer.start - before,
        "seconds_per_step": float(np.median(np.diff(timer.ends)[WARM_UP - 1 :])),
        "memory_of_data": loaded,
        "peak_memory": peak_of_this_process(),
    }


if __name__ == "__main__":
    main()
