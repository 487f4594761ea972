"""Names that all parts share: conditions of a minibatch, guidance scales, abilities and options of processes."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, TypeAlias

from torch import Tensor

from scdiffgen.conditions import Conditions
from scdiffgen.diffusion import gaussian
from scdiffgen.nn import check_choices

Given: TypeAlias = Conditions[Tensor]
"""Conditions given to a minibatch of cells, as tensors."""

Scale: TypeAlias = float | Mapping[str, float]
"""One guidance scale for all conditions, or one per name."""

Ability = Literal[
    "likelihoods",
    "adding molecules",
    "several modalities",
    "new genes",
    "new categories",
    "contributions of tokens",
    "fixed tokens",
    "gradients of tokens",
]
"""What methods of the model may ask of a process, in the words of their errors."""


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

    prediction: gaussian.PredictionKind = "eps"
    schedule: gaussian.ScheduleKind = "cosine"
    sampler: gaussian.SamplerKind = "dpm_solver"

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

    prediction: gaussian.PredictionKind = "x0"
    latent_dim: int = 8
    autoencoder_share: float = 0.4

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.latent_dim < 1:
            raise ValueError(f"`latent_dim` is {self.latent_dim}: pass a positive integer.")
        if not 0 < self.autoencoder_share < 1:
            raise ValueError(f"`autoencoder_share` is {self.autoencoder_share}: pass a share in (0, 1).")
