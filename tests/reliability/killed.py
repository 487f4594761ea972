"""Saves and trains a model in children that are killed on the way; `test_killed.py` runs this in a process of its own.

Prints a line of JSON for each death: how it came, and what was found in the folder afterwards.
"""

import json
import os
import random
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from scvi.train import SaveCheckpoint
from small_cells import QUIET, SMALL, simulated_cells

from scdiffgen.model import TokenDiffusion

torch.set_num_threads(1)
OLD, NEW = 1.0, 2.0
TOUCHES_FILES = ("open", "os.mkdir", "os.rename", "os.remove", "os.rmdir", "shutil.rmtree")


def in_child(work: Callable[[], Any]) -> int:
    child = os.fork()
    if not child:
        devnull = os.open(os.devnull, os.O_WRONLY)
        os.dup2(devnull, 1)
        try:
            work()
            os._exit(0)
        finally:
            os._exit(1)
    return child


def survived(child: int) -> bool:
    _, status = os.waitpid(child, 0)
    if os.WIFEXITED(status) and os.WEXITSTATUS(status):
        raise AssertionError(f"the child failed with {os.WEXITSTATUS(status)}")
    return os.WIFEXITED(status)


def die_at(event: int, below: Path) -> None:
    """Kill this process when it touches files of a folder for the so-many-th time."""
    seen = 0

    def hook(name: str, arguments: tuple[Any, ...]) -> None:
        nonlocal seen
        if name in TOUCHES_FILES and str(arguments[0]).startswith(str(below)):
            seen += 1
            if seen == event:
                os.kill(os.getpid(), signal.SIGKILL)

    sys.addaudithook(hook)


def found(folder: Path) -> dict[str, Any]:
    """What the model says that is there, if there is one: its mark, and how many cells it has and makes."""
    if not folder.exists():
        return {"mark": None}
    model = TokenDiffusion.load(folder, accelerator="cpu")
    made = model.generate({"cell_type": "a"}, 2, n_steps=2, seed=0)
    mark = float(mark_of(model))
    assert model.adata.obs["mark"].eq(mark).all()
    return {"mark": mark, "cells": model.adata.n_obs, "generated": made.n_obs}


def report(how: str, folder: Path, whole: bool) -> None:
    print(json.dumps({"how": how, "whole": whole, **found(folder)}), flush=True)


def die_while_saving(model: TokenDiffusion, folder: Path, how: str) -> None:
    """At every touch of a file: into a new folder, or over a model that is there."""
    whole, event = False, 0
    while not whole:
        event += 1
        target = folder / (how if how == "over" else f"{how}{event}")
        if how == "over":
            marked(model, OLD).save(target, overwrite=True, save_anndata=True)

        def save(event: int = event, target: Path = target) -> None:
            die_at(event, folder)
            marked(model, NEW).save(target, overwrite=True, save_anndata=True)

        whole = survived(in_child(save))
        report(how, target, whole)


def die_at_any_time(model: TokenDiffusion, folder: Path) -> None:
    """Over a model that is there, while the child saves again and again."""
    marked(model, OLD).save(folder / "often", save_anndata=True)

    def save() -> None:
        while True:
            marked(model, NEW).save(folder / "often", overwrite=True, save_anndata=True)

    for _ in range(4):
        child = in_child(save)
        time.sleep(random.uniform(0.0, 0.5))
        os.kill(child, signal.SIGKILL)
        report("often", folder / "often", survived(child))


def mark_of(model: TokenDiffusion) -> torch.Tensor:
    return model.module.ema_denoiser.network.readout.bias[0]


def marked(model: TokenDiffusion, mark: float) -> TokenDiffusion:
    with torch.no_grad():
        mark_of(model).fill_(mark)
    model.adata.obs["mark"] = mark
    return model


def die_while_training(folder: Path) -> None:
    """Once a few checkpoints are there; all that are visible then are loaded."""
    adata = simulated_cells(120)
    TokenDiffusion.setup_anndata(adata, labels_key="cell_type")
    model = TokenDiffusion(adata, **SMALL)
    kept = SaveCheckpoint(folder, "{epoch}", monitor="validation_loss", save_top_k=-1)
    plan = {"lr": 1e-6}  # the loss does not rise, so that training does not stop by itself
    child = in_child(
        lambda: model.train(1000, batch_size=32, check_val_every_n_epoch=1, callbacks=[kept], plan_kwargs=plan, **QUIET)
    )
    while len(list(folder.glob("epoch=[0-9]*"))) < 4:
        time.sleep(0.01)
    time.sleep(random.uniform(0, 0.1))
    os.kill(child, signal.SIGKILL)
    survived(child)
    for path in folder.glob("epoch=*[0-9]"):
        loaded = TokenDiffusion.load(path, adata.copy(), accelerator="cpu")
        made = loaded.generate({"cell_type": "a"}, 2, n_steps=2, seed=0)
        known = len(loaded.train_indices) + len(loaded.validation_indices)
        print(json.dumps({"how": "training", "generated": made.n_obs, "known": known}), flush=True)


if __name__ == "__main__":
    where = Path(sys.argv[1])
    die_while_training(where / "training")
    trained = TokenDiffusion.load(sys.argv[2], accelerator="cpu")
    die_while_saving(trained, where, "new")
    die_while_saving(trained, where, "over")
    die_at_any_time(trained, where)
