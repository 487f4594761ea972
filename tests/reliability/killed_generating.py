"""Generates into files in children that are killed on the way; `test_killed_generating.py` runs this.

Prints a line of JSON for each death: the file, chunks that were there afterwards, and those generated when the
same was asked for again.
"""

import json
import os
import random
import signal
import sys
import time
from pathlib import Path

import torch
from killed import die_at, in_child, survived  # type: ignore[import-not-found]

from scdiffgen.model import TokenDiffusion, _chunked_generation

torch.set_num_threads(1)
N_CHUNKS = 4


def generate(model: TokenDiffusion, path: Path, counted: Path | None = None) -> None:
    """Into a file; note in another how many chunks were sampled."""
    sample, sampled = _chunked_generation.sample_chunk, []

    def sample_and_count(*arguments: object) -> object:
        sampled.append(None)
        return sample(*arguments)

    _chunked_generation.sample_chunk = sample_and_count
    model.generate_to(path, {"cell_type": "a"}, 3 * N_CHUNKS, chunk_size=3, n_steps=2, silent=True)
    if counted is not None:
        counted.write_text(str(len(sampled)))


def chunks_of(path: Path) -> int:
    """Chunks that are there; all, if the file itself is."""
    return N_CHUNKS if path.exists() else len(list(path.with_name(f"{path.name}.partial").glob("[0-9]*.npz")))


def die_at_every_touch_of_a_file(model: TokenDiffusion, folder: Path, suffix: str, step: int) -> None:
    whole, event = False, 1
    while not whole:
        path = folder / f"event{event}{suffix}"

        def work(event: int = event, path: Path = path) -> None:
            die_at(event, folder)
            generate(model, path)

        whole = survived(in_child(work))
        go_on(model, path, whole)
        event += step


def die_again_and_again(model: TokenDiffusion, path: Path) -> None:
    """At random moments, until the file is there."""
    for _ in range(10):
        child = in_child(lambda: generate(model, path))
        time.sleep(random.uniform(0.0, 0.1))
        os.kill(child, signal.SIGKILL)
        if survived(child):
            break
    go_on(model, path, path.exists())


def go_on(model: TokenDiffusion, path: Path, whole: bool) -> None:
    there = chunks_of(path)
    counted = path.with_suffix(".txt")
    assert survived(in_child(lambda: generate(model, path, counted)))
    left = path.with_name(f"{path.name}.partial").exists()
    print(
        json.dumps(
            {"path": str(path), "whole": whole, "there": there, "generated": int(counted.read_text()), "left": left}
        )
    )


def main(folder: Path, model: TokenDiffusion) -> None:
    die_at_every_touch_of_a_file(model, folder, ".h5ad", step=3)
    die_at_every_touch_of_a_file(model, folder, ".zarr", step=601)  # joining touches about 2,000 files
    for suffix in (".h5ad", ".zarr"):
        die_again_and_again(model, folder / f"often{suffix}")


if __name__ == "__main__":
    where = Path(sys.argv[1])
    where.mkdir()
    main(where, TokenDiffusion.load(sys.argv[2], accelerator="cpu"))
