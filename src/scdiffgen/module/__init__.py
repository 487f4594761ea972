"""The module of all processes (:class:`DiffusionModule`), its parts by name in ``PROCESSES``, and token statistics."""

from ._count_code import Code, CountCode
from ._denoisers import UNGUIDED, Blueprint, Denoiser, Guidance, UrnDenoiser
from ._diffusion_module import DiffusionModule
from ._paths import Path, Predict
from ._process_options import Ability, GaussianOptions, Given, LatentOptions
from ._processes import PROCESSES, Process, named_process
from ._token_attributions import activation_gradient, contributions
from ._token_basis import HiddenMoments, TokenBasis, loadings_in_group, token_basis
from ._token_regression import TokenGenes, regression_loadings, token_genes
