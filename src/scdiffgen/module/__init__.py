"""One module for all processes (:class:`DiffusionModule`), and token statistics.

Read ``_processes`` (the table of processes), ``_diffusion_module`` (training, sampling and reading), ``_paths``
(corruption and its reversal), ``_denoisers`` (conditions and networks) and ``_count_code`` (codes) in this order.
"""

from ._count_code import Code, CountCode
from ._denoisers import UNGUIDED, Blueprint, Denoiser, Guidance, UrnDenoiser
from ._diffusion_module import DiffusionModule
from ._paths import Path, Predict
from ._process_options import Ability, GaussianOptions, Given, LatentOptions
from ._processes import PROCESSES, Process, named_process
from ._token_attributions import activation_gradient, contributions
from ._token_basis import HiddenMoments, TokenBasis, loadings_in_group, token_basis
from ._token_regression import TokenGenes, regression_loadings, token_genes
