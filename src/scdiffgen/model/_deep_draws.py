"""Modalities that are drawn by a regression, one after the other, each from the molecules of those that are there."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
from scipy import sparse
from torch import Tensor

from scdiffgen.diffusion import Blocks, to_scipy
from scdiffgen.imputation import DeepColumns, known_inputs

DeepRegressions = Mapping[tuple[str, ...], Mapping[str, DeepColumns]]
"""Of the counts of a deeply measured modality on what is known of others: by the names of these, then by its own."""


class DeepDraw(NamedTuple):
    """A modality and those that it follows from, by their positions, and the regression of the one on the others."""

    target: int
    given: Sequence[int]
    regression: DeepColumns


def deep_draws(names: Sequence[str], blocks: Blocks, regressions: DeepRegressions) -> tuple[DeepDraw, ...]:
    """Modalities to draw by regressions on all others but those after it, the widest first, as many as can be."""
    width = dict(zip(names, blocks.sizes, strict=True))
    deep = {name for fits in regressions.values() for name in fits}
    chain = sorted(deep, key=lambda name: (-width[name], name))
    while chain:
        given = [tuple(name for name in names if name not in chain[place:]) for place in range(len(chain))]
        if all(name in regressions.get(of_name, {}) for name, of_name in zip(chain, given, strict=True)):
            places = [[names.index(other) for other in of_name] for of_name in given]
            return tuple(
                DeepDraw(names.index(name), read, regressions[of_name][name])
                for name, of_name, read in zip(chain, given, places, strict=True)
            )
        chain = chain[1:]
    return ()


def deep_inputs(
    counts: Tensor, tokens: np.ndarray, blocks: Blocks, given: Sequence[int], rows: np.ndarray
) -> sparse.csr_matrix:
    """Inputs of a regression ``(rows, inputs)`` from CSR counts and tokens of all cells."""
    cells = to_scipy(counts)[rows]
    return known_inputs([cells[:, blocks.slices[block]] for block in given], tokens[rows])
