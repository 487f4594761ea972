"""The processes, one on a page each."""

from ._denoiser import ConditionedDenoiser, Denoiser
from ._gaussian import GaussianModule
from ._gaussian_options import GaussianOptions
from ._joint import JointThinningModule
from ._latent import LatentModule
from ._latent_options import LatentOptions
from ._path import growth_path
from ._process import DiffusionModule, Predictor
from ._processes import PROCESSES, joint_module, process_module
from ._thinning import ThinningModule
from ._token_basis import HiddenMoments, TokenBasis, loadings_in_group, token_basis
from ._token_readings import activation_gradient, attention_weights, contributions, encoder_weights

__all__ = [
    "PROCESSES",
    "ConditionedDenoiser",
    "Denoiser",
    "DiffusionModule",
    "GaussianModule",
    "GaussianOptions",
    "HiddenMoments",
    "JointThinningModule",
    "LatentModule",
    "LatentOptions",
    "Predictor",
    "ThinningModule",
    "TokenBasis",
    "activation_gradient",
    "attention_weights",
    "contributions",
    "encoder_weights",
    "growth_path",
    "joint_module",
    "loadings_in_group",
    "process_module",
    "token_basis",
]
