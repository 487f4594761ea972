"""How much memory does `evaluate` take beside the cells that it gets? Simulated cells, each number in fresh memory.

``python -m benchmarks.studies.evaluate_memory --cells 5000 20000 50000 --genes 2000``

So many cells are real, and as many generated (here: simulated, too). The peak is what Python and NumPy allocate.
"""

from __future__ import annotations

import argparse
import tempfile
import time
import tracemalloc
from collections.abc import Sequence
from pathlib import Path

import anndata as ad

from benchmarks._record import start
from benchmarks._scale_cells import simulate_to
from benchmarks._tables import markdown
from scdiffgen.metrics import evaluate

MEGABYTE = 2**20


def measure(n_cells: int, n_genes: int) -> list[float]:
    """Megabytes of the inputs, at the peak above them, and seconds of processor time (with tracing)."""
    with tempfile.TemporaryDirectory() as folder:
        simulate_to(Path(folder) / "cells.h5ad", 2 * n_cells, n_genes)
        cells = ad.read_h5ad(Path(folder) / "cells.h5ad").X
    real, generated = cells[:n_cells], cells[n_cells:]
    inputs = sum(part.nbytes for part in (cells.data, cells.indices, cells.indptr))
    began = time.process_time()
    tracemalloc.start()
    evaluate(real, generated)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return [inputs / MEGABYTE, peak / MEGABYTE, time.process_time() - began]


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        "python -m benchmarks.studies.evaluate_memory", description=__doc__.splitlines()[0]
    )
    parser.add_argument("--cells", type=int, nargs="+", default=[5_000, 20_000, 50_000], help="of each side")
    parser.add_argument("--genes", type=int, default=2000)
    parser.add_argument("--threads", type=int, default=1)
    options = parser.parse_args(arguments)
    start(options.threads)
    measure(100, 100)  # what is loaded at first use
    rows = [[f"{n:,}", *(f"{value:.0f}" for value in measure(n, options.genes))] for n in options.cells]
    print(markdown(["cells of each side", "inputs, MB", "peak above them, MB", "seconds"], rows))


if __name__ == "__main__":
    main()
