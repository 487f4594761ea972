"""Which process, and which form of the network? Trained on the same cells for the same steps, and for the same time.

``python -m benchmarks.processes --data kang pbmc3k paul15 pbmc68k --seeds 0 1 2``

The first contender, the default, is trained for as many epochs as it is by default, or for ``--max-epochs``. The others
are trained for as many (``"steps"``), and again for as many as take them as long (``"time"``). ``--networks`` compares
forms of the network under the default process instead of processes.

Every training is kept under ``parts/`` beside the results and not repeated, so a run may be stopped and started again,
or split over several commands. Cheaper: ``--max-epochs 40 --evaluations 8 32 --cells 200 --trees 50``. With one thread
seconds are those of the process, which other work on the machine hardly changes; with several they are those of the
clock.
"""

import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import scvi

from benchmarks._data import DATASETS, LABEL, Split, available, load_split
from benchmarks._models import Method, real_cells, scdiffgen_methods
from benchmarks._parts import Budget, ProcessPart, read_parts, write_part
from benchmarks._process_result import REAL, gather
from benchmarks._record import benchmark_parser, environment, output_folder, start, write_result
from benchmarks._scores import Scorer, likelihoods
from scdiffgen.model import GaussianOptions, NetworkOptions, TokenDiffusion

Contenders = Mapping[str, Mapping[str, Any]]

DDPM = "gaussian, DDPM"
PROCESSES: Contenders = {
    "thinning": {},
    **{
        f"gaussian, {prediction}": {"process": GaussianOptions(prediction=prediction)}
        for prediction in ("x0", "v", "eps")
    },
    "gaussian, flow matching": {"process": GaussianOptions("v", schedule="rectified", sampler="ddim")},
    DDPM: {"process": GaussianOptions("eps", schedule="linear", sampler="ancestral")},
    "latent": {"process": "latent"},
}
NETWORKS: Contenders = {
    "default": {},
    "positions sinusoidal": {"network": NetworkOptions(positions="sinusoidal")},
    "positions none": {"network": NetworkOptions(positions="none")},
    "conditioning cross_attention": {"network": NetworkOptions(conditioning="cross_attention")},
    "conditioning concat": {"network": NetworkOptions(conditioning="concat")},
    **{
        f"conditioning {kind}, rotated": {"network": NetworkOptions(conditioning=kind, attention_numbers="rotated")}
        for kind in ("cross_attention", "concat")
    },
    **{
        f"level {kind}": {"network": NetworkOptions(level_embedding=kind)}
        for kind in ("rotary", "direct", "learned", "fourier", "hybrid")
    },
    **{
        f"{n} tokens of {dim}": {"n_tokens": n, "token_dim": dim}
        for n, dim in ((16, 32), (64, 64), (128, 32), (16, 256))
    },
}
ANCESTRAL_EVALUATIONS = 1000
"""Evaluations of DDPM's sampler in its first form, beside those of all."""


@dataclass(frozen=True)
class Settings:
    """What is run."""

    seeds: Sequence[int] = (0, 1, 2)  # seeds of split, training and drawing
    evaluations: Sequence[int] = (8, 16, 32, 64)  # evaluations of the network to generate in
    threads: int = 2  # threads of everything
    max_epochs: int | None = None  # epochs of the first contender; None is its default
    n_cells: int | None = None  # held-out cells to generate and compare with; None is all of them
    n_ancestral: int = 100  # the same for a thousand evaluations
    n_trees: int = 200  # trees of the forests
    equal_time: bool = True  # whether contenders are trained again for as long as the first

    @property
    def decisive(self) -> dict[str, Any]:
        """What the numbers of a contender depend on beside its seed."""
        scored = {"evaluations": list(self.evaluations), "n_cells": self.n_cells, "n_ancestral": self.n_ancestral}
        return {"max_epochs": self.max_epochs, **scored, "n_trees": self.n_trees, "threads": self.threads}


