"""Which process, and which form of the network? Trained on the same cells for the same steps, and for the same time.

``python -m benchmarks.processes --data kang pbmc3k paul15 pbmc68k --seeds 0 1 2``

The first contender, the default, is trained for as many epochs as it is by default. The others are trained for as many
(``"steps"``), and again for as many as take them as long (``"time"``). ``--networks`` compares forms of the network
under the default process instead of processes.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

import scvi

from benchmarks._data import DATASETS, LABEL, Split, available, load_split
from benchmarks._models import scdiffgen_methods
from benchmarks._record import add_common_arguments, environment, output_folder, start, write_result
from benchmarks._scores import METRICS, Scorer, likelihoods
from scdiffgen.model import GaussianOptions, ReadoutOptions, TokenDiffusion

Contenders = Mapping[str, Mapping[str, Any]]
Budget = Literal["steps", "time"]

PROCESSES: Contenders = {
    "thinning": {},
    **{
        f"gaussian, {prediction}": {
            "process": "gaussian",
            "process_options": GaussianOptions(prediction=prediction, loss_space=prediction),
        }
        for prediction in ("x0", "v", "eps")
    },
    "gaussian, flow matching": {
        "process": "gaussian",
        "process_options": GaussianOptions("v", "v", schedule="rectified", sampler="heun"),
    },
    "latent": {"process": "latent"},
}
NETWORKS: Contenders = {
    "default": {},
    "encoder linear": {"encoder": "linear"},
    "encoder cross_attention": {"encoder": "cross_attention"},
    "read-out mlp": {"readout": ReadoutOptions(kind="mlp")},
    "read-out cross_attention": {"readout": ReadoutOptions(kind="cross_attention")},
    "positions sinusoidal": {"positions": "sinusoidal"},
    "positions none": {"positions": "none"},
    "attention across": {"attention": "across"},
    "conditioning cross_attention": {"conditioning": "cross_attention"},
    "conditioning concat": {"conditioning": "concat"},
    **{f"{n} tokens of {dim}": {"n_tokens": n, "token_dim": dim} for n, dim in ((16, 32), (64, 64), (128, 32))},
}


@dataclass(frozen=True)
class Settings:
    """What is run.

    Parameters
    ----------
    seeds
        Seeds of split, training and drawing.
    steps
        Evaluations of the network to generate in.
    threads
        Threads of everything.
    max_epochs
        Epochs of the first contender; ``None`` is its default.
    n_trees
        Trees of the forests.
    """

    seeds: Sequence[int] = (0, 1, 2)
    steps: Sequence[int] = (8, 16, 32, 64)
    threads: int = 2
    max_epochs: int | None = None
    n_trees: int = 200


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.processes", description=__doc__.splitlines()[0])
    parser.add_argument("--data", nargs="+", choices=list(DATASETS), default=available(), help="default: what is there")
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1, 2])
    parser.add_argument("--networks", action="store_true", help="compare forms of the network")
    add_common_arguments(parser)
    options = parser.parse_args(arguments)
    start(options.threads)
    settings = Settings(options.seeds, threads=options.threads)
    if options.quick:
        settings = Settings(options.seeds[:1], (8,), options.threads, max_epochs=2, n_trees=20)
    contenders, title = (NETWORKS, "networks") if options.networks else (PROCESSES, "processes")
    for name in options.data:
        run(name, title, contenders, settings, output_folder(options.output, quick=options.quick))


def run(name: str, title: str, contenders: Contenders, settings: Settings, folder: Path) -> dict[str, Any]:
    """Measure one data set; results are written after every seed."""
    result: dict[str, Any] = {
        "benchmark": title,
        "data": {"name": name, "description": DATASETS[name].description},
        "settings": {"steps": list(settings.steps), "max_epochs": settings.max_epochs, "n_trees": settings.n_trees},
        "metrics": {key: asdict(metric) for key, metric in METRICS.items()},
        "environment": environment(settings.threads, settings.seeds),
        "rows": [],
        "training": [],
        "likelihood": [],
    }
    for seed in settings.seeds:
        for kind, record in measure(load_split(name, seed), contenders, settings):
            result[kind].append({"seed": seed, **record})
        write_result(folder, f"{title}-{name}", result)
    return result


def measure(split: Split, contenders: Contenders, settings: Settings) -> Iterator[tuple[str, dict[str, Any]]]:
    """Train and score every contender on one split: records with the table that they belong to."""
    scorer = Scorer.fit(split, n_trees=settings.n_trees, n_jobs=settings.threads)
    epochs, allowed = settings.max_epochs, None
    for name, options in contenders.items():
        model, seconds = fit(split, options, epochs)
        yield from judge(name, "steps", model, seconds, split, scorer, settings)
        if allowed is None:
            epochs, allowed = model.trainer.max_epochs, seconds
        else:
            model, seconds = fit(split, options, max(round(epochs * allowed / seconds), 2))
        yield from judge(name, "time", model, seconds, split, scorer, settings)


def fit(split: Split, options: Mapping[str, Any], max_epochs: int | None) -> tuple[TokenDiffusion, float]:
    """Train to the end, and the seconds that it took."""
    adata = split.train.copy()
    TokenDiffusion.setup_anndata(adata, labels_key=LABEL)
    scvi.settings.seed = split.seed
    model = TokenDiffusion(adata, **options)
    begin = time.perf_counter()
    model.train(max_epochs=max_epochs, early_stopping=False, enable_progress_bar=False)
    return model, time.perf_counter() - begin


def judge(
    name: str,
    budget: Budget,
    model: TokenDiffusion,
    seconds: float,
    split: Split,
    scorer: Scorer,
    settings: Settings,
) -> Iterator[tuple[str, dict[str, Any]]]:
    """Speed of training; likelihood, if the process has one; quality and speed of drawing, for each number of steps."""
    contender = {"method": name, "budget": budget}
    n_cells = len(model.train_indices) * model.trainer.current_epoch
    yield "training", {**contender, "seconds": seconds, "cells_per_second": n_cells / seconds}
    if model.module.process == "thinning":
        bounds = likelihoods(model, split, seed=split.seed)
        yield "likelihood", {**contender, **bounds}
    for n_evaluations, method in zip(
        settings.steps, scdiffgen_methods(model, steps_of(model, settings.steps)), strict=True
    ):
        begin = time.perf_counter()
        counts = method.sample(split.labels, split.seed)
        drawing = time.perf_counter() - begin
        print(f"{split.name}, seed {split.seed}, equal {budget}: {name}, {n_evaluations} evaluations", flush=True)
        yield (
            "rows",
            {
                **contender,
                "evaluations": n_evaluations,
                "cells_per_second": len(split.labels) / drawing,
                "scores": scorer.score(counts),
            },
        )


def steps_of(model: TokenDiffusion, evaluations: Sequence[int]) -> list[int]:
    """Steps that make so many evaluations of the network: Heun's take two each."""
    options = model.module.process_options
    return [n // 2 if options is not None and options.sampler == "heun" else n for n in evaluations]


if __name__ == "__main__":
    main()
