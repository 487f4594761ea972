"""How well are held-out cells generated from their labels? Fits, draws and scores all methods in one run.

``python -m benchmarks.generation --data kang --seeds 0 1 2 --steps 16 32``

To add another program: export the training cells with ``--export FOLDER``, let it write
``OTHER/<data>-seed<seed>.h5ad`` with counts in ``.X`` and the label of each cell in ``.obs["label"]``, at least as many
of each label as ``FOLDER/<data>-seed<seed>-labels.csv`` asks for, and run with ``--external NAME=OTHER``; with
``--add`` the default is not trained, unless ``--default`` is given, and only rows of the other program, negative
controls and the linear Gaussian copula (not with ``--no-controls``), scVI for ``--scvi-seeds`` and ``--processes`` are
added to the results.
"""

import argparse
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import scvi

from benchmarks._data import DATASETS, LABEL, Split, available, load_split
from benchmarks._external import add_external_argument
from benchmarks._generation_table import generation_table, likelihood_table
from benchmarks._models import (
    PROCESSES,
    Method,
    copies,
    external_methods,
    fit_scdiffgen,
    linear_methods,
    null_methods,
    real_cells,
    scdiffgen_methods,
)
from benchmarks._record import benchmark_parser, environment, output_folder, read_result, start, write_result
from benchmarks._scores import METRICS, Scorer, likelihoods
from benchmarks._scvi import fit_scvi, scvi_methods


@dataclass(frozen=True)
class Settings:
    """What is run."""

    seeds: Sequence[int] = (0, 1, 2)  # seeds of split, training and drawing
    steps: Sequence[int] = (16, 32)  # numbers of steps to generate in
    threads: int = 2  # threads of everything
    max_epochs: int | None = None  # epochs of every model; None is the default of each
    n_trees: int = 200  # trees of the forests
    external: Mapping[str, Path] = field(default_factory=dict)  # folders of cells of other programs, by name
    processes: Sequence[str] = ()  # other processes of ours
    scvi_seeds: Sequence[int] | None = None  # seeds for which scVI is trained, which takes longest; None for all
    default: bool = False  # whether the default is trained where rows are added
    controls: bool = True  # whether methods without a network are scored where rows are added


def main(arguments: Sequence[str] | None = None) -> None:
    options = parse(arguments)
    start(options.threads)
    if options.export is not None:
        export(options.data, options.seeds, options.export)
        return
    settings = Settings(
        options.seeds,
        options.steps,
        options.threads,
        external=dict(options.external),
        processes=options.processes,
        scvi_seeds=options.scvi_seeds,
        default=options.default,
        controls=not options.no_controls,
    )
    if options.quick:
        settings = replace(settings, seeds=options.seeds[:1], steps=options.steps[:1], max_epochs=2, n_trees=20)
    for name in options.data:
        (add if options.add else run)(name, settings, output_folder(options.output, quick=options.quick))


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = benchmark_parser("benchmarks.generation", __doc__)
    parser.add_argument(
        "--data", nargs="+", choices=list(DATASETS), default=available(fewer=True), help="default: what is there"
    )
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1, 2])
    parser.add_argument("--steps", nargs="+", type=int, default=[16, 32], help="numbers of steps to generate in")
    add_external_argument(parser)
    parser.add_argument("--add", action="store_true", help="add rows without our model to what is there")
    parser.add_argument("--default", action="store_true", help="with --add, train the default, too")
    parser.add_argument("--no-controls", action="store_true", help="with --add, keep rows of controls and the copula")
    parser.add_argument("--processes", nargs="*", choices=list(PROCESSES), default=[*PROCESSES], help="all")
    parser.add_argument("--scvi-seeds", nargs="*", type=int, help="seeds for which scVI is trained; default: all")
    parser.add_argument("--export", type=Path, metavar="FOLDER", help="write the training cells, and run nothing")
    return parser.parse_args(arguments)


def run(name: str, settings: Settings, folder: Path) -> dict[str, Any]:
    """Measure one data set; results are written after every seed."""
    result: dict[str, Any] = {
        "benchmark": "generation",
        "data": {"name": name, "description": DATASETS[name].description},
        "settings": {"steps": list(settings.steps), "max_epochs": settings.max_epochs, "n_trees": settings.n_trees},
        "metrics": {key: asdict(metric) for key, metric in METRICS.items()},
        "environment": environment(settings.threads, []),
        "rows": [],
        "training": [],
        "likelihood": [],
    }
    for seed in settings.seeds:
        split = load_split(name, seed)
        result["data"] |= shape(split)
        for kind, record in measure(split, settings):
            result[kind].append({"seed": seed, **record})
        result["environment"]["seeds"].append(seed)
        write_result(folder, f"generation-{name}", result)
    print(f"\n## {name}\n\n{generation_table(result)}\n\n{likelihood_table(result)}")
    return result


