"""The processes: how cells are corrupted, scored and drawn, without weights; formulae: :mod:`scdiffgen.diffusion`."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias

import torch
from torch import Tensor

from scdiffgen import diffusion
from scdiffgen.conditions import Conditions
from scdiffgen.diffusion import Blocks, Denoise, MoleculePredictor, Rng, Thinned
from scdiffgen.nn import check_choices

Given: TypeAlias = Conditions[Tensor]
"""Conditions of the cells of a minibatch."""

Scale: TypeAlias = float | Mapping[str, float]
"""One scale for all conditions, or one for each by name."""

Predictor = Callable[..., Any]
"""A network whose conditions are bound; what it takes and returns is between its denoiser and its process."""

VectorPredictor = Callable[[Tensor], Denoise]
"""Library sizes ``(cells,)`` to a denoiser of their vectors; conditions are bound."""


class Thinning:
    """Molecules are taken away one by one, and put back; those of several modalities each at a level of its own."""

    guide = staticmethod(diffusion.guide)

    def __init__(self, blocks: Blocks | None = None) -> None:
        self.blocks = blocks

    def corrupt(self, counts: Tensor, generator: Rng = None) -> Thinned:
        """Thin CSR cells to levels drawn for training."""
        if self.blocks is None:
            return diffusion.thin(counts, diffusion.thinning_levels(_library(counts), generator), generator)
        levels = diffusion.block_levels(self.blocks.sums(counts, counts.values()), generator)
        return diffusion.thin_blocks(counts, levels, self.blocks, generator)

    def keep(self, counts: Tensor, share: float | Tensor, generator: Rng = None) -> Thinned:
        """Thin CSR cells to a share of all their molecules, the same for all or one a cell ``(cells,)``."""
        share = torch.as_tensor(share, device=counts.device).expand(len(counts))
        return self._by_modality(diffusion.thin(counts, share, generator))

    def keep_any_number(self, counts: Tensor, generator: Rng = None) -> Thinned:
        """Keep a uniform number of molecules of each CSR cell, from none to all but one, as :meth:`bound` needs it."""
        library = _library(counts)
        uniform = torch.rand(library.shape, generator=generator, device=library.device)
        return self._by_modality(diffusion.thin_to(counts, (uniform * library).long(), generator))

    def score(self, prediction: Any, thinned: Thinned) -> Tensor:
        """Cross-entropy ``(cells,)`` of a missing molecule, in nats; the mean over modalities that miss some."""
        if self.blocks is None:
            return diffusion.molecule_loss(prediction, thinned)
        missing = (thinned.library > thinned.n_molecules).float()
        return (diffusion.block_loss(prediction, thinned) * missing).sum(1) / missing.sum(1).clamp(min=1)

    def bound(self, prediction: Any, thinned: Thinned, counts: Tensor) -> Tensor:
        """One draw ``(cells,)`` of the bound on ``-log p(cell | library sizes)``, in nats."""
        if self.blocks is None:
            return diffusion.likelihood_bound(diffusion.molecule_loss(prediction, thinned), counts)
        return diffusion.block_likelihood_bound(prediction, thinned, counts)

    def draw(
        self, predictor: MoleculePredictor, start: Tensor, library: Tensor, *, n_steps: int, generator: Rng = None
    ) -> Tensor:
        """Add molecules to dense cells, or to each of their modalities, until they have ``library`` of them."""
        count = None if self.blocks is None else self.blocks.dense_sums
        return diffusion.grow_molecules(predictor, library, start, n_steps=n_steps, generator=generator, count=count)

    def couple(self, counts: Tensor, log_prob: Tensor, change: Tensor, generator: Rng = None) -> Tensor:
        """Move dense cells from given log-probabilities ``(cells, genes)`` to changed ones, each modality by itself."""
        sizes = self.blocks.sizes if self.blocks is not None else counts.shape[1]
        parts = zip(*(array.split(sizes, 1) for array in (counts, log_prob, log_prob + change)), strict=True)
        moved = [diffusion.couple_molecules(cells, before, after, generator) for cells, before, after in parts]
        return torch.cat(moved, dim=1)

    def _by_modality(self, thinned: Thinned) -> Thinned:
        return thinned if self.blocks is None else diffusion.split_thinned(thinned, self.blocks)


def _library(counts: Tensor) -> Tensor:
    return diffusion.row_sums(counts, counts.values())


@dataclass(frozen=True)
class GaussianOptions:
    """Settings of ``process="gaussian"``, passed in place of the name.

    Parameters
    ----------
    prediction
        What is predicted, with uniformly weighted squared error: data ``"x0"``, noise ``"eps"`` or velocity ``"v"``.
    schedule
        How the noise grows: ``"linear"`` (DDPM), ``"cosine"`` or ``"rectified"`` (straight, as in flow matching).
    sampler
        ``"ddim"``, ``"dpm_solver"``, or ``"ancestral"`` (DDPM's, with new noise at each step).

    Examples
    --------
    >>> import scdiffgen
    >>> adata = scdiffgen.datasets.pbmc68k()
    >>> scdiffgen.model.setup_anndata(adata, layer="counts", labels_key="cell_type")
    >>> options = scdiffgen.model.GaussianOptions(prediction="v", sampler="ddim")
    >>> model = scdiffgen.model.TokenDiffusion(adata, process=options)
    """

    prediction: diffusion.PredictionKind = "eps"
    schedule: diffusion.ScheduleKind = "cosine"
    sampler: diffusion.SamplerKind = "dpm_solver"

    def __post_init__(self) -> None:
        check_choices(self)


@dataclass(frozen=True)
class LatentOptions(GaussianOptions):
    """Settings of ``process="latent"``, passed in place of the name: of the diffusion of tokens and the autoencoder.

    Parameters
    ----------
    prediction, schedule, sampler
        As in :class:`GaussianOptions`.
    latent_dim
        Length of a token.
    autoencoder_share
        Share of the epochs in which the autoencoder is trained, before the diffusion of its tokens.

    Examples
    --------
    >>> import scdiffgen
    >>> adata = scdiffgen.datasets.pbmc68k()
    >>> scdiffgen.model.setup_anndata(adata, layer="counts", labels_key="cell_type")
    >>> options = scdiffgen.model.LatentOptions(latent_dim=4)
    >>> model = scdiffgen.model.TokenDiffusion(adata, process=options)
    """

    prediction: diffusion.PredictionKind = "x0"
    latent_dim: int = 8
    autoencoder_share: float = 0.4

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.latent_dim < 1:
            raise ValueError(f"`latent_dim` is {self.latent_dim}: pass a positive integer.")
        if not 0 < self.autoencoder_share < 1:
            raise ValueError(f"`autoencoder_share` is {self.autoencoder_share}: pass a share in (0, 1).")


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

    def corrupt(self, vector: Tensor, generator: Rng = None, time: Tensor | None = None) -> Noisy:
        """Add noise at a time, by default at times drawn for training."""
        time = diffusion.noise_times(len(vector), generator, vector.device) if time is None else time
        noise = torch.randn(vector.shape, generator=generator, device=vector.device)
        return Noisy(vector, diffusion.add_noise(vector, noise, self.level(time)), time)

    def score(self, predicted: Tensor, noisy: Noisy) -> Tensor:
        """Squared error ``(cells,)`` of the prediction, from predicted vectors without noise."""
        weight = diffusion.error_weight(self.options.prediction, self.level(noisy.time))
        return diffusion.gaussian_loss(predicted, noisy.clean, weight)

    def draw(self, denoise: Denoise, noisy: Tensor, start: float, *, n_steps: int, generator: Rng = None) -> Tensor:
        """Free vectors of their noise, in ``n_steps`` of which the last takes away what is left."""
        kind = self.options.sampler
        grid = diffusion.even_times if kind == "ancestral" else diffusion.even_log_snr
        times = grid(start, n_steps, self.level).to(noisy)
        return denoise(diffusion.SAMPLERS[kind](denoise, noisy, times, self.level, generator), times[-1])

    def guide(
        self, unconditional: VectorPredictor, conditional: Sequence[VectorPredictor], scales: Sequence[float]
    ) -> VectorPredictor:
        """Guide the expected vector, along the line between two of them."""
        return lambda library: diffusion.guide_denoisers(
            unconditional(library), [each(library) for each in conditional], scales
        )
