"""The method on one page, and how many molecules a generated cell gets."""

from ._denoiser import Denoiser, InterventionKind
from ._library_size import LibrarySizeModel, condition_codes
from ._path import growth_path
from ._token_basis import HiddenMoments, TokenBasis, loadings_in_group, token_basis
from ._token_diffusion import TokenDiffusionModule
from ._token_readings import activation_gradient, attention_weights, contributions, encoder_weights

__all__ = [
    "Denoiser",
    "HiddenMoments",
    "InterventionKind",
    "LibrarySizeModel",
    "TokenBasis",
    "TokenDiffusionModule",
    "activation_gradient",
    "attention_weights",
    "condition_codes",
    "contributions",
    "encoder_weights",
    "growth_path",
    "loadings_in_group",
    "token_basis",
]