def add(name: str, settings: Settings, folder: Path) -> dict[str, Any]:
    """Add rows of all but the default process to the results of a run, in place of older ones."""
    result = read_result(folder / f"generation-{name}.json")
    result["metrics"] = {key: asdict(metric) for key, metric in METRICS.items()}
    result["added"] = [*result.get("added", []), environment(settings.threads, settings.seeds)]
    for seed in settings.seeds:
        split = load_split(name, seed)
        scorer = Scorer.fit(split, n_trees=result["settings"]["n_trees"], n_jobs=settings.threads)
        new = [*scored(without_model(split, settings), split, scorer)] if settings.controls else []
        new += default_records(split, settings, scorer) if settings.default else []
        new += process_records(split, settings, scorer)
        if seed in (settings.scvi_seeds or ()):
            new += scvi_records(split, settings, scorer)
        for kind, record in new:
            rows = {(row["seed"], row.get("method")): row for row in result[kind]}
            rows[seed, record.get("method")] = {"seed": seed, **record}
            result[kind] = [*rows.values()]
        write_result(folder, f"generation-{name}", result)
    print(f"\n## {name}\n\n{generation_table(result)}")
    return result


def measure(split: Split, settings: Settings) -> Iterator[tuple[str, dict[str, Any]]]:
    """Fit, draw and score every method on one split: records with the table that they belong to."""
    scorer = Scorer.fit(split, n_trees=settings.n_trees, n_jobs=settings.threads)
    yield from scored(without_model(split, settings), split, scorer)
    yield from default_records(split, settings, scorer)
    yield from process_records(split, settings, scorer)
    if settings.scvi_seeds is None or split.seed in settings.scvi_seeds:
        yield from scvi_records(split, settings, scorer)


def without_model(split: Split, settings: Settings) -> list[Method]:
    """Real cells, controls, the linear simulator, and cells of other programs."""
    cells = [real_cells(split), copies(split), *null_methods(split), *linear_methods(split)]
    return [*cells, *external_methods(settings.external, split)]


def default_records(split: Split, settings: Settings, scorer: Scorer) -> Iterator[tuple[str, dict[str, Any]]]:
    """Train with the defaults, draw and score."""
    scvi.settings.seed = split.seed
    ours, seconds = timed(lambda: fit_scdiffgen(split, max_epochs=settings.max_epochs))
    yield "training", {"method": "scdiffgen", "seconds": seconds, "epochs": ours.trainer.current_epoch}
    yield from scored(scdiffgen_methods(ours, list(settings.steps)), split, scorer)
    yield "likelihood", likelihoods(ours, split, seed=split.seed)


def process_records(split: Split, settings: Settings, scorer: Scorer) -> Iterator[tuple[str, dict[str, Any]]]:
    """Train other processes, draw and score."""
    for name in settings.processes:
        process, steps = PROCESSES[name]
        scvi.settings.seed = split.seed
        model, seconds = timed(
            lambda process=process: fit_scdiffgen(split, max_epochs=settings.max_epochs, process=process)
        )
        yield "training", {"method": name, "seconds": seconds, "epochs": model.trainer.current_epoch}
        yield from scored(scdiffgen_methods(model, steps, f"scdiffgen, {name}"), split, scorer)


def scvi_records(split: Split, settings: Settings, scorer: Scorer) -> Iterator[tuple[str, dict[str, Any]]]:
    """Train scVI, draw by each of its priors and score."""
    scvi.settings.seed = split.seed
    model, seconds = timed(lambda: fit_scvi(split, max_epochs=settings.max_epochs))
    yield "training", {"method": "scVI", "seconds": seconds, "epochs": model.trainer.current_epoch}
    yield from scored(scvi_methods(model), split, scorer)


def scored(methods: Sequence[Method], split: Split, scorer: Scorer) -> Iterator[tuple[str, dict[str, Any]]]:
    """Draw cells by each method and score them: rows of the table."""
    for method in methods:
        counts, seconds = timed(lambda method=method: method.sample(split.labels, split.seed))
        print(f"{split.name}, seed {split.seed}: {method.name}, {seconds:.1f} s", flush=True)
        yield "rows", {"method": method.name, "kind": method.kind, "seconds": seconds, "scores": scorer.score(counts)}


def shape(split: Split) -> dict[str, int]:
    parts = {"n_train": split.train, "n_held_out": split.held_out, "n_other": split.other}
    sizes = {key: part.n_obs for key, part in parts.items()}
    return sizes | {"n_genes": split.train.n_vars, "n_labels": len(np.unique(split.labels))}


def export(names: Sequence[str], seeds: Sequence[int], folder: Path) -> None:
    """Write training cells, and how many cells of each label are wanted, for other programs."""
    folder.mkdir(parents=True, exist_ok=True)
    for name in names:
        for seed in seeds:
            split = load_split(name, seed)
            split.train.write_h5ad(folder / f"{name}-seed{seed}-train.h5ad")
            wanted = split.held_out.obs[LABEL].value_counts().rename("n_cells")
            wanted.to_csv(folder / f"{name}-seed{seed}-labels.csv")


def timed(work: Any) -> tuple[Any, float]:
    """Do some work: its result and the seconds that it took."""
    begin = time.perf_counter()
    result = work()
    return result, time.perf_counter() - begin


if __name__ == "__main__":
    main()
