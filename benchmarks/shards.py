"""What do cells from shards cost? Cells a second and peak memory of writing, reading, training and generating.

``python -m benchmarks.shards write --folder FOLDER``, again until all cells are there; then ``read``, ``train`` and
``cost``, which go on with the rows that are missing. On Python 3.12, with ``scdiffgen[annbatch,distributed]``. Each row
is measured in a process of its own.
"""

import json
import os
import signal
import threading
import time
from collections.abc import Iterator, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import anndata as ad
import h5py
import lightning.pytorch as pl
import numpy as np
import scvi
import torch
import zarr
from anndata import AnnData

from benchmarks._memory import in_own_process, peak_of_this_process
from benchmarks._record import benchmark_parser, environment, output_folder, read_result, start, write_result
from benchmarks._scale_cells import LABEL, simulate_to
from benchmarks._step_timer import WARM_UP, StepTimer
from scdiffgen.model import TokenDiffusion, open_cells
from scdiffgen.model._training_data import MinibatchReader
from scdiffgen.train import cell_loader

ZARR, H5AD, HELD_OUT = "cells.zarr", "cells.h5ad", "held_out.h5ad"
CHUNK = 4_096  # cells written together
BASE = {"preset": "small", "n_genes": 2_000, "batch_size": 256, "threads": 1, "n_steps": 16}
VARIED: dict[str, Sequence[Any]] = {
    **{"preset": ["medium"], "n_genes": [500, 8_000], "batch_size": [64, 1_024], "threads": [2], "n_steps": [8, 32]},
}
SOURCES = (("scdiffgen", "memory", 1), *(("scdiffgen", source, n) for n in (1, 2) for source in (H5AD, ZARR)))
QUIET: dict[str, Any] = {"accelerator": "cpu", "enable_progress_bar": False}


def main(arguments: Sequence[str] | None = None) -> None:
    parser = benchmark_parser("benchmarks.shards", __doc__)
    parser.add_argument("part", choices=["write", "read", "train", "cost"])
    parser.add_argument("--folder", type=Path, required=True, help="where the cells are, or will be")
    parser.add_argument("--cells", type=int, default=500_000)
    parser.add_argument("--seconds", type=float, default=400, help="after which writing is interrupted")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2], help="of training")
    parser.add_argument("--one", type=json.loads, help="measure one row, and print it")
    options = parser.parse_args(arguments)
    size = 8 if options.quick else 200  # steps of training
    if find_spec("zarrs"):  # the codecs that annbatch recommends
        zarr.config.set({"codec_pipeline.path": "zarrs.ZarrsCodecPipeline"})
    if options.one is not None:
        start(options.one.get("threads", options.threads))
        row = {"read": read, "train": train, "cost": cost}[options.part](options.folder, size, **options.one)
        if int(os.environ.get("LOCAL_RANK", 0)) == 0:
            print(json.dumps(options.one | row))
        return
    start(options.threads)
    folder = output_folder(options.output, quick=options.quick)
    file = folder / "shards.json"
    result = read_result(file) if file.exists() else {"benchmark": "shards", "environments": []}
    made = environment(options.threads, options.seeds if options.part == "train" else [0])
    kept = [known for known in result["environments"] if known["command"] != made["command"]]
    result |= {"environments": [*kept, made], "data": {"n_genes": BASE["n_genes"], "n_steps": size}}
    rows = result.setdefault(options.part, [])
    for row in rows_of(options, rows):
        print(row, flush=True)
        rows.append(row)
        write_result(folder, "shards", result)


