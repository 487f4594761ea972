"""How near the sizes of the network come to held-out cells, and what they cost.

``python -m benchmarks.studies.size --data kang --seeds 0 1 --variants small medium base``

A quarter of the training cells of each benchmark, at most 1,500, are held out, and scored. The question: does a network
that only a GPU trains in minutes pay at the number of cells that most users have?
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import scvi

from benchmarks._data import available, load_split
from benchmarks._models import fit_scdiffgen, scdiffgen_methods
from benchmarks._scores import Scorer, likelihoods
from benchmarks._variants import N_TREES, Run, inner_split, study_options, study_runs, study_table
from benchmarks.generation import timed

PRESETS = ("small", "medium", "base", "large")
N_STEPS, N_DRAWS = 32, 2  # of sampling; generated sets, whose scores are averaged
DIGITS = {
    **{f"auc_{name}": 3 for name in ("forest_pcs", "forest_genes", "logistic_genes")},
    **{"recall": 3, "least_variance_ratio": 3, "nats": 4, "seconds": 0},
}


def table(runs: Sequence[Run]) -> str:
    """A row a size."""
    return study_table(runs, DIGITS)


def main(arguments: Sequence[str] | None = None) -> None:
    about = "benchmarks.studies.size", __doc__.splitlines()[0]
    options = study_options(*about, available(), ["kang"], [0], PRESETS).parse_args(arguments)

    def measured(name: str, seed: int) -> Iterator[tuple[str, Run]]:
        split = inner_split(load_split(name, seed))
        max_epochs = 2 if options.quick else None
        scorer = Scorer.fit(split, n_trees=N_TREES)
        for preset in options.variants:
            scvi.settings.seed = seed
            model, seconds = timed(lambda preset=preset: fit_scdiffgen(split, max_epochs=max_epochs, preset=preset))
            method = scdiffgen_methods(model, [N_STEPS])[0]
            draws = [scorer.score(method.sample(split.labels, draw)) for draw in range(N_DRAWS)]
            scores = {key: float(np.mean([found[key] for found in draws])) for key in draws[0]}
            nats = likelihoods(model, split, seed=seed)["scdiffgen"]
            yield preset, {"scores": {**scores, "nats": nats, "seconds": seconds}}

    print(table(study_runs(options, "study-size.jsonl", measured)))


if __name__ == "__main__":
    main()
