"""Drawing cells minibatch after minibatch: described once, and carried out here or in another process."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar, cast

import numpy as np
import torch
from scipy import sparse
from scvi.utils import track
from torch import Tensor

from scdiffgen.conditions import Conditions
from scdiffgen.module import DiffusionModule, ThinningModule, growth_path
from scdiffgen.responses import ResponseModel

from ._cells import BATCH_SIZE, Cells

Drawn = TypeVar("Drawn")

N_STEPS = 32


@dataclass(frozen=True)
class Sampler:
    """A trained module, the responses that its training cells show, and the settings under which cells are drawn.

    Cells in contexts where a treatment was not measured, but was elsewhere, are drawn untreated and moved by the
    transferred response.
    """

    module: DiffusionModule
    responses: ResponseModel | None = None
    guidance_scale: float | Mapping[str, float] = 1.0
    n_steps: int = N_STEPS
    batch_size: int = BATCH_SIZE

    @torch.no_grad()
    def each(self, minibatches: Iterable[tuple[Any, ...]], draw: Callable[..., Drawn]) -> list[Drawn]:
        """Draw minibatch after minibatch: the one loop that makes cells."""
        return [draw(*minibatch) for minibatch in minibatches]

    def sample(
        self,
        conditions: Conditions[np.ndarray],
        sizes: np.ndarray,
        generator: torch.Generator,
        description: str | None = None,
    ) -> sparse.csr_matrix:
        """Draw a cell of ``sizes`` molecules for each row; a progress bar says ``description``, if there is one."""

        def draw(rows: np.ndarray, library: Tensor) -> sparse.csr_matrix:
            return whole_counts(self.minibatch(conditions.take(rows).to(generator.device), library, generator))

        return sparse.vstack(self.each(self._rows(sizes, generator.device, description), draw), format="csr")

    def matched(
        self,
        cells: Cells,
        generator: torch.Generator,
        library: Callable[[Tensor, Conditions[Tensor]], Tensor] | None = None,
    ) -> sparse.csr_matrix:
        """Matched samples: a new cell under the conditions of each given one, by default of the same library size."""

        def draw(counts: Tensor, conditions: Conditions[Tensor]) -> sparse.csr_matrix:
            sizes = self.module.library(counts) if library is None else library(counts, conditions)
            return whole_counts(self.minibatch(conditions, sizes, generator))

        return cells.in_order(self.each(cells, draw))

    def deepened(self, cells: Cells, factor: float, generator: torch.Generator) -> sparse.csr_matrix:
        """The molecules of given cells, and as many more that each has ``factor`` times its library size."""
        module = cast("ThinningModule", self.module)

        def draw(counts: Tensor, conditions: Conditions[Tensor]) -> sparse.csr_matrix:
            library, start = (module.library(counts) * factor).round(), counts.to_dense()
            predictor = module.predictor(conditions, len(counts))
            return whole_counts(module.draw(predictor, library, start=start, n_steps=self.n_steps, generator=generator))

        return cells.in_order(self.each(cells, draw))

    def interpolated(
        self,
        start: Conditions[np.ndarray],
        end: Conditions[np.ndarray],
        fraction: float,
        sizes: np.ndarray,
        generator: torch.Generator,
    ) -> sparse.csr_matrix:
        """Draw cells a ``fraction`` of the way between two conditions, a row a cell."""

        def draw(rows: np.ndarray, library: Tensor) -> sparse.csr_matrix:
            at_start, at_end = (conditions.take(rows).to(generator.device) for conditions in (start, end))
            return whole_counts(
                self.module.interpolate(at_start, at_end, fraction, library, n_steps=self.n_steps, generator=generator)
            )

        return sparse.vstack(self.each(self._rows(sizes, generator.device), draw), format="csr")

    def paths(
        self,
        conditions: Conditions[np.ndarray],
        sizes: np.ndarray,
        generator: torch.Generator,
        description: str | None = None,
    ) -> tuple[np.ndarray, np.ndarray]:
        """All states of cells while they are drawn, and the full cells expected at each: ``(cells, states, genes)``."""
        module = cast("ThinningModule", self.module)

        def draw(rows: np.ndarray, library: Tensor) -> tuple[np.ndarray, ...]:
            given = conditions.take(rows).to(generator.device)
            predictor = module.predictor(given, len(rows), self.guidance_scale)
            path = growth_path(predictor, library, module.n_vars, self.n_steps, generator)
            return tuple(states.cpu().numpy() for states in path)

        minibatches = self.each(self._rows(sizes, generator.device, description), draw)
        states, expected = (np.concatenate(parts) for parts in zip(*minibatches, strict=True))
        return states, expected

    def minibatch(self, conditions: Conditions[Tensor], library: Tensor, generator: torch.Generator) -> Tensor:
        """Draw one minibatch: dense counts ``(cells, genes)``."""
        module = self.module
        name = next((name for name in module.denoiser.effect_names if name in conditions), None)
        if self.responses is None or name is None or not isinstance(module, ThinningModule):
            return self._by_network(conditions, library, generator)
        treatment = conditions[name]
        untreated = conditions.replace({name: treatment._replace(mask=torch.zeros_like(treatment.mask))})
        response = self.responses.responses(untreated, conditions, unmeasured_only=True)
        mask = treatment.mask & ~response.known[:, None]
        drawn = self._by_network(conditions.replace({name: treatment._replace(mask=mask)}), library, generator)
        if not response.known.any():
            return drawn
        scale = module.effect_scale(self.guidance_scale)
        moved = self.responses.apply(module, drawn.to_sparse_csr(), untreated, response, scale, generator)
        return torch.where(response.known[:, None], moved, drawn)

    def _by_network(self, conditions: Conditions[Tensor], library: Tensor, generator: torch.Generator) -> Tensor:
        return self.module.generate(
            conditions, library, guidance_scale=self.guidance_scale, n_steps=self.n_steps, generator=generator
        )

    def _rows(
        self, sizes: np.ndarray, device: torch.device, description: str | None = None
    ) -> Iterator[tuple[np.ndarray, Tensor]]:
        """Rows of a request, minibatch after minibatch, with their library sizes."""
        minibatches = np.split(np.arange(len(sizes)), range(self.batch_size, len(sizes), self.batch_size))
        for rows in track(minibatches, description or "", disable=description is None or len(minibatches) < 2):
            yield rows, torch.from_numpy(sizes[rows]).float().to(device)


def whole_counts(counts: Tensor) -> sparse.csr_matrix:
    """Dense whole counts ``(cells, genes)`` as int32 CSR."""
    return sparse.csr_matrix(counts.cpu().numpy().astype(np.int32))
