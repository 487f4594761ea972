"""How cells are grown, minibatch after minibatch: told once, and carried out here or in another process."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import torch
from scipy import sparse
from scvi.utils import track

from scdiffgen._conditions import Parts
from scdiffgen.module import DiffusionModule

from ._cells import to_tensors
from ._checks import check_guidance, check_positive_integer


@dataclass(frozen=True)
class Growth:
    """Settings under which cells are grown.

    Parameters
    ----------
    guidance_scale
        How much stronger than in the data conditions are followed: one number, or one for each that is named.
    n_steps
        Steps, each an evaluation of the network.
    batch_size
        Cells grown at a time.
    """

    guidance_scale: float | Mapping[str, float]
    n_steps: int
    batch_size: int

    def check(self, conditions: Mapping[str, Parts[np.ndarray]]) -> None:
        """Raise unless all numbers are in range, and scales are for conditions that are told."""
        check_guidance(self.guidance_scale, list(conditions))
        check_positive_integer("n_steps", self.n_steps)
        check_positive_integer("batch_size", self.batch_size)

    def grow(
        self,
        module: DiffusionModule,
        conditions: Mapping[str, Parts[np.ndarray]],
        sizes: np.ndarray,
        generator: torch.Generator,
        description: str | None = None,
    ) -> sparse.csr_matrix:
        """Grow cells under the conditions that are told, a row a cell, to so many molecules each.

        Parameters
        ----------
        module
            Trained module; its device is that of the generator.
        conditions
            Conditions of every cell, by name.
        sizes
            Molecules of every cell.
        generator
            Source of randomness.
        description
            What a progress bar says; ``None`` shows none.
        """
        cells = np.arange(len(sizes))
        minibatches = np.split(cells, range(self.batch_size, len(sizes), self.batch_size))
        grown = []
        for rows in track(minibatches, description or "", disable=description is None or len(minibatches) < 2):
            counts = module.generate(
                to_tensors(conditions, rows, generator.device),
                torch.from_numpy(sizes[rows]).float().to(generator.device),
                guidance_scale=self.guidance_scale,
                n_steps=self.n_steps,
                generator=generator,
            )
            grown.append(whole_counts(counts))
        return sparse.vstack(grown, format="csr")


def of_rows(conditions: Mapping[str, Parts[np.ndarray]], rows: np.ndarray) -> dict[str, Parts[np.ndarray]]:
    """Conditions of some rows."""
    return {name: Parts(*(array[rows] for array in parts)) for name, parts in conditions.items()}


def only_told(conditions: Mapping[str, Parts[np.ndarray]]) -> dict[str, Parts[np.ndarray]]:
    """Conditions that some cell is told."""
    return {name: parts for name, parts in conditions.items() if parts.told.any()}


def whole_counts(counts: torch.Tensor) -> sparse.csr_matrix:
    """Dense whole counts ``(cells, genes)`` as int32 CSR."""
    return sparse.csr_matrix(counts.cpu().numpy().astype(np.int32))
