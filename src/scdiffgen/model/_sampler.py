"""Sampling of cells in minibatches, in this process or on a worker."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
import torch
from scipy import sparse
from scvi.utils import track
from torch import Tensor

from scdiffgen.conditions import UNSEEN, Conditions
from scdiffgen.data import LARGEST_LIBRARY
from scdiffgen.diffusion import to_scipy
from scdiffgen.module import DiffusionModule

from ._cells import BATCH_SIZE, Cells
from ._modality_imputer import CountDraw
from ._transferred_responses import CellResponses, ResponseModel

N_STEPS = 32


@dataclass(frozen=True)
class Sampler:
    """Sampler of cells; responses to unmeasured treatments are transferred to drawn untreated cells."""

    module: DiffusionModule
    responses: ResponseModel | None = None
    guidance_scale: float | Mapping[str, float] = 1.0
    n_steps: int = N_STEPS
    batch_size: int = BATCH_SIZE
    by_regression: Sequence[CountDraw] = ()  # modalities that are drawn by regression on the other modalities

    @torch.no_grad()
    def over_cells(self, cells: Cells, draw: Callable[[Tensor, Conditions[Tensor]], Any]) -> list[Any]:
        """Apply ``draw`` to counts and conditions of minibatches of given cells."""
        return [draw(*minibatch) for minibatch in cells]

    @torch.no_grad()
    def sample(
        self,
        conditions: Conditions[np.ndarray],
        sizes: np.ndarray,
        generator: torch.Generator,
        description: str | None = None,
    ) -> sparse.csr_matrix:
        """Draw a cell of ``sizes`` molecules for each row, with a progress bar if there is a ``description``."""
        device, drawn = self.module.device, []
        rows = np.split(np.arange(len(sizes)), range(self.batch_size, len(sizes), self.batch_size))
        for chosen in track(rows, description or "", disable=description is None or len(rows) < 2):
            library = torch.from_numpy(sizes[chosen]).float().to(device)
            drawn.append(whole_counts(self.minibatch(conditions.take(chosen).to(device), library, generator)))
        return sparse.vstack(drawn, format="csr")

    def matched(
        self,
        cells: Cells,
        generator: torch.Generator,
        library: Callable[[Tensor, Conditions[Tensor]], Tensor] | None = None,
    ) -> sparse.csr_matrix:
        """Draw matched samples: new cells with the conditions and, by default, the library sizes of given cells."""

        def draw(counts: Tensor, conditions: Conditions[Tensor]) -> sparse.csr_matrix:
            sizes = self.module.library(counts) if library is None else library(counts, conditions)
            return whole_counts(self.minibatch(conditions, sizes, generator))

        return cells.in_order(self.over_cells(cells, draw))

    def deepened(self, cells: Cells, factor: float, generator: torch.Generator) -> sparse.csr_matrix:
        """Add molecules to given cells until each has ``factor`` times its library size."""
        module: Any = self.module  # a ThinningModule

        def draw(counts: Tensor, conditions: Conditions[Tensor]) -> sparse.csr_matrix:
            library, start = (module.library(counts) * factor).round(), counts.to_dense()
            if library.max() > LARGEST_LIBRARY:
                raise ValueError(
                    f"`factor` is {factor:g}, with which a cell would have {library.max():g} molecules: pass a smaller "
                    f"factor, with which all cells have at most {LARGEST_LIBRARY:,} (counted exactly)."
                )
            predictor = module.predictor(conditions, len(counts))
            return whole_counts(module.draw(predictor, library, start=start, n_steps=self.n_steps, generator=generator))

        return cells.in_order(self.over_cells(cells, draw))

    def sequenced_again(self, cells: Cells, n_samples: int, generator: torch.Generator) -> list[sparse.csr_matrix]:
        """Sequence given cells again: draw as many new molecules as the cells have, ``n_samples`` times."""
        own = cells.in_order([whole_counts(counts.to_dense()) for counts, _ in cells])
        return [self.deepened(cells, 2.0, generator) - own for _ in range(n_samples)]

    def minibatch(self, conditions: Conditions[Tensor], library: Tensor, generator: torch.Generator) -> Tensor:
        """Draw one minibatch: dense counts ``(cells, genes)``."""
        if not self.by_regression:
            return self._by_network(conditions, library, generator)
        module: Any = self.module  # a JointThinningModule
        whole, library = (library > 0).all(1), library.clone()
        for draw in self.by_regression:
            library[whole, draw.target] = 0
        drawn, rows = self._by_network(conditions, library, generator), whole.nonzero().flatten().cpu().numpy()
        seed = int(torch.randint(2**62, (1,), generator=generator, device=generator.device))
        for draw in self.by_regression if len(rows) else ():
            counts = drawn.to_sparse_csr()
            tokens = module.tokens(counts, conditions).flatten(1).cpu().numpy()
            columns, _ = draw.draw(counts, tokens, module.blocks, rows, np.random.default_rng([seed, draw.target]))
            drawn[whole, module.blocks.slices[draw.target]] = torch.from_numpy(columns).to(drawn)
        return drawn

    def _by_network(self, conditions: Conditions[Tensor], library: Tensor, generator: torch.Generator) -> Tensor:
        """Draw one minibatch by the network; transferred responses are applied to drawn untreated cells."""
        module: Any = self.module
        options = {"guidance_scale": self.guidance_scale, "n_steps": self.n_steps, "generator": generator}
        if (found := self._response(conditions)) is None:
            return module.generate(conditions, library, **options)
        (name, response), treatment = found, conditions[found[0]]
        known = torch.from_numpy(response.known).to(library.device)
        untransferred = treatment._replace(mask=treatment.mask & ~known[:, None])
        drawn = module.generate(conditions.replace({name: untransferred}), library, **options)
        return response.apply(drawn, generator, keep_library=True) if known.any() else drawn

    def annotate(self, obs: pd.DataFrame, conditions: Conditions[np.ndarray]) -> pd.DataFrame:
        """Add source and check of the responses of treated cells to the ``.obs`` of generated cells."""
        if (found := self._response(conditions.to(torch.device("cpu")))) is None:
            return obs
        columns = found[1].columns().set_axis(obs.index)
        source = columns["response_source"].cat.add_categories("sampled")  # learned from cells of the same conditions
        columns["response_source"] = source.mask((source == "network") & ~obs[UNSEEN], "sampled")
        columns.loc[~conditions[found[0]].mask.any(1)] = np.nan
        return obs.join(columns)

    @property
    def response_scale(self) -> float:
        """Return the factor of transferred responses."""
        if not isinstance(self.guidance_scale, Mapping):
            return self.guidance_scale
        return next(
            (self.guidance_scale[name] for name in self.module.intervention_names if name in self.guidance_scale), 1.0
        )

    def _response(self, conditions: Conditions[Tensor]) -> tuple[str, CellResponses] | None:
        """Name the effect among the conditions, and look up responses of contexts that were not measured with it."""
        module: Any = self.module
        for name in conditions.only(module.intervention_names):
            if self.responses is None:
                return name, CellResponses.of_network(conditions.n_cells)
            treatment, scale = conditions[name], self.response_scale
            untreated = conditions.replace({name: treatment._replace(mask=torch.zeros_like(treatment.mask))})
            return name, self.responses.responses(untreated, conditions, scale, unmeasured_only=True)
        return None


def whole_counts(counts: Tensor) -> sparse.csr_matrix:
    """Convert dense integer counts ``(cells, genes)`` to int32 CSR."""
    return to_scipy(counts.to_sparse_csr()).astype(np.int32)  # sparse on the device, to copy less
