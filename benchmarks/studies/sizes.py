"""How large a network do so many cells need? Sizes compared on the training cells of a benchmark, cut to fewer.

``python -m benchmarks.studies.sizes --data kang --cells 1000 2500 5000 10000 --seeds 0``

Every size is trained as long as it is by default, in the same number of steps, or for ``--max-epochs``. Scores are on
the *other real cells* of the benchmark, which it neither trains on nor reports. Runs are lines of a file; the table
shows the last of each.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from benchmarks._data import LABEL, Split, available, load_split
from benchmarks._variants import DIGITS, Run, fit_variant, study_options, study_runs, study_table, variant_scores
from scdiffgen.model import NetworkOptions

SIZES: dict[str, dict[str, Any]] = {
    "8 x 64, 2 layers": {},
    "16 x 64, 3 layers": {"n_tokens": 16, "n_layers": 3},
    "16 x 128, 3 layers": {"n_tokens": 16, "token_dim": 128, "n_layers": 3, "network": NetworkOptions(n_heads=4)},
    **{f"{n} x 64, 2 layers": {"n_tokens": n} for n in (32, 64, 128)},
    "base, 64 x 256, 6 layers": {"preset": "base"},
}


def fewer_cells(split: Split, n_cells: int) -> Split:
    """The same with so many training cells, drawn at random, and the other real cells to be scored on."""
    rows = np.random.default_rng(split.seed).permutation(split.train.n_obs)[:n_cells]
    train = split.train[np.sort(rows)].copy()
    known = set(train.obs[LABEL])
    scored = split.other[split.other.obs[LABEL].isin(known)].copy()
    return replace(split, train=train, held_out=scored)


def measure(split: Split, size: str, max_epochs: int | None) -> Run:
    """Train one size and score it."""
    model, seconds = fit_variant(split, SIZES[size], max_epochs)
    n_weights = sum(p.numel() for p in model.module.denoiser.parameters())
    scores = {**variant_scores(model, split), "seconds": seconds, "weights": n_weights}
    return {"cells": split.train.n_obs, "epochs": model.trainer.max_epochs, "scores": scores}


def table(runs: Sequence[Run]) -> str:
    """A row a size and number of cells."""
    return study_table(runs, {**DIGITS, "weights": 0})


def main(arguments: Sequence[str] | None = None) -> None:
    about = "benchmarks.studies.sizes", __doc__.splitlines()[0]
    parser = study_options(*about, available(), available()[:1], [0, 1, 2], [*SIZES])
    parser.add_argument("--cells", nargs="+", type=int, default=[1000, 2500, 5000, 10000])
    parser.add_argument("--max-epochs", type=int, help="epochs of all sizes (as many as by default)")
    options = parser.parse_args(arguments)
    max_epochs = 2 if options.quick else options.max_epochs

    def measured(name: str, seed: int) -> Iterator[tuple[str, Run]]:
        whole = load_split(name, seed)
        for n_cells in options.cells:
            split = fewer_cells(whole, n_cells)
            for size in options.variants:
                yield size, measure(split, size, max_epochs)

    print(table(study_runs(options, "study-sizes.jsonl", measured)))


if __name__ == "__main__":
    main()
