"""Paths: corruption of a coded cell (``corrupt``) and its reversal (``reverse``), without weights.

:class:`Thinning` removes molecules and draws them again; :class:`GaussianPath` adds noise and removes it. The
mathematics is in :mod:`scdiffgen.diffusion`.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, TypeAlias

import torch
from torch import Tensor

from scdiffgen import diffusion
from scdiffgen.diffusion import Blocks, Rng, Thinned, gaussian

from ._process_options import Ability, GaussianOptions

Predict: TypeAlias = Callable[[Any, Tensor], Any]
"""``predict(state, library)``: a distribution with ``loss`` and ``guided``, given a corrupted state; see ``bind``."""


class Path(ABC):
    """Base class of paths."""

    abilities: frozenset[Ability] = frozenset()

    def __init__(self, blocks: Blocks, options: Any) -> None:
        self.blocks = blocks

    @abstractmethod
    def corrupt(self, coded: Tensor, generator: Rng = None) -> Any:
        """Corrupt coded cells to random training levels; the result has the ``state`` and the truth."""

    @abstractmethod
    def start(self, library: Tensor, length: int, generator: Rng = None) -> Any:
        """Return the states of ``library`` cells of which nothing is left."""

    @abstractmethod
    def keep(self, coded: Tensor, share: float, generator: Rng = None) -> Any:
        """Corrupt coded cells until a ``share`` is left, and return the states."""

    def corrupt_uniformly(self, coded: Tensor, generator: Rng = None) -> Any:
        """Corrupt coded cells to the levels of the likelihood bound, if the process has a likelihood."""
        raise NotImplementedError

    def couple(
        self, coded: Tensor, log_prob: Tensor, before: Predict, after: Predict, library: Tensor, generator: Rng = None
    ) -> Tensor:
        """Change coded cells as little as the change of the prediction allows, if the code is kept by coupling."""
        raise NotImplementedError

    @abstractmethod
    def reverse(self, predict: Predict, state: Any, library: Tensor, n_steps: int, generator: Rng = None) -> Tensor:
        """Draw coded cells from states in ``n_steps`` steps."""


class Thinning(Path):
    """Binomial thinning of molecules, with a separate level for each modality; states are present molecules."""

    abilities: frozenset[Ability] = frozenset({"likelihoods", "adding molecules"})

    def corrupt(self, coded: Tensor, generator: Rng = None) -> Thinned:
        levels = diffusion.thinning_levels if len(self.blocks.sizes) == 1 else diffusion.block_levels
        return diffusion.thin(coded, levels(self.blocks.library(coded), generator), generator, self.blocks)

    def start(self, library: Tensor, length: int, generator: Rng = None) -> Tensor:
        return library.new_zeros(len(library), length)

    def keep(self, coded: Tensor, share: float | Tensor, generator: Rng = None) -> Tensor:
        share = torch.as_tensor(share, device=coded.device).expand(len(coded))
        return diffusion.thin(coded, share, generator, self.blocks).state.to_dense()

    def corrupt_uniformly(self, coded: Tensor, generator: Rng = None) -> Thinned:
        """Keep a uniform number of molecules of each CSR cell, from 0 to all but one."""
        library = diffusion.row_sums(coded, coded.values())
        uniform = torch.rand(library.shape, generator=generator, device=library.device)
        return diffusion.thin_to(coded, (uniform * library).long(), generator, self.blocks)

    def reverse(self, predict: Predict, state: Tensor, library: Tensor, n_steps: int, generator: Rng = None) -> Tensor:
        """Add molecules to dense cells until they have ``library`` molecules (of each modality)."""
        count = self.blocks.dense_sums
        return diffusion.grow_molecules(predict, library, state, n_steps=n_steps, generator=generator, count=count)

    def couple(
        self, coded: Tensor, log_prob: Tensor, before: Predict, after: Predict, library: Tensor, generator: Rng = None
    ) -> Tensor:
        """Resample as few molecules of CSR cells as the change from ``before`` to ``after`` needs: dense counts.

        The change of ``log_prob`` ``(cells, genes)`` is averaged over random subsets of few molecules.
        """
        n_readings, n_read = 8, 4  # number of random subsets per cell, and mean number of molecules per subset
        share = (n_read / diffusion.row_sums(coded, coded.values())).clamp(max=1)
        change = torch.zeros(coded.shape, device=coded.device)
        for _ in range(n_readings):
            state = self.keep(coded, share, generator)
            change += after(state, library).log_prob(state) - before(state, library).log_prob(state)
        dense = coded.to_dense(), log_prob, log_prob + change / n_readings
        parts = zip(*(array.split(self.blocks.sizes, 1) for array in dense), strict=True)
        coupled = [diffusion.couple_molecules(cells, old, new, generator) for cells, old, new in parts]
        return torch.cat(coupled, dim=1)


class GaussianPath(Path):
    """Gaussian noise on one vector per cell; states are noisy vectors with their times."""

    def __init__(self, blocks: Blocks, options: GaussianOptions) -> None:
        super().__init__(blocks, options)
        self.prediction = options.prediction
        self.sampler = options.sampler
        self.schedule = gaussian.SCHEDULES[options.schedule]

    def corrupt(self, coded: Tensor, generator: Rng = None) -> gaussian.Noised:
        return self.add_noise(coded, gaussian.noise_times(len(coded), generator, coded.device), generator)

    def add_noise(self, vector: Tensor, time: Tensor, generator: Rng = None) -> gaussian.Noised:
        noise = torch.randn(vector.shape, generator=generator, device=vector.device)
        return gaussian.Noised(vector, gaussian.Noisy(gaussian.add_noise(vector, noise, self.schedule(time)), time))

    def start(self, library: Tensor, length: int, generator: Rng = None) -> gaussian.Noisy:
        noise = torch.randn(len(library), length, generator=generator, device=library.device)
        return gaussian.Noisy(noise, gaussian.TIME_MAX)

    def keep(self, coded: Tensor, share: float, generator: Rng = None) -> gaussian.Noisy:
        """Add noise until a ``share`` of the variance is signal."""
        time = self.schedule.time_of_signal(torch.tensor(share))
        return self.add_noise(coded, time.to(coded), generator).state._replace(time=time)

    def reverse(
        self, predict: Predict, state: gaussian.Noisy, library: Tensor, n_steps: int, generator: Rng = None
    ) -> Tensor:
        """Denoise vectors; the last step removes all remaining noise."""
        grid = gaussian.even_times if self.sampler == "ancestral" else gaussian.even_log_snr
        times = grid(float(state.time), n_steps, self.schedule).to(state.values)

        def denoise(values: Tensor, time: Tensor) -> gaussian.GaussianPrediction:
            return predict(gaussian.Noisy(values, time), library)

        solved = gaussian.SAMPLERS[self.sampler](denoise, state.values, times, self.schedule, generator)
        return denoise(solved, times[-1]).mean
