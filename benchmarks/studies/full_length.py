"""Are cells with reads in place of molecules (full-length protocols) generated as well? On parts of the training cells.

``python -m benchmarks.studies.full_length --data paul15 --seeds 0 --threads 1``

Every molecule of a real cell is amplified into a number of reads, geometric with a mean of :data:`READS`, so that
counts are deep and come in clumps. Of the training cells of a benchmark alone, a quarter of each label is held out.
Beside them stand the cells as they were measured; reads for which no prior is limited, as for any shallow modality; and
reads divided by the median of the values of their cell that are not zero, rounded up: about molecules again.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from itertools import pairwise
from unittest.mock import patch

import numpy as np
from anndata import AnnData
from scipy import sparse

from benchmarks._data import Split, available, load_split
from benchmarks._variants import DIGITS, Run, fit_variant, study_options, study_runs, study_table, variant_scores
from benchmarks.studies.linear_start import inner_split
from scdiffgen.model import TokenDiffusion

READS = 30  # of a molecule, on average

VARIANTS = ("molecules", "reads", "reads, no limited prior", "reads, divided")


def reads_of(adata: AnnData, rng: np.random.Generator) -> AnnData:
    """The same cells with reads: of each molecule a geometric number, one at least."""
    counts = sparse.csr_matrix(adata.X)
    molecules = counts.data.astype(np.int64)
    counts.data = (molecules + rng.negative_binomial(molecules, 1 / READS)).astype(np.float32)
    result = adata.copy()
    result.X = counts
    return result


def divided(adata: AnnData) -> AnnData:
    """The same cells with reads divided by the median of those of their genes, rounded up."""
    result = adata.copy()
    counts = sparse.csr_matrix(result.X)
    for begin, end in pairwise(counts.indptr):
        values = counts.data[begin:end]
        counts.data[begin:end] = np.ceil(values / np.median(values))
    result.X = counts
    return result


def made(variant: str, molecules: Split) -> Split:
    """All parts of a split with the counts of a variant."""
    if variant == "molecules":
        return molecules
    rng = np.random.default_rng(molecules.seed)
    parts = [reads_of(part, rng) for part in (molecules.train, molecules.held_out, molecules.other)]
    parts = list(map(divided, parts)) if variant == "reads, divided" else parts
    return Split(molecules.name, molecules.seed, *parts)


def table(runs: Sequence[Run]) -> str:
    """A row a kind of counts."""
    return study_table(runs, DIGITS)


def main(arguments: Sequence[str] | None = None) -> None:
    about = "benchmarks.studies.full_length", __doc__.splitlines()[0]
    options = study_options(*about, available(), available()[:1], [0, 1, 2], [*VARIANTS]).parse_args(arguments)

    def measured(name: str, seed: int) -> Iterator[tuple[str, Run]]:
        molecules = inner_split(load_split(name, seed))
        for variant in options.variants:

            def meanwhile(model: TokenDiffusion, variant: str = variant) -> AbstractContextManager[object]:
                is_free = variant == "reads, no limited prior"
                return patch("scdiffgen.module._thinning_module.DEEP", np.inf) if is_free else nullcontext()

            split = made(variant, molecules)
            model, seconds = fit_variant(split, {}, 2 if options.quick else None, meanwhile)
            limited = bool(model.module.denoiser.limit.which[0])
            yield variant, {"limited": limited, "scores": variant_scores(model, split) | {"seconds": seconds}}

    print(table(study_runs(options, "study-full-length.jsonl", measured)))


if __name__ == "__main__":
    main()
