"""A process, a denoiser and conditions wired together: a page for each process; and what is read from tokens."""

from ._denoiser import ConditionedDenoiser, Denoiser
from ._diffusion_module import DiffusionModule
from ._gaussian_module import GaussianModule
from ._joint_thinning_module import JointThinningModule
from ._latent_module import LatentModule
from ._process_options import GaussianOptions, LatentOptions
from ._process_registry import PROCESSES, joint_module, process_module
from ._processes import Predictor, Process, growth_path
from ._thinning_module import ThinningModule
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
    "Process",
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
