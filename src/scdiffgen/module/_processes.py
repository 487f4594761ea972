"""Processes, which corrupt, score and draw cells and have no weights; formulae: :mod:`scdiffgen.diffusion`."""

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
"""One guidance scale for all conditions, or one per name."""

Predictor = Callable[..., Any]
"""Network with bound conditions; its arguments depend on the denoiser and the process."""

VectorPredictor = Callable[[Tensor], Denoise]
"""Maps library sizes ``(cells,)`` to a denoiser of vectors; conditions are bound."""


class Thinning:
    """Binomial thinning of molecules and its reversal, with a separate level for each modality."""

    guide = staticmethod(diffusion.guide)

    def __init__(self, blocks: Blocks | None = None) -> None:
        self.blocks = blocks

    def corrupt(self, counts: Tensor, generator: Rng = None) -> Thinned:
        """Thin CSR cells to random training levels."""
        if self.blocks is None:
            return diffusion.thin(counts, diffusion.thinning_levels(_library(counts), generator), generator)
        levels = diffusion.block_levels(self.blocks.sums(counts, counts.values()), generator)
        return diffusion.thin_blocks(counts, levels, self.blocks, generator)

    def keep(self, counts: Tensor, share: float | Tensor, generator: Rng = None) -> Thinned:
        """Thin CSR cells to a share of their molecules, one for all cells or ``(cells,)``."""
        share = torch.as_tensor(share, device=counts.device).expand(len(counts))
        return self._by_modality(diffusion.thin(counts, share, generator))

    def keep_any_number(self, counts: Tensor, generator: Rng = None) -> Thinned:
        """Keep a uniform number of molecules of each CSR cell, from 0 to all but one, for :meth:`bound`."""
        library = _library(counts)
        uniform = torch.rand(library.shape, generator=generator, device=library.device)
        return self._by_modality(diffusion.thin_to(counts, (uniform * library).long(), generator))

    def score(self, prediction: Any, thinned: Thinned) -> Tensor:
        """Compute the cross-entropy ``(cells,)`` of a missing molecule in nats, averaged over modalities."""
        if self.blocks is None:
            return diffusion.molecule_loss(prediction, thinned)
        missing = (thinned.library > thinned.n_molecules).float()
        return (diffusion.block_loss(prediction, thinned) * missing).sum(1) / missing.sum(1).clamp(min=1)

    def bound(self, prediction: Any, thinned: Thinned, counts: Tensor) -> Tensor:
        """Compute an unbiased estimate of the bound ``(cells,)`` on ``-log p(cell | library sizes)``, in nats."""
        if self.blocks is None:
            return diffusion.likelihood_bound(diffusion.molecule_loss(prediction, thinned), counts)
        return diffusion.block_likelihood_bound(prediction, thinned, counts)

    def draw(
        self, predictor: MoleculePredictor, start: Tensor, library: Tensor, *, n_steps: int, generator: Rng = None
    ) -> Tensor:
        """Add molecules to dense cells until they have ``library`` molecules (of each modality)."""
        count = None if self.blocks is None else self.blocks.dense_sums
        return diffusion.grow_molecules(predictor, library, start, n_steps=n_steps, generator=generator, count=count)

    def couple(self, counts: Tensor, log_prob: Tensor, change: Tensor, generator: Rng = None) -> Tensor:
        """Couple dense cells to changed log-probabilities ``(cells, genes)`` within each modality."""
        sizes = self.blocks.sizes if self.blocks is not None else counts.shape[1]
        parts = zip(*(array.split(sizes, 1) for array in (counts, log_prob, log_prob + change)), strict=True)
        coupled = [diffusion.couple_molecules(cells, before, after, generator) for cells, before, after in parts]
        return torch.cat(coupled, dim=1)

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
        Target of the prediction: data ``"x0"``, noise ``"eps"`` or velocity ``"v"``, with uniform squared error.
    schedule
        Noise schedule: ``"linear"`` (DDPM), ``"cosine"`` or ``"rectified"`` (straight, as in flow matching).
    sampler
        ``"ddim"``, ``"dpm_solver"``, or ``"ancestral"`` (as in DDPM, with new noise in each step).

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
    """Settings of ``process="latent"``, passed in place of the name.

    Parameters
    ----------
    prediction, schedule, sampler
        As in :class:`GaussianOptions`.
    latent_dim
        Length of a token of the autoencoder.
    autoencoder_share
        Share of the epochs for the autoencoder, in (0, 1); the diffusion of its tokens is trained in the rest.

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
    """Vectors with and without noise."""

    clean: Tensor  # (cells, length)
    state: Tensor  # (cells, length)
    time: Tensor  # (cells,)


class GaussianDiffusion:
    """Gaussian diffusion of one vector per cell, and its reversal."""

    def __init__(self, options: GaussianOptions) -> None:
        self.options = options
        self.level = diffusion.SCHEDULES[options.schedule]

    def corrupt(self, vector: Tensor, generator: Rng = None, time: Tensor | None = None) -> Noisy:
        """Add noise at given times, by default at random training times."""
        time = diffusion.noise_times(len(vector), generator, vector.device) if time is None else time
        noise = torch.randn(vector.shape, generator=generator, device=vector.device)
        return Noisy(vector, diffusion.add_noise(vector, noise, self.level(time)), time)

    def score(self, predicted: Tensor, noisy: Noisy) -> Tensor:
        """Compute the squared error ``(cells,)`` of the prediction, from predicted noise-free vectors."""
        weight = diffusion.error_weight(self.options.prediction, self.level(noisy.time))
        return diffusion.gaussian_loss(predicted, noisy.clean, weight)

    def draw(self, denoise: Denoise, noisy: Tensor, start: float, *, n_steps: int, generator: Rng = None) -> Tensor:
        """Denoise vectors in ``n_steps`` steps; the last step removes all remaining noise."""
        kind = self.options.sampler
        grid = diffusion.even_times if kind == "ancestral" else diffusion.even_log_snr
        times = grid(start, n_steps, self.level).to(noisy)
        return denoise(diffusion.SAMPLERS[kind](denoise, noisy, times, self.level, generator), times[-1])

    def guide(
        self, unconditional: VectorPredictor, conditional: Sequence[VectorPredictor], scales: Sequence[float]
    ) -> VectorPredictor:
        """Guide expected vectors by linear extrapolation."""
        return lambda library: diffusion.guide_denoisers(
            unconditional(library), [predictor(library) for predictor in conditional], scales
        )