def main(arguments: Sequence[str] | None = None) -> None:
    parser = benchmark_parser("benchmarks.processes", __doc__)
    parser.add_argument("--data", nargs="+", choices=list(DATASETS), default=available(), help="default: what is there")
    parser.add_argument("--seeds", nargs="+", type=int, default=list(Settings.seeds))
    parser.add_argument("--networks", action="store_true", help="compare forms of the network")
    parser.add_argument("--only", nargs="+", choices=[*PROCESSES, *NETWORKS], help="contenders beside the first (all)")
    parser.add_argument("--evaluations", nargs="+", type=int, default=list(Settings.evaluations))
    parser.add_argument("--max-epochs", type=int, help="epochs of the first contender (its default)")
    parser.add_argument("--cells", type=int, help="cells to generate (as many as are held out)")
    parser.add_argument("--ancestral-cells", type=int, default=Settings.n_ancestral, help="in 1,000 evaluations (100)")
    parser.add_argument("--trees", type=int, default=Settings.n_trees, help="trees of the forests (200)")
    parser.add_argument("--no-equal-time", action="store_true", help="train for the same steps alone")
    options = parser.parse_args(arguments)
    start(options.threads)
    lengths = options.max_epochs, options.cells, options.ancestral_cells, options.trees
    settings = Settings(options.seeds, options.evaluations, options.threads, *lengths, not options.no_equal_time)
    if options.quick:
        settings = Settings(options.seeds[:1], (8,), options.threads, 2, 50, 10, n_trees=20)
    contenders, title = (NETWORKS, "networks") if options.networks else (PROCESSES, "processes")
    if options.only:
        first = next(iter(contenders))
        contenders = {name: contender for name, contender in contenders.items() if name in (first, *options.only)}
    for name in options.data:
        run(name, title, contenders, settings, output_folder(options.output, quick=options.quick))


def run(name: str, title: str, contenders: Contenders, settings: Settings, folder: Path) -> dict[str, Any]:
    """Measure one data set; what is measured already is left, and results are written after each part."""
    parts_folder = folder / "parts" / f"{title}-{name}"
    made_with = environment(settings.threads, settings.seeds)
    known = (part for part in read_parts(ProcessPart, parts_folder) if part.settings == settings.decisive)
    parts = {(part.seed, part.method, part.budget): part for part in known}
    split = None
    for seed in settings.seeds:
        split = load_split(name, seed)
        contest = Contest(fewer(split, settings.n_cells), settings, made_with)
        for method, budget in plan(contenders, settings):
            if (seed, method, budget) not in parts:
                of_seed = {key[1:]: part for key, part in parts.items() if key[0] == seed}
                part = contest.measure(method, budget, contenders, of_seed)
                parts[seed, method, budget] = part
                write_part(parts_folder, part)
                write_result(folder, f"{title}-{name}", gather(title, split, in_order(parts.values())))
                print(f"{name}, seed {seed}: {method}, equal {budget}", flush=True)
    result = gather(title, split or load_split(name, settings.seeds[0]), in_order(parts.values()))
    write_result(folder, f"{title}-{name}", result)
    return result


def plan(contenders: Contenders, settings: Settings) -> list[tuple[str, Budget]]:
    """What is measured, in this order: real cells, the first contender, and the others under each budget."""
    first, *others = contenders
    budgets: list[Budget] = ["steps", "time"] if settings.equal_time else ["steps"]
    return [(REAL, "both"), (first, "both"), *((name, budget) for name in others for budget in budgets)]


def in_order(parts: Collection[ProcessPart]) -> list[ProcessPart]:
    """Sort by the contenders; those that are no longer there are last."""
    names = [REAL, *PROCESSES, *NETWORKS, *(part.method for part in parts)]
    return sorted(parts, key=lambda part: (names.index(part.method), part.budget, part.seed))