def rows_of(options: Any, known: Sequence[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """Measure the rows of a part that are not known yet."""
    if options.part == "write":
        sizes = (1_000, 50) if options.quick else (20_000, BASE["n_genes"])
        yield write(options.folder, options.cells, options.seconds, *sizes)
        return
    settings: list[dict[str, Any]] = [{"source": source} for source in (ZARR, H5AD)]
    if options.part == "train":
        settings = [
            {"model": model, "source": source, "n_processes": n, "seed": seed}
            for seed in options.seeds
            for model, source, n in (*SOURCES, ("scVI", "memory", 1), ("scVI", ZARR, 1))
        ]
    elif options.part == "cost":
        settings = [BASE, *(BASE | {name: value} for name, values in VARIED.items() for value in values)]
    common = ["--folder", str(options.folder), "--threads", str(options.threads), *["--quick"] * options.quick]
    for setting in settings:
        if any(setting.items() <= row.items() for row in known):
            continue
        yield in_own_process("shards", options.part, *common, "--one", json.dumps(setting))


def write(folder: Path, n_cells: int, seconds: float, n_real: int, n_genes: int, n_workers: int = 2) -> dict[str, Any]:
    """Generate cells on workers, of which one is killed half way; the next call goes on where this one stopped."""
    if not (folder / "model").exists():
        simulate_to(folder / "real.h5ad", n_real, n_genes)
        model = registered(ad.read_h5ad(folder / "real.h5ad"))
        model.train(5, **QUIET)
        model.save(folder / "model", save_anndata=True)
    from distributed import Client, LocalCluster

    model, partial = TokenDiffusion.load(folder / "model"), folder / f"{ZARR}.partial"
    n_before = len(list(partial.glob("*.npz")))
    with (
        LocalCluster(n_workers=n_workers, threads_per_worker=1, dashboard_address=":0") as cluster,
        Client(cluster) as client,
    ):
        client.run(torch.set_num_threads, 1)
        doomed = next(iter(client.run(os.getpid).values()))
        timers = [threading.Timer(seconds / 2, os.kill, (doomed, signal.SIGKILL))]
        timers += [threading.Timer(seconds, os.kill, (os.getpid(), signal.SIGINT))]
        for timer in timers:
            timer.start()
        begin, options = time.perf_counter(), {"n_steps": 16, "chunk_size": CHUNK, "silent": True}
        try:
            model.generate_to(folder / ZARR, n_cells=n_cells, client=client, **options)
        except KeyboardInterrupt:
            print("Interrupted: call again.")
        spent = time.perf_counter() - begin
        of_workers, own = max(client.run(peak_of_this_process).values()), peak_of_this_process()
        for timer in timers:
            timer.cancel()
    is_whole = (folder / ZARR).exists()
    n_chunks = -(-n_cells // CHUNK) if is_whole else len(list(partial.glob("*.npz")))
    if is_whole:
        with h5py.File(folder / H5AD, "w") as same_cells:
            ad.experimental.concat_on_disk([zarr.open_group(str(folder / ZARR), mode="r")], same_cells)
        model.generate_to(folder / HELD_OUT, n_cells=2_000, n_steps=16, seed=1, silent=True)
    n_written = min(n_chunks * CHUNK, n_cells) - n_before * CHUNK
    n_bytes = sum(file.stat().st_size for file in (folder / ZARR).rglob("*") if file.is_file())
    sizes = {"peak_memory": own, "peak_of_a_worker": of_workers, "gigabytes": n_bytes / 1e9}
    return {"n_cells": n_written, "n_workers": n_workers, "cells_per_second": n_written / spent, **sizes}


def read(folder: Path, n_steps: int, source: str) -> dict[str, Any]:
    """Read all cells once, in random order, as minibatches of registered tensors."""
    model = registered(cells_from(folder, source))
    minibatches: Any = cell_loader(model.adata_manager, batch_size=BASE["batch_size"], shuffle=True)
    if source == ZARR:
        reader = MinibatchReader(model, "")
        minibatches = (reader(minibatch) for minibatch in Shards(folder / ZARR).train_dataloader())
    begin, n_cells = time.perf_counter(), sum(len(minibatch["X"]) for minibatch in minibatches)
    rate = n_cells / (time.perf_counter() - begin)
    return {"n_cells": n_cells, "cells_per_second": rate, "peak_memory": peak_of_this_process()}


def train(folder: Path, n_steps: int, model: str, source: str, n_processes: int, seed: int) -> dict[str, Any]:
    """Train for some steps; ``loss`` is the bound on the negative log-likelihood of cells that were left out."""
    scvi.settings.seed = seed
    held_out, timer, batch_size = ad.read_h5ad(folder / HELD_OUT), StepTimer(), BASE["batch_size"] // n_processes
    options: dict[str, Any] = {"callbacks": [timer], "limit_train_batches": n_steps, "limit_val_batches": 0, **QUIET}
    if n_processes > 1:
        options |= {"devices": n_processes, "strategy": "ddp"}
    loss = None
    if model == "scVI":
        fitted: Any = scvi_on(folder, source, batch_size)
        options |= {"datamodule": shards_for_scvi(folder)} if source == ZARR else {"batch_size": batch_size}
    elif source == ZARR:
        fitted = TokenDiffusion(registry=registered(held_out).registry, preset="small")
        options |= {"datamodule": Shards(folder / ZARR, batch_size)}
    else:
        fitted = registered(cells_from(folder, source))
        options |= {"batch_size": batch_size, "train_size": 1.0}
    fitted.train(1, **options)
    if model == "scdiffgen" and fitted.trainer.is_global_zero:
        loss = float(fitted.get_nll_bound(dataloader=in_order(held_out), silent=True)["nll_per_molecule"].mean())
    rate = n_processes * batch_size * (n_steps - WARM_UP) / (timer.ends[-1] - timer.ends[WARM_UP - 1])
    return {"cells_per_second": rate, "loss": loss, "peak_memory": peak_of_this_process()}


def cost(
    folder: Path, n_train: int, preset: Any, n_genes: int, batch_size: int, threads: int, n_steps: int
) -> dict[str, Any]:
    """Cells a second of training and generating in memory, by the settings; of scVI under the same."""
    file = folder / f"{os.getpid()}.h5ad"
    simulate_to(file, 4_096, n_genes)
    adata = ad.read_h5ad(file)
    file.unlink()
    rates = {}
    for name in ("scdiffgen", "scVI"):
        timer = StepTimer()
        if name == "scVI":
            scvi.model.SCVI.setup_anndata(adata, batch_key=LABEL)
        model: Any = registered(adata, preset) if name == "scdiffgen" else scvi.model.SCVI(adata)
        model.train(
            1_000,
            batch_size=batch_size,
            callbacks=[timer],
            max_steps=n_train // 8 + 2 * WARM_UP,
            limit_val_batches=0,
            **QUIET,
        )
        rates[f"{name} training"] = batch_size / np.median(np.diff(timer.ends)[WARM_UP:])
        begin, n_cells = time.perf_counter(), 4 * max(batch_size, 512)
        if name == "scdiffgen":
            model.generate(n_cells=n_cells, n_steps=n_steps, batch_size=batch_size, silent=True)
        else:
            model.posterior_predictive_sample(indices=np.arange(n_cells), batch_size=batch_size)
        rates[f"{name} generating"] = n_cells / (time.perf_counter() - begin)
    return rates


def cells_from(folder: Path, source: str) -> AnnData:
    """Cells on disk or in memory."""
    return ad.read_h5ad(folder / H5AD) if source == "memory" else open_cells(folder / source)


def registered(adata: AnnData, preset: Any = "small") -> TokenDiffusion:
    """A model of cells registered by their type."""
    TokenDiffusion.setup_anndata(adata, labels_key=LABEL)
    return TokenDiffusion(adata, preset=preset)


class Shards(pl.LightningDataModule):
    """Cells in shards, read by annbatch; each process reads its share."""

    def __init__(self, path: Path, batch_size: int = BASE["batch_size"]) -> None:
        super().__init__()
        group = zarr.open_group(str(path), mode="r")
        obs, var = ad.io.read_elem(group["obs"])[[LABEL]], ad.io.read_elem(group["var"])
        self.cells, self.batch_size = AnnData(ad.io.sparse_dataset(group["X"]), obs=obs, var=var), batch_size

    def train_dataloader(self) -> Any:
        """Minibatches of random runs of 256 cells, shuffled within 64 runs."""
        import annbatch

        chunks = {"chunk_size": 256, "preload_nchunks": 64, "batch_size": self.batch_size, "drop_last": True}
        sampler: Any = annbatch.samplers.RandomSampler(**chunks)
        if torch.distributed.is_initialized():
            sampler = annbatch.samplers.DistributedSampler(sampler, dist_info="torch")
        return annbatch.Loader(batch_sampler=sampler, preload_to_gpu=False).add_adata(self.cells)


def in_order(adata: AnnData) -> Any:
    """Cells in memory by annbatch, in their order."""
    import annbatch

    return annbatch.Loader(chunk_size=512, preload_nchunks=1, batch_size=512, preload_to_gpu=False).add_adata(adata)


def shards_for_scvi(folder: Path) -> Any:
    """The data module of scvi-tools over the same shards."""
    shards = Shards(folder / ZARR)
    keys = {"batch_key": LABEL, "var_names": list(shards.cells.var_names), "shuffle": True}
    chunks = {"chunk_size": 256, "preload_nchunks": 64, "preload_to_gpu": False}
    return scvi.dataloaders.AnnbatchDataModule(shards.train_dataloader(), **keys, **chunks)


def scvi_on(folder: Path, source: str, batch_size: int) -> scvi.model.SCVI:
    """An scVI model with its defaults, of cells in memory or of shards."""
    if source == ZARR:
        return scvi.model.SCVI(registry=shards_for_scvi(folder).registry)
    adata = cells_from(folder, source)
    scvi.model.SCVI.setup_anndata(adata, batch_key=LABEL)
    return scvi.model.SCVI(adata)


if __name__ == "__main__":
    main()
