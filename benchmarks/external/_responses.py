"""What recipes for responses share: the exported cells, the length of training, and the files of predicted cells.

Nothing here needs scdiffgen: recipes run in the environment of the program that they drive.
"""

import argparse
import os
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import anndata
import numpy as np
import pandas as pd
import scanpy as sc
from anndata import AnnData
from scipy import sparse

from benchmarks._external import LOGGED
from benchmarks.external._recipe import quietly, seed_everything, set_threads

RESPONSE, CONTEXT, CONTROL = "response", "context", "control"
VALIDATION = 0.1  # of the cells, for programs that stop early


class Target(NamedTuple):
    """A response to predict, and the context in which it was held out."""

    response: str
    context: str


@dataclass(frozen=True)
class Job:
    """What a recipe is asked for: training counts, held-out responses, share of the recommended length, and files."""

    train: AnnData
    targets: Sequence[Target]
    share: float
    seed: int
    out: Path

    def logged(self) -> AnnData:
        """Training cells as log(1 + counts per 10,000)."""
        cells = self.train.copy()
        if LOGGED in cells.uns:
            return cells
        sc.pp.normalize_total(cells, target_sum=1e4)
        sc.pp.log1p(cells)
        return cells

    def controls(self, context: str) -> np.ndarray:
        """Which training cells the prediction of a context starts from."""
        obs = self.train.obs
        return ((obs[RESPONSE] == CONTROL) & (obs[CONTEXT] == context)).to_numpy()

    def split(self) -> np.ndarray:
        """``"train"`` for most training cells, ``"valid"`` for those that early stopping looks at."""
        drawn = np.random.default_rng(self.seed).random(self.train.n_obs)
        return np.where(drawn < VALIDATION, "valid", "train")


class Predicted(NamedTuple):
    """Cells of a target: log(1 + counts per 10,000), and counts, if the program has a distribution of them."""

    logged: np.ndarray
    counts: np.ndarray | None = None


class Program(Protocol):
    """What a recipe drives."""

    full: int  # recommended length, in the unit of the program
    settings: Mapping[str, Any]  # to be noted beside the cells

    def train(self, length: int) -> None:
        """Train for a length."""

    def predict(self, target: Target) -> Predicted:
        """Predict a held-out response, a cell for each control that it starts from."""


def drive(description: str | None, make: Callable[[Job], Program], packages: Sequence[str]) -> None:
    """Do what the command line says: train, predict, and write expression and, in a folder beside, counts.

    Of cells that are log-normalised already there are no counts. The versions of the ``packages`` are noted.
    """
    job, threads = read_job(description)
    seed_everything(job.seed)
    here = Path.cwd()
    with tempfile.TemporaryDirectory() as folder, quietly(job.out.with_suffix(".log")):
        os.chdir(folder)  # where programs write what nobody asked for
        program = make(job)
        length = max(1, round(job.share * program.full))
        begin = time.process_time(), time.perf_counter()
        program.train(length)
        took = time.process_time() - begin[0], time.perf_counter() - begin[1]
        predicted = [program.predict(target) for target in job.targets]
        os.chdir(here)
    account = {
        "packages": {name: version(name) for name in packages},
        "seed": job.seed,
        "threads": threads,
        "length": length,
        "recommended_length": program.full,
        "training_seconds": took[0],
        "wall_seconds": took[1],
        **program.settings,
    }
    write(job, job.out, [cells.logged for cells in predicted], account, logged=True)
    if LOGGED in job.train.uns:
        return
    pairs = zip(predicted, job.targets, strict=True)
    counts = [drawn(job, cells, target) if cells.counts is None else cells.counts for cells, target in pairs]
    beside = job.out.parent.with_name(f"{job.out.parent.name}-counts") / job.out.name
    write(job, beside, counts, account, logged=False)


def read_job(description: str | None) -> tuple[Job, int]:
    """Read the command line, and the number of threads, which are set."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cells", type=Path, required=True, help="<task>-<held out>-train.h5ad, as exported")
    parser.add_argument("--targets", type=Path, required=True, help="<task>-<held out>-targets.csv, as exported")
    parser.add_argument("--out", type=Path, required=True, help="where to write the predicted cells")
    parser.add_argument("--share", type=float, default=1.0, help="of the length that the program recommends (1)")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    set_threads(options.threads)
    targets = pd.read_csv(options.targets, dtype=str)
    return Job(
        train=anndata.read_h5ad(options.cells),
        targets=[Target(*pair) for pair in targets[[RESPONSE, CONTEXT]].itertuples(index=False)],
        share=options.share,
        seed=options.seed,
        out=options.out.resolve(),
    ), options.threads


def drawn(job: Job, predicted: Predicted, target: Target) -> np.ndarray:
    """Counts drawn from a multinomial of the predicted shares, at the library sizes of the controls."""
    library = np.asarray(job.train.X[job.controls(target.context)].sum(axis=1)).ravel().astype(int)
    shares = np.expm1(np.clip(predicted.logged.astype(np.float64), 0, None))
    shares /= shares.sum(axis=1, keepdims=True)
    rng = np.random.default_rng(job.seed)
    return rng.multinomial(rng.permutation(library)[: len(shares)], shares)


def write(job: Job, out: Path, values: Sequence[np.ndarray], account: Mapping[str, Any], *, logged: bool) -> None:
    """Write cells of all targets and how they came about; of expression, ``.uns`` says so."""
    of_cell = np.repeat(np.arange(len(job.targets)), [len(part) for part in values])
    obs = pd.DataFrame(job.targets).iloc[of_cell].reset_index(drop=True)
    obs.index = obs.index.astype(str)
    cells = AnnData(
        sparse.csr_matrix(np.concatenate(values), dtype=np.float32), obs, pd.DataFrame(index=job.train.var_names)
    )
    cells.uns = {"recipe": dict(account), **({LOGGED: {}} if logged else {})}
    out.parent.mkdir(parents=True, exist_ok=True)
    cells.write_h5ad(out)
    print(f"{out}: {cells.n_obs} cells, {account['training_seconds']:.0f} s of training, length {account['length']}")
