"""What the recipes share: the exported cells, the time that each stage gets, and the file of generated cells.

Nothing here needs scdiffgen: recipes run in the environment of the program that they drive.
"""

import argparse
import os
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import anndata
import numpy as np
import pandas as pd
import torch
from anndata import AnnData
from scipy import sparse

LABEL = "label"
ENOUGH = 0.02  # of the time, for measuring the speed of a stage


@dataclass(frozen=True)
class Job:
    """What a recipe is asked for: training cells, labels of the cells to generate, seed, time and where to write."""

    source: Path
    cells: Path
    train: AnnData
    labels: np.ndarray
    seed: int
    seconds: float | None
    out: Path


def read_job(description: str | None) -> Job:
    """Read the command line; put the program on the path; set threads and seeds."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--source", type=Path, required=True, help="checkout of the program")
    parser.add_argument("--cells", type=Path, required=True, help="<data>-seed<seed>-train.h5ad, as exported")
    parser.add_argument("--labels", type=Path, required=True, help="<data>-seed<seed>-labels.csv, as exported")
    parser.add_argument("--out", type=Path, required=True, help="where to write the generated cells")
    length = parser.add_mutually_exclusive_group(required=True)
    length.add_argument("--minutes", type=float, help="time of training on a core of its own, all stages together")
    length.add_argument("--full", action="store_true", help="train for the lengths that the program recommends")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    set_threads(options.threads)
    sys.path.insert(0, str(options.source.resolve()))
    wanted = pd.read_csv(options.labels, index_col=0)["n_cells"]
    seed_everything(options.seed)
    return Job(
        source=options.source.resolve(),
        cells=options.cells.resolve(),
        train=anndata.read_h5ad(options.cells),
        labels=np.repeat(wanted.index.to_numpy(dtype=str), wanted.to_numpy()),
        seed=options.seed,
        seconds=None if options.full else 60 * options.minutes,
        out=options.out.resolve(),
    )


def set_threads(n_threads: int) -> None:
    """Set the threads of torch, numba and JAX, of which the last two listen only before they are imported."""
    threads = {
        "OMP_NUM_THREADS": str(n_threads),
        "MKL_NUM_THREADS": str(n_threads),
        "NUMBA_NUM_THREADS": str(n_threads),
        "XLA_FLAGS": f"--xla_cpu_multi_thread_eigen={str(n_threads > 1).lower()}",
    }
    if not threads.items() <= os.environ.items():
        os.execve(sys.executable, [sys.executable, *sys.orig_argv[1:]], os.environ | threads)
    torch.set_num_threads(n_threads)


def seed_everything(seed: int) -> None:
    random.seed(seed)
    np.random.seed(seed)
    torch.manual_seed(seed)


@dataclass
class Stages:
    """Lengths of the stages of training, one after the other.

    Every stage gets the same share of the length that the program recommends, such that all together fit into the time.
    Speeds are measured in processor time where there is one thread, so that what else runs on the machine does not
    shorten the training.
    """

    seconds: float | None  # time for all stages together; `None` for the recommended lengths
    full: Mapping[str, int]  # recommended length of each stage, in steps or epochs
    rates: dict[str, float] = field(default_factory=dict)  # seconds a step or epoch
    lengths: dict[str, int] = field(default_factory=dict)
    took: dict[str, float] = field(default_factory=dict)
    wall: dict[str, float] = field(default_factory=dict)

    def time(self, stage: str, train: Callable[[int], Any], few: int) -> None:
        """Measure a stage on throw-away trainings, ever longer until length outweighs start-up and noise."""
        if self.seconds is None:
            return
        self._timed(train, few)  # warms up
        short = self._timed(train, few)[1]
        length, long = few, short
        while long < 2 * short or long < short + ENOUGH * self.seconds:
            length *= 4
            long = self._timed(train, length)[1]
        self.rates[stage] = (long - short) / (length - few)

    def run(self, stage: str, train: Callable[[int], Any]) -> Any:
        """Train a stage for its length, and note what it took."""
        share = 1.0
        if self.seconds is not None:
            share = self.seconds / sum(length * self.rates[name] for name, length in self.full.items())
        self.lengths[stage] = max(2, round(share * self.full[stage]))
        print(f"{stage}: {self.lengths[stage]} of {self.full[stage]}", flush=True)
        begin = time.perf_counter()
        result, self.took[stage] = self._timed(train, self.lengths[stage])
        self.wall[stage] = time.perf_counter() - begin
        return result

    @staticmethod
    def _timed(train: Callable[[int], Any], length: int) -> tuple[Any, float]:
        clock = time.process_time if torch.get_num_threads() == 1 else time.perf_counter
        begin = clock()
        result = train(length)
        return result, clock() - begin


@contextmanager
def quietly(log: Path):
    """Send what a program prints, from Python or below, to a file."""
    log.parent.mkdir(parents=True, exist_ok=True)
    sys.stdout.flush()
    sys.stderr.flush()
    kept = [os.dup(number) for number in (1, 2)]
    with log.open("ab") as file:
        try:
            for number in (1, 2):
                os.dup2(file.fileno(), number)
            yield
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            for number, copy in zip((1, 2), kept, strict=True):
                os.dup2(copy, number)
                os.close(copy)


def write_cells(
    job: Job, out: Path, counts: np.ndarray, labels: np.ndarray, stages: Stages, settings: Mapping[str, Any]
) -> None:
    """Write generated counts, labels, and how they came about; print what to look at first."""
    commit = subprocess.run(["git", "-C", job.source, "rev-parse", "HEAD"], capture_output=True, text=True, check=True)
    cells = AnnData(sparse.csr_matrix(counts, dtype=np.float32), obs=pd.DataFrame({LABEL: labels.astype(str)}))
    cells.obs_names, cells.var_names = cells.obs_names.astype(str), job.train.var_names
    cells.uns["recipe"] = {
        "commit": commit.stdout.strip(),
        "seed": job.seed,
        "torch": str(torch.__version__),
        "threads": torch.get_num_threads(),
        "budget_seconds": job.seconds or "full",
        "lengths": stages.lengths,
        "recommended_lengths": dict(stages.full),
        "training_seconds": {**stages.took, "all": sum(stages.took.values())},
        "wall_seconds": {**stages.wall, "all": sum(stages.wall.values())},
        **settings,
    }
    out.parent.mkdir(parents=True, exist_ok=True)
    cells.write_h5ad(out)
    print(f"{out}: {cells.uns['recipe']['training_seconds']}")
    for name, part in (("training cells", job.train), ("generated cells", cells)):
        sizes, zeros = np.asarray(part.X.sum(axis=1)).ravel(), 1 - (part.X != 0).mean()
        print(f"{name}: {part.n_obs}, median library size {np.median(sizes):.0f}, zero fraction {zeros:.3f}")


class Program(Protocol):
    """What a recipe drives: it has a method for each stage, which trains it for so many steps or epochs."""

    full: Mapping[str, int]  # recommended length of each stage
    settings: Mapping[str, Any]  # to be noted beside the cells

    def generate(self) -> tuple[np.ndarray, np.ndarray]:
        """Draw the cells of the job: expression and labels."""


def drive(
    description: str | None,
    make: Callable[[Job, Path], Program],
    few: int = 1,
    files: Callable[[Job, np.ndarray, np.ndarray], Mapping[Path, np.ndarray]] | None = None,
) -> None:
    """Do what the command line says: time the stages, train, generate, and write counts, a file each.

    The program is made with a folder for what it writes; stages are timed with a ``few`` steps or epochs. ``files``
    makes the counts of each file of the job, the cells and their labels; by default cells are counts, of one file.
    """
    job = read_job(description)
    with tempfile.TemporaryDirectory() as folder, quietly(job.out.with_suffix(".log")):
        program = make(job, Path(folder))
        stages = Stages(job.seconds, program.full)
        for stage in program.full:
            stages.time(stage, getattr(program, stage), few)
        seed_everything(job.seed)
        for stage in program.full:
            stages.run(stage, getattr(program, stage))
        begin = time.perf_counter()
        cells, labels = program.generate()
        seconds = time.perf_counter() - begin
    for out, counts in (files(job, cells, labels) if files else {job.out: cells}).items():
        write_cells(job, out, counts, labels, stages, {**program.settings, "sampling_seconds": seconds})
