"""The processes: how cells are corrupted, scored and drawn, without weights; formulae: :mod:`scdiffgen.diffusion`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias

import torch
from torch import Tensor

from scdiffgen import diffusion
from scdiffgen.conditions import Conditions
from scdiffgen.diffusion import BlockPrediction, Blocks, Denoise, MoleculePrediction, MoleculePredictor, Thinned

from ._process_options import GaussianOptions

Rng: TypeAlias = torch.Generator | None
"""A source of randomness; None is torch's own."""

Given: TypeAlias = Conditions[Tensor]
"""Conditions of the cells of a minibatch."""

Scale: TypeAlias = float | Mapping[str, float]
"""One scale for all conditions, or one for each by name."""

Predictor = Callable[..., Any]
"""A network whose conditions are bound; what it takes and returns is between its denoiser and its process."""

VectorPredictor = Callable[[Tensor], Denoise]
"""Library sizes ``(cells,)`` to a denoiser of their vectors; conditions are bound."""


class Thinning:
    """Molecules are taken away one by one, and put back."""

    guide = staticmethod(diffusion.guide)
    count: Callable[[Tensor], Tensor] = staticmethod(diffusion.molecules_of_cells)

    def corrupt(self, counts: Tensor, generator: Rng = None) -> Thinned:
        """Thin CSR cells to levels drawn for training."""
        levels = diffusion.thinning_levels(diffusion.row_sums(counts, counts.values()), generator)
        return diffusion.thin(counts, levels, generator)

    def keep(self, counts: Tensor, share: float | Tensor, generator: Rng = None) -> Thinned:
        """Thin CSR cells to a share of their molecules, the same for all or one a cell ``(cells,)``."""
        return diffusion.thin(counts, torch.as_tensor(share, device=counts.device).expand(len(counts)), generator)

    def keep_any_number(self, counts: Tensor, generator: Rng = None) -> Thinned:
        """Keep a uniform number of molecules of each CSR cell, from none to all but one, as :meth:`bound` needs it."""
        library = diffusion.row_sums(counts, counts.values())
        uniform = torch.rand(library.shape, generator=generator, device=library.device)
        return diffusion.thin_to(counts, (uniform * library).long(), generator)

    def score(self, prediction: Any, thinned: Thinned) -> Tensor:
        """Cross-entropy ``(cells,)`` of a missing molecule, in nats."""
        return diffusion.molecule_loss(prediction, thinned)

    def bound(self, prediction: Any, thinned: Thinned, counts: Tensor) -> Tensor:
        """One draw ``(cells,)`` of the bound on ``-log p(cell | library size)``, in nats."""
        return diffusion.likelihood_bound(diffusion.molecule_loss(prediction, thinned), counts)

    def draw(
        self, predictor: MoleculePredictor, start: Tensor, library: Tensor, *, n_steps: int, generator: Rng = None
    ) -> Tensor:
        """Add molecules to dense cells, or to each of their modalities, until they have ``library`` of them."""
        return diffusion.grow_molecules(
            predictor, library, start, n_steps=n_steps, generator=generator, count=self.count
        )

    def couple(self, counts: Tensor, log_prob: Tensor, change: Tensor, generator: Rng = None) -> Tensor:
        """Move dense cells from given log-probabilities ``(cells, genes)`` to changed ones, and resize them."""
        return diffusion.couple_molecules(counts, log_prob, log_prob + change, generator)


@torch.no_grad()
def growth_path(
    predictor: MoleculePredictor, library: Tensor, n_genes: int, n_steps: int, generator: Rng = None
) -> tuple[Tensor, Tensor]:
    """Sample cells from nothing: all states, and the full cells expected at each, ``(cells, states, genes)``."""
    states, expected = [], []

    def recording(state: Tensor, library: Tensor) -> MoleculePrediction:
        prediction = predictor(state, library)
        missing = (library - state.sum(1)).clamp(min=0)[:, None]
        states.append(state.clone())
        expected.append(state + missing * prediction.log_prob(state).exp())
        return prediction

    empty = library.new_zeros(len(library), n_genes)
    full = diffusion.grow_molecules(recording, library, empty, n_steps=n_steps, generator=generator)
    return torch.stack([*states, full], dim=1), torch.stack([*expected, full], dim=1)


