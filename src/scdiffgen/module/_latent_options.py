"""Settings of latent diffusion."""

from __future__ import annotations

from dataclasses import dataclass
from typing import get_args

from scdiffgen.nn import LatentKind, LikelihoodKind

from ._gaussian_options import GaussianOptions


@dataclass(frozen=True)
class LatentOptions(GaussianOptions):
    """Settings of ``process="latent"``, passed in place of the name.

    They are those of :class:`GaussianOptions`, for the tokens, and of the autoencoder.

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
        Weight of the divergence, for ``"kl"``.
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
        """Check the values."""
        super().__post_init__()
        for name, kinds in (("likelihood", get_args(LikelihoodKind)), ("tokens", get_args(LatentKind))):
            if getattr(self, name) not in kinds:
                raise ValueError(f"`{name}` is {getattr(self, name)!r}: choose one of {list(kinds)}.")
        if self.latent_dim < 1:
            raise ValueError(f"`latent_dim` is {self.latent_dim}: pass a positive integer.")
        if not self.kl_weight >= 0:
            raise ValueError(f"`kl_weight` is {self.kl_weight}: pass a number of at least 0.")
        if not 0 < self.autoencoder_share < 1:
            raise ValueError(f"`autoencoder_share` is {self.autoencoder_share}: pass a share in (0, 1).")
