"""The processes, one on a page each, and how many molecules a generated cell gets."""

from ._carried import SOURCES, Carried, carried_to, to_arrays
from ._denoiser import ConditionedDenoiser, Conditions, Denoiser, InterventionKind
from ._gaussian import GaussianModule
from ._gaussian_options import GaussianOptions
from ._groups import Groups, distinct_groups, in_frequent_treatments, treatment_codes
from ._joint import JointThinningModule
from ._joint_library_size import JointLibrarySizes
from ._latent import LatentModule
from ._latent_options import LatentOptions
from ._library_from_tokens import LibraryFromTokens, library_from_tokens
from ._library_size import ABSENT, LibrarySizeModel, condition_codes
from ._measured_responses import MIN_CELLS, MeasuredResponses
from ._path import growth_path
from ._process import DiffusionModule, Predictor
from ._processes import PROCESSES, joint_module, process_module
from ._thinning import ThinningModule
from ._token_basis import HiddenMoments, TokenBasis, loadings_in_group, token_basis
from ._token_readings import activation_gradient, attention_weights, contributions, encoder_weights

__all__ = [
    "ABSENT",
    "MIN_CELLS",
    "PROCESSES",
    "SOURCES",
    "Carried",
    "ConditionedDenoiser",
    "Conditions",
    "Denoiser",
    "DiffusionModule",
    "GaussianModule",
    "GaussianOptions",
    "Groups",
    "HiddenMoments",
    "InterventionKind",
    "JointLibrarySizes",
    "JointThinningModule",
    "LatentModule",
    "LatentOptions",
    "LibraryFromTokens",
    "LibrarySizeModel",
    "MeasuredResponses",
    "Predictor",
    "ThinningModule",
    "TokenBasis",
    "activation_gradient",
    "attention_weights",
    "carried_to",
    "condition_codes",
    "contributions",
    "distinct_groups",
    "encoder_weights",
    "growth_path",
    "in_frequent_treatments",
    "joint_module",
    "library_from_tokens",
    "loadings_in_group",
    "process_module",
    "to_arrays",
    "token_basis",
    "treatment_codes",
]
