"""One module for all processes, code x path x denoiser (:class:`DiffusionModule`), and token statistics.

Read in this order: ``_processes`` (the table of processes), ``_diffusion_module`` (loss, sampling, reading),
``_cell_codes`` (cells to codes and back), ``_paths`` (corruption and its reversal), ``_denoisers`` (conditions and
networks) and ``_guidance``. The other files are parts of one of these.
"""

from ._cell_codes import CellCode, CountCode
from ._denoisers import Blueprint, Denoiser, UrnDenoiser
from ._diffusion_module import DiffusionModule
from ._guidance import UNGUIDED, Guidance, guide
from ._minibatches import InvalidMinibatchError
from ._paths import Path, Predict
from ._process_options import Ability, GaussianOptions, Given, LatentOptions
from ._processes import PROCESSES, Process, named_process
from ._token_attributions import activation_gradient, contributions
from ._token_basis import (
    HiddenMoments,
    TokenBasis,
    TokenGenes,
    loadings_in_group,
    regression_loadings,
    token_basis,
    token_genes,
)
