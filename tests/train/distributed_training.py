"""Trains in a given number of processes, each of which writes what it did; `test_distributed_training.py` runs this."""

import json
import os
import sys
from pathlib import Path
from typing import Any

import scvi
import torch
from anndata import AnnData
from fingerprint import weights_of
from lightning.pytorch import Callback, LightningDataModule
from scipy import sparse
from small_cells import QUIET, SMALL, simulated_cells, small_model
from torch.utils.data import DataLoader

from scdiffgen.model import TokenDiffusion
from scdiffgen.module import DiffusionModule
from scdiffgen.train import _plan

torch.set_num_threads(1)
GLOBAL_BATCH, BROKEN_STEP = 64, 5
rank = int(os.environ.get("LOCAL_RANK", 0))


class Recorder(Callback):
    """Notes what each process does, step by step."""

    def __init__(self) -> None:
        self.rates: list[float] = []
        self.levels: list[float] = []

    def on_train_batch_start(self, trainer: Any, plan: Any, *_: Any) -> None:
        self.rates.append(trainer.optimizers[0].param_groups[0]["lr"])
        self.levels.append(float(torch.rand(1, generator=torch.Generator().set_state(torch.get_rng_state()))))


def break_one_step_of_the_last_process(n_processes: int) -> None:
    """Its loss is not a number there; that of the others is."""
    true_loss, seen = DiffusionModule.loss, []

    def loss(self: DiffusionModule, *arguments: Any) -> Any:
        output = true_loss(self, *arguments)
        seen.append(None)
        if len(seen) - 1 == BROKEN_STEP and rank == n_processes - 1:
            output.loss = output.loss * torch.nan
        return output

    DiffusionModule.loss = loss


class Streamed(LightningDataModule):
    """Cells by a loader of PyTorch, of which Lightning gives each process its share."""

    def __init__(self, cells: AnnData, batch_size: int) -> None:
        super().__init__()
        self.cells, self.batch_size = cells, batch_size

    def train_dataloader(self) -> DataLoader:
        rows: Any = range(self.cells.n_obs)
        return DataLoader(rows, self.batch_size, shuffle=True, collate_fn=self.minibatch)

    def minibatch(self, rows: list[int]) -> dict[str, Any]:
        return {"X": sparse.csr_matrix(self.cells.X[rows]), "obs": self.cells.obs.iloc[rows]}


def main(n_processes: int, folder: Path, strategy: str = "ddp") -> None:
    skipped: list[str] = []
    _plan.logger.warning = lambda text, *values: skipped.append(text % values)
    break_one_step_of_the_last_process(n_processes)
    adata = simulated_cells(400)
    scvi.settings.seed = 0
    model, recorder = small_model(adata), Recorder()
    options: dict[str, Any] = {"devices": n_processes, "strategy": strategy} if n_processes > 1 else {}
    options |= {"batch_size": GLOBAL_BATCH // n_processes, "callbacks": [recorder], "check_val_every_n_epoch": 3}
    if strategy == "streamed":
        model = TokenDiffusion(registry=model.registry, **SMALL)
        options |= {"strategy": "ddp", "datamodule": Streamed(simulated_cells(400), options["batch_size"])}
    model.train(12, **QUIET, **options)
    history = {name: values.to_numpy(float).ravel().tolist() for name, values in (model.history or {}).items()}
    said = {"weights": weights_of(model), "rates": recorder.rates, "levels": recorder.levels, "skipped": skipped}
    said |= {"rank": rank, "history": history, "remembered": len(model.training_summary_["library"])}
    cells = [{"X": sparse.csr_matrix(adata.X), "obs": adata.obs}]
    said["nll"] = float(model.get_nll_bound(dataloader=cells, seed=0, silent=True)["nll"].mean())
    (folder / f"{rank}.json").write_text(json.dumps(said))
    if torch.distributed.is_initialized():
        torch.distributed.barrier()  # the first process, which the test waits for, ends when all have written


if __name__ == "__main__":
    main(int(sys.argv[1]), Path(sys.argv[2]), *sys.argv[3:])