class BlockThinning(Thinning):
    """Thinning of several modalities side by side: each has its own level, library size and softmax."""

    def __init__(self, blocks: Blocks) -> None:
        self.blocks, self.count = blocks, blocks.dense_sums

    def corrupt(self, counts: Tensor, generator: Rng = None) -> Thinned:
        """Thin each modality to a level of its own."""
        library = self.blocks.sums(counts, counts.values())
        return diffusion.thin_blocks(counts, diffusion.block_levels(library, generator), self.blocks, generator)

    def keep(self, counts: Tensor, share: float | Tensor, generator: Rng = None) -> Thinned:
        """Thin CSR cells to a share of their molecules, of every modality."""
        return diffusion.split_thinned(super().keep(counts, share, generator), self.blocks)

    def keep_any_number(self, counts: Tensor, generator: Rng = None) -> Thinned:
        """Keep a uniform number of the molecules of all modalities together."""
        return diffusion.split_thinned(super().keep_any_number(counts, generator), self.blocks)

    def score(self, prediction: BlockPrediction, thinned: Thinned) -> Tensor:
        """Mean cross-entropy ``(cells,)`` over the modalities of which molecules are missing."""
        missing = (thinned.library > thinned.n_molecules).float()
        return (diffusion.block_loss(prediction, thinned) * missing).sum(1) / missing.sum(1).clamp(min=1)

    def bound(self, prediction: BlockPrediction, thinned: Thinned, counts: Tensor) -> Tensor:
        """One draw ``(cells,)`` of the bound on ``-log p(cell | library sizes)``, in nats."""
        return diffusion.block_likelihood_bound(prediction, thinned, counts)

    def couple(self, counts: Tensor, log_prob: Tensor, change: Tensor, generator: Rng = None) -> Tensor:
        """Move dense cells, each modality by itself."""
        couple = super().couple
        parts = zip(*(array.split(self.blocks.sizes, 1) for array in (counts, log_prob, change)), strict=True)
        return torch.cat([couple(there, log, moved, generator) for there, log, moved in parts], dim=1)


class Noisy(NamedTuple):
    """Vectors, and what noise has made of them."""

    clean: Tensor  # (cells, length)
    state: Tensor  # (cells, length)
    time: Tensor  # (cells,)


class GaussianDiffusion:
    """Noise is added to a vector of each cell, and taken away."""

    def __init__(self, options: GaussianOptions) -> None:
        self.options = options
        self.level = diffusion.SCHEDULES[options.schedule]

    def corrupt(self, vector: Tensor, generator: Rng = None) -> Noisy:
        """Add noise at times drawn for training."""
        time = diffusion.noise_times(len(vector), generator, vector.device)
        return Noisy(vector, self._with_noise(vector, time, generator), time)

    def score(self, predicted: Tensor, noisy: Noisy) -> Tensor:
        """Squared error ``(cells,)`` of the prediction, from predicted vectors without noise."""
        weight = diffusion.error_weight(self.options.prediction, self.level(noisy.time))
        return diffusion.gaussian_loss(predicted, noisy.clean, weight)

    def draw(self, denoise: Denoise, noisy: Tensor, start: float, *, n_steps: int, generator: Rng = None) -> Tensor:
        """Free vectors of their noise, in ``n_steps`` of which the last takes away what is left."""
        run = diffusion.sampler(self.options.sampler, generator)
        times = diffusion.time_grid(n_steps, start, diffusion.TIME_MIN, noisy.device)
        return denoise(run(denoise, noisy, times, self.level), times[-1])

    def redraw(self, vector: Tensor, start: Tensor, denoise: Denoise, *, n_steps: int, generator: Rng = None) -> Tensor:
        """Add random noise up to the time ``start``, and take it away again."""
        noisy = self._with_noise(vector, start, generator)
        return self.draw(denoise, noisy, float(start), n_steps=n_steps, generator=generator)

    def guide(
        self, unconditional: VectorPredictor, conditional: Sequence[VectorPredictor], scales: Sequence[float]
    ) -> VectorPredictor:
        """Guide the expected vector, along the line between two of them."""
        return lambda library: diffusion.guide_denoisers(
            unconditional(library), [each(library) for each in conditional], scales
        )

    def _with_noise(self, vector: Tensor, time: Tensor, generator: Rng) -> Tensor:
        noise = torch.randn(vector.shape, generator=generator, device=vector.device)
        return diffusion.add_noise(vector, noise, self.level(time))
