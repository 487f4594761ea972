"""Settings of the processes that have some."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from scdiffgen.diffusion import PredictionKind, SamplerKind, ScheduleKind, WeightingKind
from scdiffgen.nn import LatentKind, LikelihoodKind, check_choices

CounterfactualKind = Literal["noise", "inversion"]


@dataclass(frozen=True)
class GaussianOptions:
    """Settings of ``process="gaussian"``, passed in place of the name.

    Parameters
    ----------
    prediction, loss_space
        What the network predicts, and in which of the same the squared error is counted: the data ``"x0"``, the noise
        ``"eps"``, or the velocity ``"v"``.
    weighting
        ``"uniform"`` over the levels, or ``"min_snr"``, which is the same in every space.
    schedule
        How the noise grows: ``"linear"`` (DDPM), ``"cosine"`` or ``"rectified"`` (straight, as in flow matching).
    sampler
        ``"ddim"``, ``"euler"``, ``"heun"`` (two evaluations a step), ``"dpm_solver"``, or ``"ancestral"`` (DDPM's, with
        new noise at each step).
    counterfactual
        How given cells come to noise. ``"noise"``: random noise is added. ``"inversion"``: a cell is followed to its
        own noise under its own conditions, and what the network leaves out of it stays.

    Examples
    --------
    >>> import scdiffgen
    >>> adata = scdiffgen.datasets.pbmc68k()
    >>> scdiffgen.model.setup_anndata(adata, layer="counts", labels_key="cell_type")
    >>> options = scdiffgen.model.GaussianOptions(prediction="v", loss_space="v", sampler="heun")
    >>> model = scdiffgen.model.TokenDiffusion(adata, process=options)
    """

    prediction: PredictionKind = "x0"
    loss_space: PredictionKind = "x0"
    weighting: WeightingKind = "uniform"
    schedule: ScheduleKind = "cosine"
    sampler: SamplerKind = "dpm_solver"
    counterfactual: CounterfactualKind = "noise"

    def __post_init__(self) -> None:
        check_choices(self)


@dataclass(frozen=True)
class LatentOptions(GaussianOptions):
    """Settings of ``process="latent"``, passed in place of the name: of the diffusion of tokens and the autoencoder.

    Parameters
    ----------
    prediction, loss_space, weighting, schedule, sampler, counterfactual
        As in :class:`GaussianOptions`.
    likelihood
        Of the counts given the tokens, at the observed library size: ``"nb"``, ``"zinb"`` or ``"poisson"``.
    tokens
        ``"unit_scale"``: each token has a root mean square of 1. ``"kl"``: each is a normal distribution, drawn to the
        standard one by a divergence with the weight ``kl_weight``.
    latent_dim
        Length of a token.
    kl_weight
        Weight of the divergence.
    autoencoder_share
        Share of the epochs in which the autoencoder is trained, before the diffusion of its tokens.

    Examples
    --------
    >>> import scdiffgen
    >>> adata = scdiffgen.datasets.pbmc68k()
    >>> scdiffgen.model.setup_anndata(adata, layer="counts", labels_key="cell_type")
    >>> options = scdiffgen.model.LatentOptions(likelihood="poisson", latent_dim=4)
    >>> model = scdiffgen.model.TokenDiffusion(adata, process=options)
    """

    likelihood: LikelihoodKind = "nb"
    tokens: LatentKind = "unit_scale"
    latent_dim: int = 8
    kl_weight: float = 0.1
    autoencoder_share: float = 0.4

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.latent_dim < 1:
            raise ValueError(f"`latent_dim` is {self.latent_dim}: pass a positive integer.")
        if not self.kl_weight >= 0:
            raise ValueError(f"`kl_weight` is {self.kl_weight}: pass a number of at least 0.")
        if not 0 < self.autoencoder_share < 1:
            raise ValueError(f"`autoencoder_share` is {self.autoencoder_share}: pass a share in (0, 1).")
