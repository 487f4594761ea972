"""Are RNA and protein of a cell generated well, each and together, and protein from RNA? Beside totalVI, in one run.

``python -m benchmarks.multimodal --data pbmc10k --seeds 0 1 2``

Both models are trained on the same cells, of which some lack protein, which is to be imputed. Generated cells are
compared with cells that no model has seen.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import scvi
from numpy.typing import NDArray

from benchmarks._generation_table import generation_table
from benchmarks._multimodal_data import CITE_DATA, PROTEIN, RNA, CiteSplit, split_cite
from benchmarks._multimodal_methods import (
    JointMethod,
    fit_scdiffgen,
    fit_totalvi,
    mean_imputes,
    real_cells,
    ridge_imputes,
    scdiffgen_draws,
    scdiffgen_draws_protein,
    scdiffgen_imputes,
    totalvi_draws,
    totalvi_imputes,
)
from benchmarks._multimodal_scores import METRICS, JointScorer, interval_coverage, pearson_by_protein
from benchmarks._record import benchmark_parser, environment, output_folder, read_result, start, write_result
from benchmarks._tables import Column, score_table
from benchmarks.generation import timed
from scdiffgen.model import TokenDiffusion

ENVIRONMENT_OF = {"imputation": "imputation_environment", "rows": "generation_environment"}


@dataclass(frozen=True)
class Settings:
    """What is run."""

    seeds: Sequence[int] = (0, 1, 2)  # seeds of split, training and drawing
    steps: int = 32  # steps to generate in
    threads: int = 2  # threads of everything
    max_epochs: int | None = None  # epochs of every model; None is the default of each
    n_trees: int = 200  # trees of the forests


def main(arguments: Sequence[str] | None = None) -> None:
    parser = benchmark_parser("benchmarks.multimodal", __doc__)
    parser.add_argument("--data", nargs="+", choices=list(CITE_DATA), default=["pbmc10k"])
    parser.add_argument("--seeds", nargs="+", type=int, default=list(Settings.seeds))
    parser.add_argument("--imputation", type=Path, help="impute alone, with the models that this folder keeps")
    parser.add_argument("--generation", type=Path, help="generate with our model alone, likewise")
    options = parser.parse_args(arguments)
    start(options.threads)
    settings = Settings(options.seeds, threads=options.threads)
    if options.quick:
        settings = Settings(options.seeds[:1], 4, options.threads, max_epochs=2, n_trees=20)
    for name in ["simulated"] if options.quick else options.data:
        folder = output_folder(options.output, quick=options.quick)
        if options.imputation or options.generation:
            run_ours(name, settings, folder, {"imputation": options.imputation, "rows": options.generation})
        else:
            run(name, settings, folder)


def run(name: str, settings: Settings, folder: Path) -> dict[str, Any]:
    """Measure one data set; results are written after every seed."""
    result: dict[str, Any] = {
        "benchmark": "multimodal",
        "data": {"name": name, "description": CITE_DATA[name][0]},
        "settings": {"steps": settings.steps, "max_epochs": settings.max_epochs, "n_trees": settings.n_trees},
        "metrics": {key: asdict(metric) for key, metric in METRICS.items()},
        "environment": environment(settings.threads, settings.seeds),
        "rows": [],
        "imputation": [],
        "training": [],
    }
    for seed in settings.seeds:
        split = split_cite(CITE_DATA[name][1](), name, seed)
        result["data"] |= shape(split)
        for kind, record in measure(split, settings):
            result[kind].append({"seed": seed, **record})
        write_result(folder, f"multimodal-{name}", result)
    print(f"\n## {name}\n\n{generation_table(result)}\n\n{imputation_table(result)}")
    return result


def measure(split: CiteSplit, settings: Settings) -> Iterator[tuple[str, dict[str, Any]]]:
    """Fit, draw, impute and score on one split: records with the table that they belong to."""
    scorer = JointScorer.fit(split, n_trees=settings.n_trees, n_jobs=settings.threads)
    scvi.settings.seed = split.seed
    ours, seconds = timed(lambda: fit_scdiffgen(split, settings.max_epochs))
    yield "training", {"method": "scdiffgen", "seconds": seconds, "epochs": ours.trainer.current_epoch}
    scvi.settings.seed = split.seed
    other, seconds = timed(lambda: fit_totalvi(split, settings.max_epochs))
    yield "training", {"method": "totalVI", "seconds": seconds, "epochs": other.trainer.current_epoch}
    methods = [*real_cells(split), scdiffgen_draws(ours, settings.steps), totalvi_draws(other)]
    yield from generations(split, scorer, methods)
    yield from imputations(split, ours, {"totalVI": lambda: totalvi_imputes(other, split)})


def generations(split: Any, scorer: Any, methods: Sequence[JointMethod]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Draw as many cells as were held out, and score them."""
    for method in methods:
        counts, seconds = timed(lambda method=method: method.sample(split.held_out.n_obs, split.seed))
        print(f"{split.name}, seed {split.seed}: {method.name}, {seconds:.1f} s", flush=True)
        scores = scorer.score(counts)
        yield "rows", {"method": method.name, "kind": method.kind, "seconds": seconds, "scores": scores}


