"""What do hidden units of the read-out contribute, and how long should it be trained? On parts of the training cells.

``python -m benchmarks.studies.readout_units --data paul15 kang --seeds 0 1 --epochs 40 80``

Tokens contribute in proportion alone (``0 units``), or through so many units of each, or by a perceptron on all tokens
together. Of the training cells of a benchmark alone, a quarter of each label is held out, at most 1,500 cells in all.
Without ``--epochs`` trainings have their default length. Runs are lines of a file; the table shows the last of each.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from benchmarks._data import available, load_split
from benchmarks._variants import (
    DIGITS,
    Run,
    fit_variant,
    inner_split,
    study_options,
    study_runs,
    study_table,
    variant_scores,
)
from scdiffgen.model import NetworkOptions, ReadoutOptions

VARIANTS = {
    **{f"{n} units": NetworkOptions(readout_units=n) for n in (0, 8, 32)},
    "perceptron": NetworkOptions(readout=ReadoutOptions(kind="mlp")),
}


def table(runs: Sequence[Run]) -> str:
    """A row a form and length."""
    return study_table(runs, DIGITS)


def main(arguments: Sequence[str] | None = None) -> None:
    about = "benchmarks.studies.readout_units", __doc__.splitlines()[0]
    parser = study_options(*about, available(), available()[:1], [0, 1, 2], [*VARIANTS])
    parser.add_argument("--epochs", nargs="+", type=int, default=[None], help="lengths of training (the default)")
    options = parser.parse_args(arguments)

    def measured(name: str, seed: int) -> Iterator[tuple[str, Run]]:
        split = inner_split(load_split(name, seed))
        for n_epochs in [2] if options.quick else options.epochs:
            for variant in options.variants:
                model, seconds = fit_variant(split, {"network": VARIANTS[variant]}, n_epochs)
                length = f"{model.trainer.max_epochs}" + ("" if n_epochs else ", default")
                yield variant, {"epochs": length, "scores": variant_scores(model, split) | {"seconds": seconds}}

    print(table(study_runs(options, "study-readout-units.jsonl", measured)))


if __name__ == "__main__":
    main()
