"""Settings of the processes that have some."""

from __future__ import annotations

from dataclasses import dataclass

from scdiffgen.diffusion import PredictionKind, SamplerKind, ScheduleKind
from scdiffgen.nn import check_choices


@dataclass(frozen=True)
class GaussianOptions:
    """Settings of ``process="gaussian"``, passed in place of the name.

    Parameters
    ----------
    prediction
        What the network predicts, with uniformly weighted squared error: data ``"x0"``, noise ``"eps"`` or velocity
        ``"v"``.
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

    prediction: PredictionKind = "x0"
    schedule: ScheduleKind = "cosine"
    sampler: SamplerKind = "dpm_solver"

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

    latent_dim: int = 8
    autoencoder_share: float = 0.4

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.latent_dim < 1:
            raise ValueError(f"`latent_dim` is {self.latent_dim}: pass a positive integer.")
        if not 0 < self.autoencoder_share < 1:
            raise ValueError(f"`autoencoder_share` is {self.autoencoder_share}: pass a share in (0, 1).")