def imputations(
    split: CiteSplit, ours: TokenDiffusion, others: dict[str, Callable[[], NDArray[np.float64]]]
) -> Iterator[tuple[str, dict[str, Any]]]:
    """Impute protein by our model, by others, and by baselines; and score it."""
    imputed: dict[str, Callable[[], NDArray[np.float64]]] = {
        "scdiffgen": lambda: scdiffgen_imputes(ours, split, split.seed),
        **others,
        "kernel ridge on components of RNA": lambda: ridge_imputes(split, kernel=True),
        "ridge on components of RNA": lambda: ridge_imputes(split),
        "mean protein, depth of RNA": lambda: mean_imputes(split),
    }
    for name, impute in imputed.items():
        expected, seconds = timed(impute)
        scores: dict[str, Any] = {"pearson": pearson_by_protein(split.imputed, expected)}
        if name == "scdiffgen":
            draws = scdiffgen_draws_protein(ours, split, split.seed)
            scores["interval_coverage"] = interval_coverage(split.imputed, draws)
        yield "imputation", {"method": name, "seconds": seconds, **scores}


def run_ours(name: str, settings: Settings, folder: Path, models: Mapping[str, Path | None]) -> dict[str, Any]:
    """Impute (``imputation``) or generate (``rows``) with models that were kept, or are trained and kept.

    Beside what else an earlier run has measured.
    """
    result = read_result(folder / f"multimodal-{name}.json")
    for part, of_part in models.items():
        if of_part is None:
            continue
        result[ENVIRONMENT_OF[part]] = environment(settings.threads, settings.seeds)
        for seed in settings.seeds:
            split, path = split_cite(CITE_DATA[name][1](), name, seed), of_part / f"{name}-{seed}"
            if not path.exists():
                scvi.settings.seed = seed
                fit_scdiffgen(split, settings.max_epochs).save(path)
            ours = TokenDiffusion.load(path, False)
            if part == "rows":
                scorer = JointScorer.fit(split, n_trees=settings.n_trees, n_jobs=settings.threads)
                measured = generations(split, scorer, [scdiffgen_draws(ours, settings.steps)])
            else:
                measured = imputations(split, ours, {})
            new = {record["method"]: {"seed": seed, **record} for _, record in measured}
            result[part] = [
                *(new.pop(row["method"], row) if row["seed"] == seed else row for row in result[part]),
                *new.values(),
            ]
            write_result(folder, f"multimodal-{name}", result)
    print(f"\n## {name}\n\n{generation_table(result)}\n\n{imputation_table(result)}")
    return result


def imputation_table(result: Mapping[str, Any]) -> str:
    """Pearson correlation of measured and expected counts, a row a method; and what intervals of draws hold."""
    columns, rows = {"mean": Column("mean", 1.0)}, {}
    for row in result["imputation"]:
        coverage = {} if "interval_coverage" not in row else {"coverage": row["interval_coverage"]}
        columns |= {protein: Column(protein, digits=2) for protein in row["pearson"]}
        for key, value in ({"mean": float(np.mean([*row["pearson"].values()]))} | row["pearson"] | coverage).items():
            rows.setdefault(row["method"], {}).setdefault(key, []).append(value)
    columns["coverage"] = Column("80 % intervals hold")
    return score_table("Pearson of imputed protein", columns, rows, "scdiffgen")


def shape(split: CiteSplit) -> dict[str, int]:
    parts = {"n_train": split.train, "n_imputed": split.imputed, "n_held_out": split.held_out, "n_other": split.other}
    sizes = {key: part.n_obs for key, part in parts.items()}
    return sizes | {"n_genes": split.train[RNA].n_vars, "n_proteins": split.train[PROTEIN].n_vars}


if __name__ == "__main__":
    main()
