"""Where on the way do generated cells go wrong? Cells drawn again around a part of their molecules.

``python -m benchmarks.studies.regrown --data paul15 --seeds 0``

Of each label half of the cells held out keep a share of their molecules, and the model draws the others; a forest tells
them from the other half, with the halves exchanged, too. If little that is kept makes cells real, the first molecules
were wrong. *Generated* cells that lose all but a share, and have it drawn again, are a corrector: were the later steps
right, they would come nearer to real cells. Of the training cells of a benchmark alone, a quarter of each label is held
out, at most 1,500 cells in all. Runs are lines of a file; the table shows the last of each.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import torch
from anndata import AnnData
from scipy import sparse

from benchmarks._data import DATASETS, LABEL, Split, load_split
from benchmarks._variants import N_STEPS, N_TREES, Run, fit_variant, study_options, study_runs, study_table
from benchmarks.studies.linear_start import inner_split
from scdiffgen.metrics import ExpressionSpace, classifier_auc
from scdiffgen.model import TokenDiffusion
from scdiffgen.model._cells import Cells
from scdiffgen.model._sampler import whole_counts

REAL, ONCE, THRICE = "real cells", "generated, once", "generated, three times"
SHARES = {REAL: (0.0, 0.003, 0.01, 0.03, 0.1, 0.3, 0.7), ONCE: (0.01, 0.1, 0.3, 0.7), THRICE: (0.01, 0.1, 0.3, 0.7)}
N_DRAWS = 2  # of each half


def halves(cells: AnnData, seed: int) -> tuple[AnnData, AnnData]:
    """Two halves of cells, of each label."""
    labels = cells.obs[LABEL].reset_index(drop=True)
    chosen = labels.index.isin(labels.groupby(labels, observed=True).sample(frac=0.5, random_state=seed).index)
    return cells[chosen].copy(), cells[~chosen].copy()


def regrown(model: TokenDiffusion, cells: AnnData, share: float, seed: int) -> AnnData:
    """The same cells with a share of their molecules, and the others drawn by the model."""
    module, generator = model.module, torch.Generator().manual_seed(seed)
    request, drawn = Cells(model, cells, None), []
    for counts, conditions in request:
        kept = module.process.keep(counts, share, generator)
        predictor, library = module.predictor(conditions, len(counts)), module.library(counts)
        start = kept.state.to_dense()
        drawn.append(module.draw(predictor, library, start=start, n_steps=N_STEPS, generator=generator))
    found = cells.copy()
    found.X = sparse.csr_matrix(request.in_order([whole_counts(counts) for counts in drawn]), dtype=np.float32)
    return found


def measure(model: TokenDiffusion, split: Split, variants: Sequence[str], n_jobs: int) -> Iterator[tuple[str, Run]]:
    """Forest AUCs of cells that were drawn again around a share of them."""
    space, sides = ExpressionSpace.fit(split.train.X), halves(split.held_out, split.seed)
    spaces = {"components": space.pcs, "genes": space.expression}
    starts = [(half, other, seed) for half, other in (sides, sides[::-1]) for seed in range(N_DRAWS)]
    generated = [regrown(model, half, 0.0, seed) for half, _, seed in starts]
    for variant in variants:
        for share in SHARES[variant]:
            aucs: dict[str, list[float]] = {name: [] for name in spaces}
            for (half, other, seed), cells in zip(starts, generated, strict=True):
                found = half if variant == REAL else cells
                for turn in range(3 if variant == THRICE else 1):
                    found = regrown(model, found, share, 100 + 10 * seed + turn)
                for name, to_space in spaces.items():
                    cells_of = to_space(other.X), to_space(found.X)
                    aucs[name].append(classifier_auc(*cells_of, n_trees=N_TREES, n_jobs=n_jobs))
            yield variant, {"kept": share, "scores": {f"forest AUC, {name}": np.mean(of) for name, of in aucs.items()}}


def table(runs: Sequence[Run]) -> str:
    """A row for each share that is kept of some cells."""
    return study_table(runs, {"forest AUC, components": 3, "forest AUC, genes": 3})


def main(arguments: Sequence[str] | None = None) -> None:
    about = "benchmarks.studies.regrown", __doc__.splitlines()[0]
    parser = study_options(*about, [*DATASETS], ["paul15"], [0], [*SHARES])
    parser.add_argument("--max-epochs", type=int, help="length of training (the default)")
    options = parser.parse_args(arguments)

    def measured(name: str, seed: int) -> Iterator[tuple[str, Run]]:
        split = inner_split(load_split(name, seed))
        model, seconds = fit_variant(split, {}, 2 if options.quick else options.max_epochs)
        for variant, run in measure(model, split, options.variants, options.threads):
            yield variant, run | {"scores": run["scores"] | {"seconds": seconds}}

    print(table(study_runs(options, "study-regrown.jsonl", measured)))


if __name__ == "__main__":
    main()
