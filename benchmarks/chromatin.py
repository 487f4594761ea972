"""Are RNA and open chromatin of a cell generated well, each and together, and one from the other? Beside MULTIVI.

``python -m benchmarks.chromatin --seeds 0``

Both models are trained on the same cells, with labels; some have RNA alone, others peaks alone, and lack what is
imputed. Generated cells are compared with cells that no model has seen.
"""

import inspect
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import scvi

from benchmarks._chromatin_data import ATAC, CHROMATIN_DATA, OTHER, ChromatinSplit, split_chromatin
from benchmarks._chromatin_methods import fit_multivi, fit_scdiffgen, imputers, multivi_draws, real_cells
from benchmarks._chromatin_scores import METRICS, ChromatinScorer, imputation_scores, imputed_table
from benchmarks._generation_table import generation_table
from benchmarks._multimodal_data import RNA
from benchmarks._multimodal_methods import scdiffgen_draws
from benchmarks._record import benchmark_parser, environment, output_folder, start, write_result
from benchmarks.generation import timed
from benchmarks.multimodal import generations
from scdiffgen.model._training_runs import default_max_epochs


@dataclass(frozen=True)
class Settings:
    """What is run: seeds, steps to generate in, threads, epochs of ours and MULTIVI (``None``: defaults), trees."""

    seeds: Sequence[int] = (0,)
    steps: int = 32
    threads: int = 2
    max_epochs: tuple[int | None, int | None] = (None, None)
    n_trees: int = 200


def main(arguments: Sequence[str] | None = None) -> None:
    parser = benchmark_parser("benchmarks.chromatin", __doc__)
    parser.add_argument("--seeds", nargs="+", type=int, default=list(Settings.seeds))
    parser.add_argument("--multivi-epochs", type=int, help="epochs of MULTIVI (its default; ours is trained as it is)")
    options = parser.parse_args(arguments)
    start(options.threads)
    settings = Settings(options.seeds, threads=options.threads, max_epochs=(None, options.multivi_epochs))
    if options.quick:
        settings = Settings(options.seeds[:1], 4, options.threads, (2, 2), n_trees=20)
    run("simulated" if options.quick else "snareseq", settings, output_folder(options.output, quick=options.quick))


def run(name: str, settings: Settings, folder: Path) -> dict[str, Any]:
    """Measure one data set; results are written after every part."""
    description, load = CHROMATIN_DATA[name]
    result: dict[str, Any] = {
        "benchmark": "chromatin",
        "data": {"name": name, "description": description},
        "settings": {"steps": settings.steps, "max_epochs": settings.max_epochs, "n_trees": settings.n_trees},
        "metrics": {key: asdict(metric) for key, metric in METRICS.items()},
        "environment": environment(settings.threads, settings.seeds),
        "training": [],
        "imputation": [],
        "rows": [],
    }
    for seed in settings.seeds:
        split = split_chromatin(load(), name, seed)
        result["data"] |= shape(split)
        for kind, record in measure(split, settings):
            print(f"{name}, seed {seed}: {record}", flush=True)
            result[kind].append({"seed": seed, **record})
            write_result(folder, f"chromatin-{name}", result)
    print(f"\n## {name}\n\n{generation_table(result)}\n\n{imputed_table(result)}")
    return result


def measure(split: ChromatinSplit, settings: Settings) -> Iterator[tuple[str, dict[str, Any]]]:
    """Fit, impute, draw and score on one split: records with the table that they belong to."""
    of_ours, of_other = settings.max_epochs
    scvi.settings.seed = split.seed
    ours, seconds = timed(lambda: fit_scdiffgen(split, of_ours))
    yield "training", {"method": "scdiffgen", "seconds": seconds, **epochs_of(ours)}
    scvi.settings.seed = split.seed
    other, seconds = timed(lambda: fit_multivi(split, of_other))
    yield "training", {"method": "MULTIVI", "seconds": seconds, **epochs_of(other)}
    for target in (ATAC, RNA):
        for name, impute in imputers(split, ours, other, target).items():
            expected, seconds = timed(impute)
            scores = imputation_scores(split, target, expected)
            yield "imputation", {"method": name, "target": target, "seconds": seconds, "scores": scores}
    scorer = ChromatinScorer.fit(split, n_trees=settings.n_trees, n_jobs=settings.threads)
    drawn = scdiffgen_draws(ours, settings.steps, split.conditions)
    yield from generations(split, scorer, [*real_cells(split), drawn, *multivi_draws(other, split)])


def epochs_of(model: Any) -> dict[str, int]:
    """Epochs that a model was trained for, and those of its default."""
    defaults = inspect.signature(model.train).parameters
    default = defaults["max_epochs"].default
    if default is None:
        default = default_max_epochs(len(model.train_indices), defaults["batch_size"].default)
    return {"epochs": model.trainer.current_epoch, "default_epochs": default}


def shape(split: ChromatinSplit) -> dict[str, int]:
    """Numbers of cells and columns."""
    parts = {"n_train": split.train, "n_held_out": split.held_out, "n_other": split.other}
    parts |= {f"n_without_{key}": split.without[key] for key in OTHER}
    sizes = {key: part.n_obs for key, part in parts.items()}
    return sizes | {"n_genes": split.train[RNA].n_vars, "n_peaks": split.train[ATAC].n_vars}


if __name__ == "__main__":
    main()
