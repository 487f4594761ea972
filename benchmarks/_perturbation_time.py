"""Worm neurons at times that were held out (Packer et al. 2019): a continuous covariate in place of a perturbation.

The response is the change from the window of time before, whose cells play the control.
"""

from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import pandas as pd
from anndata import AnnData
from numpy.typing import NDArray

from benchmarks._perturbation_data import (
    CONTEXT,
    CONTROL,
    N_TOP_GENES,
    RESPONSE,
    Fold,
    Target,
    predicted_cells,
    read,
    split,
)
from scdiffgen.model import TokenDiffusion

PACKER = "packer2019_worm_embryo_neurons.h5ad"
WINDOWS = ("330-390", "390-450", "450-510", "510-580")
BEFORE = {"330-390": "270-330", "390-450": "330-390", "450-510": "390-450", "510-580": "450-510"}
TYPE, TIME = "cell_type", "embryo_time"
MIN_CELLS = 20  # of a type outside the window, without which it cannot be predicted


def packer(folder: Path, windows: Sequence[str] | None = None) -> Iterator[Fold]:
    """Every window of time, learned from the times before and after."""
    adata = read(folder, PACKER)
    for window in windows or WINDOWS:
        yield packer_fold(adata, window)


def packer_fold(adata: AnnData, window: str) -> Fold:
    """Hold out a window of time."""
    bins = adata.obs["time_bin"].astype(str)
    outside = adata.obs.loc[bins != window, TYPE].value_counts()
    adata = adata[adata.obs[TYPE].isin(outside.index[outside >= MIN_CELLS])].copy()
    bins = bins.loc[adata.obs_names]
    adata.obs[RESPONSE] = np.select([bins == window, bins == BEFORE[window]], [window, CONTROL], "other times")
    adata.obs[CONTEXT] = "all"
    setup = {"labels_key": TYPE, "continuous_covariate_keys": [TIME]}
    return split(window, adata, (bins == window).to_numpy(), [Target(window, "all", {})], setup, N_TOP_GENES)


def time_predictions(models: dict[str, TokenDiffusion], fold: Fold, seed: int) -> dict[str, AnnData]:
    """Cells of the types and times of the held-out ones: generated, and training cells of about that time."""
    asked = fold.real.obs[[TYPE, TIME]].reset_index(drop=True)
    asked = asked.astype({TYPE: str, TIME: float})
    known, rng = fold.train.obs.reset_index(drop=True), np.random.default_rng(seed)
    counts = {
        f"{name}: generate": model.generate(asked.assign(n_cells=1), seed=seed, silent=True).X
        for name, model in models.items()
    }
    counts["nearest time"] = fold.train.X[nearest_cells(known, asked, rng)]
    counts["both sides"] = fold.train.X[cells_of_both_sides(known, asked, rng)]
    return {name: predicted_cells(fold, [cells]) for name, cells in counts.items()}


def nearest_cells(known: pd.DataFrame, asked: pd.DataFrame, rng: np.random.Generator) -> NDArray[np.intp]:
    """For each cell asked for, a known cell of its type at the nearest time."""
    rows = []
    for cell_type, time in zip(asked[TYPE], asked[TIME], strict=True):
        distance = np.abs(known.loc[known[TYPE] == cell_type, TIME] - time)
        rows.append(rng.choice(distance.index[distance == distance.min()]))
    return np.array(rows)


def cells_of_both_sides(known: pd.DataFrame, asked: pd.DataFrame, rng: np.random.Generator) -> NDArray[np.intp]:
    """For each, the nearest one before or after, the nearer side the likelier: a mixture that is linear in time."""
    before, after = (known[TIME] < asked[TIME].min()), (known[TIME] > asked[TIME].max())
    rows = []
    for index in range(len(asked)):
        cell = asked.iloc[[index]]
        sides = [known[side & (known[TYPE] == cell[TYPE].item())] for side in (before, after)]
        ends = [nearest_cells(side, cell, rng).item() for side in sides if len(side)]
        gaps = np.abs(known.loc[ends, TIME].to_numpy() - cell[TIME].item())
        rows.append(rng.choice(ends, p=1 - gaps / gaps.sum() if len(ends) == 2 else None))
    return np.array(rows)
