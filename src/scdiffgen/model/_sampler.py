"""Drawing cells minibatch after minibatch: described once, and carried out here or in another process."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import torch
from scipy import sparse
from scvi.utils import track
from torch import Tensor

from scdiffgen.conditions import Conditions
from scdiffgen.module import DiffusionModule, ThinningModule
from scdiffgen.responses import ResponseModel

from ._checks import check_guidance, check_positive_integer


@dataclass(frozen=True)
class Sampler:
    """A trained module, the responses that its training cells show, and the settings under which cells are drawn.

    Cells in contexts where a treatment was not measured, but was elsewhere, are drawn untreated and moved by the
    transferred response.
    """

    module: DiffusionModule
    responses: ResponseModel | None
    guidance_scale: float | Mapping[str, float]
    n_steps: int
    batch_size: int

    def check(self, conditions: Conditions[np.ndarray]) -> None:
        """Raise unless all numbers are in range, and scales are for conditions that are given."""
        check_guidance(self.guidance_scale, list(conditions))
        check_positive_integer("n_steps", self.n_steps)
        check_positive_integer("batch_size", self.batch_size)

    def sample(
        self,
        conditions: Conditions[np.ndarray],
        sizes: np.ndarray,
        generator: torch.Generator,
        description: str | None = None,
    ) -> sparse.csr_matrix:
        """Draw a cell of ``sizes`` molecules for each row; a progress bar says ``description``, if there is one."""
        minibatches = np.split(np.arange(len(sizes)), range(self.batch_size, len(sizes), self.batch_size))
        drawn = []
        for rows in track(minibatches, description or "", disable=description is None or len(minibatches) < 2):
            library = torch.from_numpy(sizes[rows]).float().to(generator.device)
            counts = self.minibatch(conditions.take(rows).to(generator.device), library, generator)
            drawn.append(whole_counts(counts))
        return sparse.vstack(drawn, format="csr")

    @torch.no_grad()
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


def whole_counts(counts: Tensor) -> sparse.csr_matrix:
    """Dense whole counts ``(cells, genes)`` as int32 CSR."""
    return sparse.csr_matrix(counts.cpu().numpy().astype(np.int32))
