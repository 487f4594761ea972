"""How long Gaussian diffusion is to be trained, and whether its best validation loss says when to stop.

``python -m benchmarks.studies.gaussian_length --data paul15 pbmc68k --seeds 0 1``

A quarter of the training cells of each benchmark are held out, and scored.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import scvi
from scipy import sparse

from benchmarks._data import Split, available, load_split
from benchmarks._models import fit_scdiffgen, linear_methods, scdiffgen_methods
from benchmarks._scores import Scorer
from benchmarks._variants import N_TREES, Run, inner_split, study_options, study_runs, study_table
from benchmarks.generation import timed
from scdiffgen.module import GaussianModule

N_STEPS = 32
VARIANTS: dict[str, dict[str, Any]] = {  # steps of training; whether the validation loss decides
    "gaussian": {},
    "gaussian, 500 steps": {"least_steps": 500},
    "gaussian, 1000 steps": {"least_steps": 1000},
    "gaussian, 4000 steps": {"least_steps": 4000},
    "gaussian, best validation loss": {"judged_by_validation": True},
}
OTHERS = ("thinning", "linear Gaussian copula")
DIGITS = {
    **{f"auc_{name}": 3 for name in ("forest_pcs", "forest_genes", "logistic_genes")},
    **{"label_accuracy": 3, "recall": 3, "label_fold_change_slope": 3, "least_variance_ratio": 3, "seconds": 0},
}


def drawn(split: Split, variant: str, max_epochs: int | None) -> sparse.csr_matrix:
    """Cells with the labels of those held out."""
    scvi.settings.seed = split.seed
    if variant == OTHERS[1]:
        return linear_methods(split)[0].sample(split.labels, split.seed)
    if variant == OTHERS[0]:
        model = fit_scdiffgen(split, max_epochs=max_epochs)
    else:
        settings = {"least_steps": GaussianModule.least_steps, "judged_by_validation": False, **VARIANTS[variant]}
        before = {name: getattr(GaussianModule, name) for name in settings}
        try:
            for name, value in settings.items():
                setattr(GaussianModule, name, value)
            model = fit_scdiffgen(split, max_epochs=max_epochs, process="gaussian")
        finally:
            for name, value in before.items():
                setattr(GaussianModule, name, value)
    return scdiffgen_methods(model, [N_STEPS])[0].sample(split.labels, split.seed)


def table(runs: Sequence[Run]) -> str:
    """A row a way to draw cells."""
    return study_table(runs, DIGITS)


def main(arguments: Sequence[str] | None = None) -> None:
    about = "benchmarks.studies.gaussian_length", __doc__.splitlines()[0]
    options = study_options(*about, available(), ["paul15"], [0], [*OTHERS, *VARIANTS]).parse_args(arguments)

    def measured(name: str, seed: int) -> Iterator[tuple[str, Run]]:
        split = inner_split(load_split(name, seed))
        scorer = Scorer.fit(split, n_trees=N_TREES)
        for variant in options.variants:
            counts, seconds = timed(lambda variant=variant: drawn(split, variant, 2 if options.quick else None))
            yield variant, {"scores": {**scorer.score(counts), "seconds": seconds}}

    print(table(study_runs(options, "study-gaussian-length.jsonl", measured)))


if __name__ == "__main__":
    main()
