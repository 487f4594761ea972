"""How readable are the tokens, and what does it cost? Read-outs compared with each other and with other factor models.

``python -m benchmarks.tokens --data kang pbmc3k paul15 --seeds 0 1 2 3 4``

Loadings are those that users get by default (by regression on expression); of the default model also what its read-out
does.
Every training is kept under ``parts/`` beside the results and not repeated, so a run may be stopped and started again,
split over several commands, or completed in another environment (DRVI needs scvi-tools 1.5). Cheaper, at the price of
models that are trained less than by default: ``--max-epochs 40 --baseline-epochs 100 --permutations 5``.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd
import scvi

from benchmarks._data import DATASETS, LABEL, Split, available, load_split
from benchmarks._parts import TokenPart, read_parts, write_part
from benchmarks._record import benchmark_parser, environment, output_folder, start, write_result
from benchmarks._token_methods import BASELINES, VARIANTS, available_baselines, fit_variant
from benchmarks._token_result import BY_READOUT, DEFAULT, QUALITY, gather, token_table
from benchmarks._token_scores import readability
from scdiffgen.metrics import evaluate
from scdiffgen.model import TokenDiffusion


@dataclass(frozen=True)
class Settings:
    """What is run."""

    # seeds of training; the split is that of the first, so that runs can be compared
    seeds: Sequence[int] = (0, 1, 2, 3, 4)
    variants: Sequence[str] = tuple(VARIANTS)  # names of read-outs to train, and of other methods
    baselines: Sequence[str] = tuple(BASELINES)
    n_programs: int = 8  # number of programs of the other methods
    n_permutations: int = 20  # permutations of the genes behind the null of enrichment
    max_epochs: int | None = None  # epochs of our models and of other networks; None is the default of each
    baseline_epochs: int | None = None

    def of(self, method: str) -> dict[str, Any]:
        """What the scores of a method depend on."""
        common = {"split": self.seeds[0], "n_permutations": self.n_permutations}
        if method in (*VARIANTS, BY_READOUT):
            return {**common, "max_epochs": self.max_epochs}
        return {**common, "max_epochs": self.baseline_epochs, "n_programs": self.n_programs}


def main(arguments: Sequence[str] | None = None) -> None:
    parser = benchmark_parser("benchmarks.tokens", __doc__)
    known = [name for name in available() if name != "pbmc68k"] or ["pbmc68k"]
    parser.add_argument("--data", nargs="+", choices=list(DATASETS), default=known, help="default: what is there")
    parser.add_argument("--seeds", nargs="+", type=int, default=list(Settings.seeds))
    parser.add_argument("--variants", nargs="*", choices=list(VARIANTS), default=list(VARIANTS))
    parser.add_argument("--baselines", nargs="*", choices=list(BASELINES), default=available_baselines())
    parser.add_argument("--max-epochs", type=int, help="epochs of our models (their default)")
    parser.add_argument("--baseline-epochs", type=int, help="epochs of other networks (their default)")
    parser.add_argument("--permutations", type=int, default=Settings.n_permutations, help="behind the null (20)")
    options = parser.parse_args(arguments)
    start(options.threads)
    settings = Settings(
        seeds=options.seeds,
        variants=options.variants,
        baselines=options.baselines,
        n_permutations=options.permutations,
        max_epochs=options.max_epochs,
        baseline_epochs=options.baseline_epochs,
    )
    if options.quick:
        settings = Settings(options.seeds[:2], ("default", "no units"), options.baselines, 4, 1, 1, 1)
    folder = output_folder(options.output, quick=options.quick)
    for name in ["pbmc68k"] if options.quick else options.data:
        result = run(name, settings, options.threads, folder)
        print(f"\n## {name}\n\n{token_table(result)}", flush=True)


def run(name: str, settings: Settings, threads: int, folder: Path) -> dict[str, Any]:
    """Measure one data set, seed by seed; what is measured already is left, and results are written after each part."""
    split = load_split(name, settings.seeds[0])
    parts_folder = folder / "parts" / f"tokens-{name}"
    made_with = environment(threads, settings.seeds)
    parts = [part for part in read_parts(TokenPart, parts_folder) if part.settings == settings.of(part.method)]
    done = {(part.method, part.seed) for part in parts}
    for seed in settings.seeds:
        for method in (*settings.variants, *settings.baselines):
            if (method, seed) not in done:
                measured = measure(split, method, seed, settings, made_with)
                for part in measured:
                    write_part(parts_folder, part)
                parts += measured
                write_result(folder, f"tokens-{name}", gather(split, parts))
                print(f"{name}: {method}, seed {seed}", flush=True)
    result = gather(split, parts)
    write_result(folder, f"tokens-{name}", result)
    return result


def measure(split: Split, method: str, seed: int, settings: Settings, made_with: Mapping[str, Any]) -> list[TokenPart]:
    """Train and score one method with one seed; of our default also by the weights of its read-out."""
    scvi.settings.seed = seed

    def part(name: str, kind: str, loadings: pd.DataFrame, scores: Mapping[str, float]) -> TokenPart:
        found = {**scores, **readability(loadings, settings.n_permutations, seed)}
        return TokenPart(name, kind, seed, settings.of(name), found, made_with, loadings)

    if method not in VARIANTS:
        found = BASELINES[method](split, seed, settings.n_programs, settings.baseline_epochs)
        return [part(method, "other", found, {})]
    model = fit_variant(split, method, settings.max_epochs)
    parts = [part(method, "ours", model.get_token_loadings(), quality(model, split, seed))]
    if method == DEFAULT:
        parts.append(part(BY_READOUT, "ours", model.get_token_loadings(method="readout"), {}))
    return parts


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
        silent=True,
    ).frame.loc[("overall", "generated")]
    nll = model.get_nll_bound(split.held_out.copy(), seed=seed, silent=True)["nll"].sum() / split.held_out.X.sum()
    return {"nll": float(nll), **{metric: float(scores[metric]) for metric in QUALITY}}


if __name__ == "__main__":
    main()
