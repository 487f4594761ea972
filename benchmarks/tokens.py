"""How readable are the tokens, and what does it cost? Read-outs compared with each other and with other factor models.

``python -m benchmarks.tokens --data kang pbmc3k paul15 --seeds 0 1 2 3 4``
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd
import scvi

from benchmarks._data import DATASETS, LABEL, Split, available, load_split
from benchmarks._record import add_common_arguments, environment, output_folder, start, write_result
from benchmarks._token_methods import VARIANTS, baselines, fit_variant
from benchmarks._token_scores import readability, stability
from scdiffgen.metrics import evaluate
from scdiffgen.model import TokenDiffusion

QUALITY = ("mmd", "label_accuracy", "c2st_auc_forest_pcs")
COLUMNS = {
    "nll": "nats per molecule",
    "mmd": "MMD² x 1e3",
    "c2st_auc_forest_pcs": "classifier AUC",
    "label_accuracy": "label accuracy",
    "enriched": "enriched",
    "enriched_null": "enriched, permuted",
    "sparsity": "sparsity",
    "redundancy": "redundancy",
    "stability": "stability",
}


@dataclass(frozen=True)
class Settings:
    """What is run.

    Parameters
    ----------
    seeds
        Seeds of training; the split is that of the first, so that runs can be compared.
    variants
        Names of read-outs to train.
    n_programs
        Number of programs of the other methods.
    n_permutations
        Permutations of the genes behind the null of enrichment.
    max_epochs
        Epochs of every model; ``None`` is the default of each.
    """

    seeds: Sequence[int] = (0, 1, 2, 3, 4)
    variants: Sequence[str] = tuple(VARIANTS)
    n_programs: int = 8
    n_permutations: int = 20
    max_epochs: int | None = None


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.tokens", description=__doc__.splitlines()[0])
    known = [name for name in available() if name != "pbmc68k"] or ["pbmc68k"]
    parser.add_argument("--data", nargs="+", choices=list(DATASETS), default=known, help="default: what is there")
    parser.add_argument("--seeds", nargs="+", type=int, default=list(Settings.seeds))
    parser.add_argument("--variants", nargs="+", choices=list(VARIANTS), default=list(VARIANTS))
    add_common_arguments(parser)
    options = parser.parse_args(arguments)
    start(options.threads)
    settings = Settings(options.seeds, options.variants)
    if options.quick:
        settings = Settings(options.seeds[:2], ("default", "nested"), n_programs=4, n_permutations=1, max_epochs=1)
    for name in ["pbmc68k"] if options.quick else options.data:
        run(name, settings, options.threads, output_folder(options.output, quick=options.quick))


def run(name: str, settings: Settings, threads: int, folder: Path) -> dict[str, Any]:
    """Measure one data set; results are written after every method."""
    result: dict[str, Any] = {
        "benchmark": "tokens",
        "data": {"name": name, "description": DATASETS[name].description},
        "settings": {"n_permutations": settings.n_permutations, "max_epochs": settings.max_epochs},
        "environment": environment(threads, settings.seeds),
        "rows": [],
    }
    split = load_split(name, settings.seeds[0])
    for row in measure(split, settings):
        result["rows"].append(row)
        write_result(folder, f"tokens-{name}", result)
        print(f"{name}: {row['method']} done", flush=True)
    print(f"\n## {name}\n\n{table(result)}")
    return result


def measure(split: Split, settings: Settings) -> Iterator[dict[str, Any]]:
    """A row for each method: the mean of every score over the seeds, and those of each seed."""
    for variant in settings.variants:
        loadings, scores = [], []
        for seed in settings.seeds:
            scvi.settings.seed = seed
            model = fit_variant(split, variant, settings.max_epochs)
            loadings.append(model.get_token_loadings())
            scores.append(quality(model, split, seed) | readability(loadings[-1], settings.n_permutations, seed))
        yield _row(variant, "ours", loadings, scores)
    for name, fit in baselines().items():
        loadings, scores = [], []
        for seed in settings.seeds:
            scvi.settings.seed = seed
            of_seed = Split(split.name, seed, split.train, split.held_out, split.other)
            loadings.append(fit(of_seed, settings.n_programs, settings.max_epochs))
            scores.append(readability(loadings[-1], settings.n_permutations, seed))
        yield _row(name, "other", loadings, scores)


def quality(model: TokenDiffusion, split: Split, seed: int) -> dict[str, float]:
    """How well held-out cells are predicted, and generated from their labels."""
    asked = pd.DataFrame({LABEL: split.labels})
    generated = model.generate(asked, n_steps=16, seed=seed, silent=True)
    scores = evaluate(
        split.held_out,
        generated,
        split.train,
        groupby=LABEL,
        other_real=split.other,
        metrics=QUALITY,
        sources=["generated"],
        n_bootstrap=0,
        seed=seed,
    ).loc[("overall", "generated")]
    nll = model.get_nll(split.held_out.copy(), seed=seed, silent=True)["nll"].sum() / split.held_out.X.sum()
    return {"nll": float(nll), **{metric: float(scores[metric]) for metric in QUALITY}}


def _row(method: str, kind: str, loadings: list[pd.DataFrame], scores: list[dict[str, float]]) -> dict[str, Any]:
    mean = pd.DataFrame(scores).mean().to_dict()
    return {"method": method, "kind": kind, "scores": mean | {"stability": stability(loadings)}, "seeds": scores}


def table(result: dict[str, Any]) -> str:
    """Markdown, a row a method."""
    lines = ["| read-out | " + " | ".join(COLUMNS.values()) + " |", "|" + "---|" * (len(COLUMNS) + 1)]
    for row in result["rows"]:
        values = [row["scores"].get(column, float("nan")) * (1e3 if column == "mmd" else 1) for column in COLUMNS]
        lines.append(f"| {row['method']} | " + " | ".join("" if v != v else f"{v:.3f}" for v in values) + " |")
    return "\n".join(lines)


if __name__ == "__main__":
    main()
