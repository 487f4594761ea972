"""Do batch effects become predicted responses? Simulated screens in which treatment and batch are partly confounded.

``python -m benchmarks.studies.confounding --seeds 0 1 2``

Batch ``i`` multiplies gene ``i`` by four, and the drug triples the last gene. One of four contexts is not treated, and
is predicted from the others. The table has the largest predicted change of a batch's gene, which is truly 0, and the
range of the change of the drug's gene.
"""

import argparse
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from benchmarks._tables import markdown
from scdiffgen._log_normalise import log_normalise
from scdiffgen.responses import ResponseEstimator

DESIGNS = {  # control and treated cells of each batch, in each context
    "nested: two batches of each arm alone, two with both": [(200, 0)] * 2 + [(0, 200)] * 2 + [(150, 150)] * 2,
    "partly crossed: one batch of treated cells, two with both": [(150, 150), (150, 150), (0, 300)],
    "lanes: 19 to 1 and 1 to 19": [(380, 20), (20, 380)],
    "40 batches of 21 cells, 15 to 6 and 6 to 15": [(15, 6), (6, 15)] * 20,
    "one plate an arm": [(300, 0), (0, 300)],
}
N_GENES, N_CONTEXTS, LIBRARY, BATCH_RATIO, DRUG_RATIO = 60, 4, 6000, 4.0, 3.0


def draw(rng: np.random.Generator, base: NDArray, batch: int | None, arm: str, n_cells: int) -> NDArray[np.int64]:
    """Overdispersed counts ``(cells, genes)``."""
    rates = base * rng.gamma(100, 1 / 100, (n_cells, N_GENES))
    if batch is not None:
        rates[:, batch] *= BATCH_RATIO
    rates[:, -1] *= DRUG_RATIO if arm == "drug" else 1
    return rng.poisson(LIBRARY * rates / rates.sum(1, keepdims=True))


def screen(rng: np.random.Generator, bases: NDArray, design: Sequence[tuple[int, int]]) -> tuple[NDArray, ...]:
    """Counts, and the context, batch and treatment of cells; the last context is not treated."""
    groups = []
    for context, base in enumerate(bases):
        for batch, sizes in enumerate(design):
            for arm, n_cells in zip(("control", "drug"), sizes, strict=True):
                n_there = n_cells if arm == "control" or context < len(bases) - 1 else 0
                labels = (np.repeat(label, n_there) for label in (context, batch, arm))
                groups.append((draw(rng, base, batch, arm, n_there), *labels))
    return tuple(np.concatenate(part) for part in zip(*groups, strict=True))


def true_change(rng: np.random.Generator, base: NDArray) -> float:
    """Change of the mean log expression of the drug's gene, in many cells without batch effects."""
    after, before = (log_normalise(draw(rng, base, None, arm, 4000))[:, -1].mean() for arm in ("drug", "control"))
    return float(after - before)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser("python -m benchmarks.studies.confounding", description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1, 2])
    options = parser.parse_args(arguments)
    rows, truths = [], []
    for name, design in DESIGNS.items():
        largest, drug, cautions = {True: 0.0, False: 0.0}, [], 0
        for seed in options.seeds:
            rng = np.random.default_rng(seed)
            bases = rng.uniform(0.7, 1.4, N_GENES) * rng.uniform(0.8, 1.25, (N_CONTEXTS, N_GENES))
            counts, context, batch, treatment = screen(rng, bases, design)
            truths += [true_change(rng, base) for base in bases]
            for registered in (True, False):
                estimator = ResponseEstimator.fit(counts, context, batch if registered else None, treatment)
                for label in estimator.contexts:
                    found = estimator.predict("drug", label)
                    assert found is not None
                    largest[registered] = max(largest[registered], np.abs(found.change[: len(design)]).max())
                    drug += [found.change[-1]] if registered else []
                    cautions += registered and bool(found.cautions)
        shown = (f"{largest[True]:.2f}", f"{largest[False]:.2f}", f"{min(drug):.2f} to {max(drug):.2f}")
        rows.append([name, *shown, "yes" if cautions else "no"])
    header = ["design", "batch genes, batches registered", "not registered", "drug gene", "caution"]
    print(markdown(header, rows))
    print(f"\nTrue change of the drug gene: {min(truths):.2f} to {max(truths):.2f}.")


if __name__ == "__main__":
    main()
