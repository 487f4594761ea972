"""Measure how much of a GPU training and sampling use, by size of the network and minibatch, and what bfloat16 brings.

``python -m benchmarks.gpu``

First the rate of matrix products in bfloat16 is measured: what this chip does at best. Then cells a second, the share
of that rate and the peak memory of training and of generating in 16 steps, of 20,000 genes, for several sizes of the
network and of minibatches. Operations are those that PyTorch counts in matrix products. The linear start, the stability
of tokens and the match of genes are left out: they add time before and after the steps.
"""

import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.utils.flop_counter import FlopCounterMode

from benchmarks._record import benchmark_parser, environment, output_folder, start, write_result
from benchmarks._scale_cells import LABEL, simulate_to
from benchmarks._step_timer import WARM_UP, StepTimer
from scdiffgen.model import TokenDiffusion, open_cells
from scdiffgen.module import _token_basis

N_CELLS, N_GENES = 10_000, 20_000
QUICK_CELLS, QUICK_GENES = 400, 50
RUNS = (("small", 512), ("medium", 512), ("base", 128), ("base", 512), ("base", 2048), ("large", 512))  # batch sizes
QUICK_RUNS = (("small", 64),)
PRECISIONS = ("32-true", "bf16-mixed")
N_TRAINING_STEPS, QUICK_TRAINING_STEPS = 60, 5
N_SAMPLING_STEPS = 16
MATRIX, QUICK_MATRIX = 8192, 256
N_PRODUCTS = 50


def main(arguments: Sequence[str] | None = None) -> None:
    parser = benchmark_parser("benchmarks.gpu", __doc__)
    options = parser.parse_args(arguments)
    start(options.threads)
    _token_basis.linear_stability = lambda loadings, expression: np.full(loadings.shape[1], np.nan)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    n_cells, n_genes = (QUICK_CELLS, QUICK_GENES) if options.quick else (N_CELLS, N_GENES)
    with tempfile.TemporaryDirectory() as folder:
        simulate_to(Path(folder) / "cells.h5ad", n_cells, n_genes)
        peak_rate = matrix_rate(device, QUICK_MATRIX if options.quick else MATRIX)
        n_steps = QUICK_TRAINING_STEPS if options.quick else N_TRAINING_STEPS
        rows: dict[str, list[dict[str, Any]]] = {"training": [], "sampling": []}
        for preset, batch_size in QUICK_RUNS if options.quick else RUNS:
            of_run = {"preset": preset, "batch_size": batch_size}
            model = model_of(Path(folder) / "cells.h5ad", preset)
            for precision in PRECISIONS:
                rows["training"].append(of_run | training(model, batch_size, precision, n_steps, device))
            rows["sampling"].append(of_run | sampling(model, batch_size, device))
            for row in (*rows["training"][-len(PRECISIONS) :], rows["sampling"][-1]):
                row["share_of_matrix_rate"] = row["operations_per_second"] / peak_rate
                print(row, flush=True)
    result = {
        "benchmark": "gpu",
        "data": {"n_cells": n_cells, "n_genes": n_genes},
        "environment": environment(options.threads, [0]),
        "matrix_rate": peak_rate,
        **rows,
    }
    write_result(output_folder(options.output, quick=options.quick), "gpu", result)


def model_of(file: Path, preset: str) -> TokenDiffusion:
    """A model of cells in memory, without its linear start and match of genes."""
    adata = open_cells(file)
    adata.X = adata.X.to_memory()
    TokenDiffusion.setup_anndata(adata, labels_key=LABEL)
    model = TokenDiffusion(adata, preset=preset)
    model.module.start_linearly = lambda sample: None
    model.module.match_genes = lambda cells, silent: None
    return model


def matrix_rate(device: torch.device, size: int) -> float:
    """Operations a second of matrix products in bfloat16."""
    one, other = (torch.randn(size, size, device=device, dtype=torch.bfloat16) for _ in range(2))

    def work() -> list[torch.Tensor]:
        return [one @ other for _ in range(N_PRODUCTS)]

    timed(work, device)  # the warm-up
    seconds = timed(work, device)
    return 2 * size**3 * N_PRODUCTS / seconds


def training(
    model: TokenDiffusion, batch_size: int, precision: str, n_steps: int, device: torch.device
) -> dict[str, Any]:
    """Cells and operations a second of training, over steps after a warm-up, with loading and the optimiser."""
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats()
    timer = StepTimer()
    model.train(
        max_epochs=1 + n_steps * batch_size // model.adata.n_obs,
        batch_size=batch_size,
        max_steps=n_steps,
        limit_val_batches=1,
        precision=precision,
        callbacks=[timer],
        enable_progress_bar=False,
    )
    rate = batch_size * (len(timer.ends) - WARM_UP) / (timer.ends[-1] - timer.ends[WARM_UP - 1])
    batch = next(iter(model._make_data_loader(model.adata, batch_size=batch_size, load_sparse_tensor=True)))
    counter = FlopCounterMode(display=False)
    with counter:
        model.module.loss(*model.module.unpack(batch)).loss.backward()
    return {
        "precision": precision,
        "cells_per_second": rate,
        "operations_per_second": rate * counter.get_total_flops() / batch_size,
        "peak_memory": peak_memory(device),
    }


def sampling(model: TokenDiffusion, batch_size: int, device: torch.device) -> dict[str, Any]:
    """Cells and operations a second of generating, with the transfer of the counts to the host."""
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats()

    def generate() -> Any:
        return model.generate(n_cells=batch_size, n_steps=N_SAMPLING_STEPS, batch_size=batch_size, seed=0, silent=True)

    counter = FlopCounterMode(display=False)
    generate()  # the warm-up
    with counter:
        generate()
    seconds = float(np.median([timed(generate, device) for _ in range(3)]))
    return {
        "n_steps": N_SAMPLING_STEPS,
        "cells_per_second": batch_size / seconds,
        "operations_per_second": counter.get_total_flops() / seconds,
        "peak_memory": peak_memory(device),
    }


def timed(work: Callable[[], Any], device: torch.device) -> float:
    """Seconds that some work takes, until the device has finished it."""
    synchronise(device)
    before = time.perf_counter()
    work()
    synchronise(device)
    return time.perf_counter() - before


def synchronise(device: torch.device) -> None:
    """Wait for the device."""
    if device.type == "cuda":
        torch.cuda.synchronize()


def peak_memory(device: torch.device) -> float | None:
    """Peak memory of the GPU in MB."""
    return torch.cuda.max_memory_allocated() / 1e6 if device.type == "cuda" else None


if __name__ == "__main__":
    main()
