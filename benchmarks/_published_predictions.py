"""Predictions that are entered in the published benchmark of responses: ours, simple ones, and real cells."""

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
from anndata import AnnData
from numpy.typing import NDArray

from benchmarks._perturbation_models import untrained_model
from benchmarks._published_cells import CELL_TYPE, CONDITION, CONTEXT, CONTROL, STIMULATED, Prepared
from benchmarks._published_scores import Cells
from scdiffgen.metrics.baselines import context_shift

OURS, WITH_TYPES = "scdiffgen", "scdiffgen, cell types given"
CONTROLS, OTHERS, NEAREST = "controls", "controls + mean change of the others", "controls + change of the nearest"
SIMILAR = "controls + mean change of similar ones"
HALF = "one real half against the other"
SETUPS: dict[str, dict[str, Mapping[str, str]]] = {
    "types": {OURS: {"labels_key": CONTEXT}},
    "donors": {OURS: {"labels_key": CONTEXT}, WITH_TYPES: {"labels_key": CELL_TYPE, "batch_key": CONTEXT}},
}


def predictions(prepared: Prepared, task: str, context: str, seed: int) -> Iterator[tuple[str, Cells, Cells]]:
    """Name, predicted and real stimulated cells of every prediction of the stimulated cells of a context."""
    control, real = cells_of(prepared, context)
    known = changes(prepared, without=context)
    nearest = min(known, key=lambda other: np.linalg.norm(known[other][0] - control.mean(0)))
    yield OTHERS, control + np.mean([change for _, change in known.values()], axis=0), real
    yield NEAREST, control + known[nearest][1], real
    similar = context_shift(control.mean(0), *(np.stack(part) for part in zip(*known.values(), strict=True)))
    yield SIMILAR, control + similar, real
    shuffled = np.random.default_rng(seed).permutation(len(real))
    half = len(real) // 2
    yield HALF, real[shuffled[:half]], real[shuffled[half:]]
    for name, setup in SETUPS[task].items():
        yield name, prepared.expression(predicted(prepared, context, setup, seed)), real


def cells_of(prepared: Prepared, context: str) -> tuple[Cells, Cells]:
    """Log-normalised control and stimulated cells of a context."""
    control, stimulated = (
        prepared.expression(prepared.counts[prepared.rows(context, condition)]) for condition in (CONTROL, STIMULATED)
    )
    return control, stimulated


def changes(prepared: Prepared, *, without: str) -> dict[str, tuple[NDArray[np.float64], NDArray[np.float64]]]:
    """Mean of the controls, and the change of the mean, of every other context."""
    found = {}
    for context in prepared.contexts:
        if context != without:
            control, stimulated = (cells.mean(0) for cells in cells_of(prepared, context))
            found[context] = control, stimulated - control
    return found


def predicted(prepared: Prepared, context: str, setup: Mapping[str, str], seed: int) -> AnnData:
    """Counts of all genes: a cell for each control cell of a context whose stimulated cells were never seen.

    Transferred responses need no network, so none is trained.
    """
    train = prepared.without(context)
    model = untrained_model(train, {"perturbation_key": CONDITION, "control": CONTROL, **setup})
    controls = np.flatnonzero((train.obs[CONTEXT] == context) & (train.obs[CONDITION] == CONTROL))
    options: dict[str, Any] = {"indices": controls, "seed": seed, "silent": True}
    return model.predict_perturbation(None, {CONDITION: STIMULATED}, **options)