class Contest:
    """Contenders on one split; the environment is kept with every part."""

    def __init__(self, split: Split, settings: Settings, made_with: Mapping[str, Any]) -> None:
        self.split = split
        self.settings = settings
        self.made_with = made_with
        self.scorer = Scorer.fit(split, n_trees=settings.n_trees, n_jobs=settings.threads)
        self.clock = time.process_time if settings.threads == 1 else time.perf_counter

    def measure(
        self, name: str, budget: Budget, contenders: Contenders, known: Mapping[tuple[str, Budget], ProcessPart]
    ) -> ProcessPart:
        """Train and score one contender, given what others (and itself, in as many steps) took."""
        seed = self.split.seed
        rest = (self.settings.decisive, self.made_with)
        if name == REAL:
            return ProcessPart(name, budget, seed, *rest, None, None, [self.draw(real_cells(self.split), self.split)])
        epochs = self.settings.max_epochs
        if budget != "both":
            allowed = known[next(iter(contenders)), "both"].training or {}
            epochs = round(allowed["epochs"])
            if budget == "time":
                taken = known[name, "steps"].training or {}
                epochs = max(round(epochs * allowed["seconds"] / taken["seconds"]), 2)
        model, training = self.fit(contenders[name], epochs)
        nll = None
        if model.module.process_name == "thinning":
            nll = likelihoods(model, self.split, seed=seed)["scdiffgen"]
        return ProcessPart(name, budget, seed, *rest, training, nll, self.rows(name, model))

    def fit(self, options: Mapping[str, Any], max_epochs: int | None) -> tuple[TokenDiffusion, dict[str, float]]:
        """Train to the end: the model, its epochs, the seconds that they took, and cells a second."""
        adata = self.split.train.copy()
        TokenDiffusion.setup_anndata(adata, labels_key=LABEL)
        scvi.settings.seed = self.split.seed
        model = TokenDiffusion(adata, preset="small", **options)
        begin = self.clock()
        model.train(max_epochs=max_epochs, early_stopping=False, enable_progress_bar=False)
        seconds = self.clock() - begin
        epochs = model.trainer.current_epoch
        n_cells = len(model.train_indices) * epochs
        return model, {"epochs": epochs, "seconds": seconds, "cells_per_second": n_cells / seconds}

    def rows(self, name: str, model: TokenDiffusion) -> list[dict[str, Any]]:
        """Draw and score, in each number of evaluations; DDPM's first sampler also as it was meant."""
        evaluations = self.settings.evaluations
        methods = scdiffgen_methods(model, evaluations)
        rows = [
            {"evaluations": n, **self.draw(method, self.split)} for n, method in zip(evaluations, methods, strict=True)
        ]
        if name == DDPM:
            (method,) = scdiffgen_methods(model, [ANCESTRAL_EVALUATIONS])
            few = fewer(self.split, self.settings.n_ancestral)
            rows.append({"evaluations": ANCESTRAL_EVALUATIONS, **self.draw(method, few)})
        return rows

    def draw(self, method: Method, split: Split) -> dict[str, Any]:
        """Draw a cell for each held-out one, and score them."""
        begin = self.clock()
        counts = method.sample(split.labels, split.seed)
        seconds = self.clock() - begin
        scorer = self.scorer if split is self.split else replace(self.scorer, split=split)
        n_cells = len(split.labels)
        return {"n_cells": n_cells, "cells_per_second": n_cells / seconds, "scores": scorer.score(counts)}


def fewer(split: Split, n_cells: int | None) -> Split:
    """The split with at most so many held-out cells, drawn at random."""
    if n_cells is None or n_cells >= split.held_out.n_obs:
        return split
    rows = np.random.default_rng(split.seed).choice(split.held_out.n_obs, n_cells, replace=False)
    return Split(split.name, split.seed, split.train, split.held_out[np.sort(rows)].copy(), split.other)


if __name__ == "__main__":
    main()
