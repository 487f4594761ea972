"""How fast are training and generation, and what memory do they take? Beside scVI with its defaults, in one run.

``python -m benchmarks.speed --threads 2``

Both models are trained in turns on the same cells; the first epoch of each turn is a warm-up.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal
from unittest import mock

import lightning.pytorch as pl
import numpy as np
import scvi

from benchmarks._data import DATASETS, LABEL, Split, load_split
from benchmarks._generation_table import OURS
from benchmarks._memory import in_own_process
from benchmarks._models import Method, fit_scdiffgen, scdiffgen_methods
from benchmarks._record import benchmark_parser, environment, output_folder, start, write_result
from benchmarks._scvi import scvi_methods
from benchmarks._tables import Column, score_table
from benchmarks._where_time_goes import where_time_goes
from scdiffgen.diffusion import _molecules
from scdiffgen.model import TokenDiffusion
from scdiffgen.normal_scores import GaussianCopula, library_sizes

STEPS = (8, 16, 32, 64)
DENSE_STEPS = (8, 32)  # of drawing by dense rates, as GPUs do
OTHER_PROCESSES = {"gaussian": (16, 32), "latent": (32,)}  # and their numbers of steps
N_TURNS, N_EPOCHS, N_REPEATS = 3, 4, 3
N_STEPS = 32  # of what is looked at by operation
LOW_PRECISION = "scdiffgen, bf16-mixed"


class EpochTimer(pl.Callback):
    """Seconds of every training epoch, from its start to the end of its last step: validation is left out."""

    def __init__(self) -> None:
        self.seconds: list[float] = []

    def on_train_epoch_start(self, trainer: pl.Trainer, module: pl.LightningModule) -> None:
        """Start the clock."""
        self._start = time.perf_counter()

    def on_train_batch_end(self, *arguments: Any) -> None:
        """Read the clock."""
        self._end = time.perf_counter()

    def on_train_epoch_end(self, trainer: pl.Trainer, module: pl.LightningModule) -> None:
        """Keep what the clock said after the last step."""
        self.seconds.append(self._end - self._start)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = benchmark_parser("benchmarks.speed", __doc__)
    parser.add_argument("--data", choices=list(DATASETS), default="kang")
    options = parser.parse_args(arguments)
    start(options.threads)
    split = load_split(options.data, seed=0)
    turns, repeats, n_cells = (1, 1, 64) if options.quick else (N_TURNS, N_REPEATS, 1024)
    result = {
        "benchmark": "speed",
        "data": {"name": options.data, "n_train": split.train.n_obs, "n_genes": split.train.n_vars},
        "environment": environment(options.threads, [0]),
        **measure(split, turns=turns, repeats=repeats, n_cells=n_cells),
        "time": where_time_goes(split, lambda model: scdiffgen_methods(model, [N_STEPS])[0]),
        "memory": [
            {"model": name} | in_own_process("_memory", name, options.data, str(options.threads))
            for name in ("scdiffgen", "scVI")
        ],
    }
    write_result(output_folder(options.output, quick=options.quick), f"speed-{options.data}", result)
    print(speed_tables(result))


def speed_tables(result: Mapping[str, Any]) -> str:
    """Cells a second of training and generating, and memory; other programs are compared with our defaults."""
    tables = []
    for stage in ("training", "generating"):
        rows = {row["model"]: {"rate": row["cells_per_second"]} for row in result[stage]}
        ours = OURS if OURS in rows else "scdiffgen"
        rivals = [name for name in rows if not name.startswith("scdiffgen")]
        tables.append(score_table(stage, {"rate": Column("cells a second", np.inf, 0)}, rows, ours, rivals))
    columns = {name: Column(name, digits=0) for name in ("imports", "data", "training")}
    rows = {row["model"]: {name: [row[name]] for name in (*columns, "generating")} for row in result["memory"]}
    columns["generating"] = Column("generating", 0.0, 0)
    return "\n\n".join([*tables, score_table("peak memory, MB, up to the end of", columns, rows, "scdiffgen")])


def measure(split: Split, *, turns: int, repeats: int, n_cells: int) -> dict[str, list[dict[str, Any]]]:
    """Cells a second of training and of generating, one value for each epoch or repeat."""
    rates: dict[str, list[float]] = {"scdiffgen": [], LOW_PRECISION: [], "scVI": []}
    for _ in range(turns):
        lower, timer = trained(TokenDiffusion, split, precision="bf16-mixed", labels_key=LABEL)
        rates[LOW_PRECISION] += [len(lower.train_indices) / seconds for seconds in timer.seconds[1:]]
        ours, timer = trained(TokenDiffusion, split, labels_key=LABEL)
        rates["scdiffgen"] += [len(ours.train_indices) / seconds for seconds in timer.seconds[1:]]
        other, timer = trained(scvi.model.SCVI, split, batch_key=LABEL)
        rates["scVI"] += [len(other.train_indices) / seconds for seconds in timer.seconds[1:]]
    labels = np.resize(split.labels, n_cells)
    dense = [by_dense_rates(method) for method in scdiffgen_methods(ours, list(DENSE_STEPS))]
    methods = [*scdiffgen_methods(ours, list(STEPS)), *dense, *other_processes(split), scvi_methods(other)[0]]
    methods.append(fitted_copula(split))
    return {
        "training": [{"model": name, "cells_per_second": values} for name, values in rates.items()],
        "generating": [
            {"model": method.name, "cells_per_second": sampling_rates(method, labels, repeats)} for method in methods
        ],
    }


def other_processes(split: Split) -> list[Method]:
    """Generate by the other processes, after a few epochs."""
    methods = []
    for process, steps in OTHER_PROCESSES.items():
        model = fit_scdiffgen(split, max_epochs=N_EPOCHS, preset="small", process=process)
        methods += scdiffgen_methods(model, list(steps), f"scdiffgen, {process}")
    return methods


def fitted_copula(split: Split) -> Method:
    """Draw from the linear Gaussian copula, which is fitted once, at library sizes of training cells."""
    counts, known = split.train.X.astype(np.float64), split.train.obs[LABEL].to_numpy(dtype=str)
    categories, groups = np.unique(known, return_inverse=True)
    copula, library = GaussianCopula.fit(counts, groups), library_sizes(counts)

    def sample(labels: np.ndarray, seed: int) -> Any:
        rng = np.random.default_rng(seed)
        return copula.draw(np.searchsorted(categories, labels), rng.choice(library, len(labels)), rng)

    return Method("linear Gaussian copula", "other", sample)


def trained(
    model_class: Callable[..., Any], split: Split, precision: Literal["32-true", "bf16-mixed"] = "32-true", **setup: str
) -> tuple[Any, EpochTimer]:
    """Train for a few epochs, ours with the preset small, with the defaults in everything else."""
    adata, timer = split.train.copy(), EpochTimer()
    model_class.setup_anndata(adata, **setup)
    model = model_class(adata, **({"preset": "small"} if model_class is TokenDiffusion else {}))
    model.train(max_epochs=N_EPOCHS, callbacks=[timer], precision=precision, enable_progress_bar=False)
    return model, timer


def by_dense_rates(method: Method) -> Method:
    """The same method without the compiled pass over sparse cells."""

    def sample(labels: np.ndarray, seed: int) -> Any:
        with mock.patch.object(_molecules, "COMPILED_FOR", "none"):
            return method.sample(labels, seed)

    return replace(method, name=f"{method.name}, dense rates", sample=sample)


def sampling_rates(method: Method, labels: np.ndarray, repeats: int) -> list[float]:
    """Cells a second of each repeat, after a warm-up."""
    rates = []
    for seed in range(repeats + 1):
        begin = time.perf_counter()
        method.sample(labels, seed)
        rates.append(len(labels) / (time.perf_counter() - begin))
    return rates[1:]


if __name__ == "__main__":
    main()
