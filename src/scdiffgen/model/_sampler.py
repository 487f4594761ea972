"""Sampling of cells in minibatches, in this process or on a worker."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
import pandas as pd
import torch
from scipy import sparse
from scvi.utils import track
from torch import Tensor

from scdiffgen._arguments import LARGEST_LIBRARY
from scdiffgen._messages import warn_user
from scdiffgen.conditions import UNSEEN, Conditions
from scdiffgen.diffusion import to_scipy
from scdiffgen.module import UNGUIDED, DiffusionModule, Guidance

from ._cells import BATCH_SIZE, Cells
from ._modality_imputer import CountDraw
from ._transferred_responses import UNKNOWN_RESPONSE, CellResponses, ResponseModel, without_treatment

N_STEPS, FEW_STEPS = 32, 16
SHALLOW = 2_500.0  # mean library size up to which few steps are enough


@dataclass(frozen=True)
class Sampler:
    """Sampler of cells; responses to unmeasured treatments are transferred to drawn untreated cells."""

    module: DiffusionModule
    responses: ResponseModel | None = None
    guidance: Guidance = UNGUIDED
    n_steps: int = N_STEPS
    batch_size: int = BATCH_SIZE
    by_regression: Sequence[CountDraw] = ()  # modalities that are drawn by regression on the other modalities

    @torch.no_grad()
    def sample(
        self, given: Conditions[np.ndarray], sizes: np.ndarray, generator: torch.Generator, shown: str | None = None
    ) -> sparse.csr_matrix:
        """Draw a cell of ``sizes`` molecules for each row, with a progress bar if ``shown`` names it."""
        device, drawn, found = self.module.device, [], self.transferred(given)
        rows = np.split(np.arange(len(sizes)), range(self.batch_size, len(sizes), self.batch_size))
        for chosen in track(rows, shown or "", disable=shown is None or len(rows) < 2):
            library = torch.from_numpy(sizes[chosen]).float().to(device)
            drawn.append(self._with_responses(given.take(chosen), found.take(chosen), library, generator))
        return sparse.vstack(drawn, format="csr")

    def transferred(self, conditions: Conditions[np.ndarray]) -> CellResponses:
        """Look up the responses that are transferred to cells; the network draws all other cells."""
        if self.responses is None or not conditions.only(self.module.intervention_names):
            return CellResponses.of_network(conditions.n_cells)
        return self.responses.transferred(conditions, self.response_scale)

    def matched(
        self,
        cells: Cells,
        generator: torch.Generator,
        library: Callable[[Tensor, Conditions[Tensor]], Tensor] | None = None,
    ) -> sparse.csr_matrix:
        """Draw matched samples: new cells with the conditions and, by default, the library sizes of given cells."""

        def draw(counts: Tensor, conditions: Conditions[Tensor]) -> sparse.csr_matrix:
            sizes = self.module.library(counts) if library is None else library(counts, conditions)
            return self.minibatch(conditions, sizes, generator)

        return cells.in_order([draw(*batch) for batch in cells])

    def deepened(self, cells: Cells, factor: float, generator: torch.Generator) -> sparse.csr_matrix:
        """Add molecules to given cells until each has ``factor`` times its library size."""
        module = self.module

        def draw(counts: Tensor, conditions: Conditions[Tensor]) -> sparse.csr_matrix:
            library, start = (module.library(counts) * factor).round(), counts.to_dense()
            if library.max() > LARGEST_LIBRARY:
                raise ValueError(
                    f"`factor` is {factor:g}, with which a cell would have {library.max():g} molecules: pass a smaller "
                    f"factor, with which all cells have at most {LARGEST_LIBRARY:,} (counted exactly)."
                )
            deeper = module.generate(conditions, library, start=start, n_steps=self.n_steps, generator=generator)
            return whole_counts(deeper)

        return cells.in_order([draw(*batch) for batch in cells])

    def sequenced_again(self, cells: Cells, n_samples: int, generator: torch.Generator) -> list[sparse.csr_matrix]:
        """Sequence given cells again: draw as many new molecules as the cells have, ``n_samples`` times."""
        own = cells.in_order([whole_counts(counts.to_dense()) for counts, _ in cells])
        return [self.deepened(cells, 2.0, generator) - own for _ in range(n_samples)]

    def minibatch(
        self, conditions: Conditions[Tensor], library: Tensor, generator: torch.Generator
    ) -> sparse.csr_matrix:
        """Draw one minibatch of counts ``(cells, genes)`` under the conditions of given cells."""
        if self.responses is None or not conditions.only(self.module.intervention_names):
            return whole_counts(self._drawn(conditions, library, generator))  # conditions stay on the device
        given = conditions.numpy()
        return self._with_responses(given, self.transferred(given), library, generator)

    def _with_responses(
        self, given: Conditions[np.ndarray], found: CellResponses, library: Tensor, generator: torch.Generator
    ) -> sparse.csr_matrix:
        """Draw one minibatch; transferred responses apply to drawn untreated cells."""
        known = found.known
        if known.any():
            given = without_treatment(given, self.module.specs, known)
        drawn = whole_counts(self._drawn(given.to(library.device), library, generator))
        return found.apply(drawn, generator, keep_library=True) if known.any() else drawn

    def _drawn(self, conditions: Conditions[Tensor], library: Tensor, generator: torch.Generator) -> Tensor:
        """Draw one minibatch by the network, and some modalities by regression on the others."""
        module, blocks = self.module, self.module.blocks
        draw_new = partial(
            module.generate, conditions, guidance=self.guidance, n_steps=self.n_steps, generator=generator
        )
        if not self.by_regression:
            return draw_new(library)
        whole, library = (library > 0).all(1), library.clone()
        for draw in self.by_regression:
            library[whole, draw.target] = 0
        drawn, rows = draw_new(library), whole.nonzero().flatten().cpu().numpy()
        seed = int(torch.randint(2**62, (1,), generator=generator, device=generator.device))
        for draw in self.by_regression if len(rows) else ():
            counts = drawn.to_sparse_csr()
            tokens = module.tokens(counts, conditions).flatten(1).cpu().numpy()
            columns, _ = draw.draw(counts, tokens, blocks, rows, np.random.default_rng([seed, draw.target]))
            drawn[whole, blocks.slices[draw.target]] = torch.from_numpy(columns).to(drawn)
        return drawn

    def annotate(self, obs: pd.DataFrame, conditions: Conditions[np.ndarray]) -> pd.DataFrame:
        """Add source and check of the responses of treated cells to the ``.obs`` of generated cells."""
        treated = conditions.only(self.module.intervention_names)
        if not treated:
            return obs
        is_treated = np.any([x.mask.any(1) for x in treated.values()], 0)
        columns = self.transferred(conditions).columns(is_trained=~obs[UNSEEN].to_numpy()).set_axis(obs.index)
        if (is_treated & (columns["response_source"] == "network")).any():
            warn_user(UNKNOWN_RESPONSE)
        columns.loc[~is_treated] = np.nan
        return obs.join(columns)

    @property
    def response_scale(self) -> float:
        """Factor of transferred responses."""
        scale, names = self.guidance.scale, self.module.intervention_names
        return next((scale[name] for name in names if name in scale), 1.0) if isinstance(scale, Mapping) else scale


def whole_counts(counts: Tensor) -> sparse.csr_matrix:
    """Convert dense integer counts ``(cells, genes)`` to int32 CSR."""
    return to_scipy(counts.to_sparse_csr()).astype(np.int32)  # sparse on the device, to copy less
