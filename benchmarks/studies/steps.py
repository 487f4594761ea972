"""How many steps does generation need, and where? Numbers of steps and their spacing compared on one trained model.

``python -m benchmarks.studies.steps --data kang --seeds 0``

Steps are equal in the logarithm of the molecules there plus an offset (``scdiffgen.diffusion.molecule_schedule``): a
small one spends them on the first molecules, a large one makes them equal. Scores are on the *other real cells* of the
benchmark, which it neither trains on nor reports. Runs are lines of a file; the table shows the last of each.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from itertools import product
from unittest.mock import patch

import numpy as np

from benchmarks._data import available, load_split
from benchmarks._models import fit_scdiffgen, scdiffgen_methods
from benchmarks._variants import Run, study_options, study_runs, study_table
from benchmarks.generation import timed
from scdiffgen.diffusion import _samplers
from scdiffgen.metrics import ExpressionSpace, classifier_auc

OFFSETS = {"offset 4": 4.0, "offset 16": 16.0, "offset 64": 64.0, "offset 256": 256.0}
N_STEPS = (8, 16, 32)
N_TREES, N_DRAWS = 100, 2  # sets of cells that an AUC is the mean of


def main(arguments: Sequence[str] | None = None) -> None:
    about = "benchmarks.studies.steps", __doc__.splitlines()[0]
    options = study_options(*about, available(), available()[:1], [0, 1, 2], [*OFFSETS]).parse_args(arguments)

    def measured(name: str, seed: int) -> Iterator[tuple[str, Run]]:
        split = load_split(name, seed)
        split = replace(split, held_out=split.other)
        model = fit_scdiffgen(split, max_epochs=2 if options.quick else None)
        space = ExpressionSpace.fit(split.train.X)
        spaces = {"components": space.pcs, "genes": space.expression}
        for n_steps, spacing in product(N_STEPS, options.variants):
            spaced = partial(_samplers.molecule_schedule, offset=OFFSETS[spacing])
            aucs: dict[str, list[float]] = {part: [] for part in spaces}
            with patch.object(_samplers, "molecule_schedule", spaced):
                draw = scdiffgen_methods(model, [n_steps])[0].sample
                drawn = [timed(partial(draw, split.labels, seed + repeat)) for repeat in range(N_DRAWS)]
            for counts, _ in drawn:
                for part, to_space in spaces.items():
                    cells = to_space(split.held_out.X), to_space(counts)
                    aucs[part].append(classifier_auc(*cells, n_trees=N_TREES, n_jobs=options.threads))
            scores = {f"forest AUC, {part}": float(np.mean(auc)) for part, auc in aucs.items()}
            scores["seconds"] = float(np.mean([seconds for _, seconds in drawn]))
            yield spacing, {"steps": n_steps, "scores": scores}

    digits = {"forest AUC, components": 3, "forest AUC, genes": 3, "seconds": 1}
    print(study_table(study_runs(options, "study-steps.jsonl", measured), digits))


if __name__ == "__main__":
    main()
