"""How should the rate of a gene depend on its own molecules? Forms compared on parts of the training cells.

``python -m benchmarks.studies.own_counts --data kang700 pbmc3k --seeds 0 1 2``

Tokens expect ``m`` molecules of a gene among those of the cell by now, and there are ``x``. ``one weight``: rates
``(1 - w) m + w x`` with a weight for each gene, .05 at first. ``dispersion``: the posterior mean of a gamma-Poisson
model, ``(1 - s) m + s x``, where ``s`` follows the dispersion of the gene, and .02 of ``x`` is added whatever is
expected. ``dispersion, outliers``, the form of the package: ``s`` also rises where there are far more than expected. Of
the training cells of a benchmark alone, a quarter of each label is held out, at most 1,500 cells in all. Runs are lines
of a file; the table shows the last of each.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from math import log
from unittest.mock import patch

import torch

from benchmarks._data import DATASETS, load_split
from benchmarks._variants import DIGITS, Run, fit_variant, study_options, study_runs, study_table, variant_scores
from benchmarks.studies.linear_start import inner_split
from scdiffgen.model import TokenDiffusion
from scdiffgen.nn import Overdispersion

VARIANTS = ("one weight", "dispersion", "dispersion, outliers")
WEIGHTS = {"one weight": 0.05, "dispersion": 0.02}
NOTHING = -10.0  # a logarithm, in the units in which a dispersion or a slope is trained


@contextmanager
def own_counts(model: TokenDiffusion, variant: str) -> Iterator[None]:
    """Give a new model another form, and train it so."""
    for denoiser in model.module.denoisers:
        if variant in WEIGHTS:
            weight = WEIGHTS[variant]
            without(denoiser.overdispersion.slopes)
            with torch.no_grad():
                denoiser.overdispersion.least_logits.fill_(log(weight / (1 - weight)))
        if variant == "one weight":
            without(denoiser.overdispersion.log_dispersions)
    if variant == "one weight":
        with patch.object(Overdispersion, "set_dispersions"):
            yield
    else:
        yield


@torch.no_grad()
def without(parameter: torch.nn.Parameter) -> None:
    """Leave out what a parameter is for."""
    parameter.fill_(NOTHING).requires_grad_(requires_grad=False)


def table(runs: Sequence[Run]) -> str:
    """A row a form."""
    return study_table(runs, DIGITS)


def main(arguments: Sequence[str] | None = None) -> None:
    about = "benchmarks.studies.own_counts", __doc__.splitlines()[0]
    parser = study_options(*about, [*DATASETS], ["paul15"], [0, 1, 2], VARIANTS)
    parser.add_argument("--max-epochs", type=int, help="length of training (the default)")
    options = parser.parse_args(arguments)

    def measured(name: str, seed: int) -> Iterator[tuple[str, Run]]:
        split = inner_split(load_split(name, seed))
        for variant in options.variants:
            n_epochs = 2 if options.quick else options.max_epochs
            model, seconds = fit_variant(split, {}, n_epochs, partial(own_counts, variant=variant))
            yield (
                variant,
                {"epochs": model.trainer.max_epochs, "scores": variant_scores(model, split) | {"seconds": seconds}},
            )

    print(table(study_runs(options, "study-own-counts.jsonl", measured)))


if __name__ == "__main__":
    main()
