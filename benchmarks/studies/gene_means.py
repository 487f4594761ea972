"""Compare generated cells before and after the calibration of gene means, and cells of independent genes.

``python -m benchmarks.studies.gene_means --data pbmc3k paul15 pbmc68k kang --seeds 0 1 2 --threads 1``

A quarter of the training cells of each benchmark is held out for scoring. Both rows of the model share one training.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from unittest.mock import patch

import numpy as np
import scvi
from scipy.sparse import csr_matrix

from benchmarks._data import available, load_split
from benchmarks._models import Method, fit_scdiffgen, null_methods, scdiffgen_methods
from benchmarks._scores import Scorer, likelihoods
from benchmarks._variants import N_TREES, Run, inner_split, study_options, study_runs, study_table
from benchmarks.generation import timed
from scdiffgen.metrics._genes import mean_distance_resampled
from scdiffgen.model._training_data import RegisteredData
from scdiffgen.module import ThinningModule

N_DRAWS = 3  # generated sets, whose scores are averaged
SHUFFLED, BEFORE, AFTER = "shuffled genes", "not calibrated", "default"
DIGITS = {
    **{f"auc_{name}": 3 for name in ("forest_pcs", "forest_genes", "logistic_genes")},
    **{"mean_distance": 2, "mean_distance_rare": 2, "least_variance_ratio": 3, "nats": 4},
}


def rare_distance(scorer: Scorer, counts: csr_matrix) -> float:
    """Distance of the means of the half of the genes that is expressed least."""
    cells = [scorer.space.expression(side) for side in (scorer.split.held_out.X, counts)]
    expression = np.asarray(cells[0].mean(axis=0)).ravel()
    rare = expression < np.median(expression)
    once = [np.ones((1, side.shape[0])) for side in cells]
    return float(mean_distance_resampled(*(side[:, rare] for side in cells), *once)[0])


def table(runs: Sequence[Run]) -> str:
    """A row a way to draw cells."""
    return study_table(runs, DIGITS)


def main(arguments: Sequence[str] | None = None) -> None:
    about = "benchmarks.studies.gene_means", __doc__.splitlines()[0]
    options = study_options(*about, available(), ["pbmc3k"], [0], [AFTER]).parse_args(arguments)

    def measured(name: str, seed: int) -> Iterator[tuple[str, Run]]:
        split = inner_split(load_split(name, seed))
        scorer = Scorer.fit(split, n_trees=N_TREES)

        def scored(method: Method, seconds: float, nats: float) -> Run:
            drawn = [method.sample(split.labels, draw) for draw in range(N_DRAWS)]
            draws = [scorer.score(counts) | {"mean_distance_rare": rare_distance(scorer, counts)} for counts in drawn]
            means = {key: float(np.mean([scores[key] for scores in draws])) for key in draws[0]}
            return {"scores": {**means, "nats": nats, "seconds": seconds}}

        shuffled = next(method for method in null_methods(split) if method.name == SHUFFLED)
        yield SHUFFLED, scored(shuffled, 0.0, np.nan)
        scvi.settings.seed = seed
        with patch.object(ThinningModule, "calibrate"):
            model, seconds = timed(lambda: fit_scdiffgen(split, max_epochs=2 if options.quick else None))
        for variant in (BEFORE, AFTER):
            if variant == AFTER:
                cells = RegisteredData(model)
                _, seconds = timed(lambda cells=cells: model.module.calibrate(cells.some(cells.n_train), cells.n_train))
            nats = likelihoods(model, split, seed=seed)["scdiffgen"]
            yield variant, scored(scdiffgen_methods(model, [32])[0], seconds, nats)

    print(table(study_runs(options, "study-gene-means.jsonl", measured)))


if __name__ == "__main__":
    main()
