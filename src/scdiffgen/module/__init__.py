"""One module for all processes, code x path x denoiser (:class:`DiffusionModule`), and token statistics.

Read in this order: ``_diffusion_module`` (``PROCESSES``, loss, sampling); ``_cell_codes`` (cells to codes and back; in
``_vector_codes``, ``decode`` draws the counts); ``_paths`` (corruption; ``Thinning.reverse`` draws the molecules);
``_denoisers`` (networks, guidance, and ``bind``, by which conditions enter). Other files are parts of one of these.
"""

from ._cell_codes import CellCode, CountCode
from ._denoisers import UNGUIDED, Blueprint, Denoiser, Guidance, UrnDenoiser, guide
from ._diffusion_module import PROCESSES, DiffusionModule, InvalidMinibatchError, Process, named_process
from ._paths import Path, Predict
from ._process_options import Ability, GaussianOptions, Given, LatentOptions
from ._token_basis import (
    HiddenMoments,
    TokenBasis,
    TokenGenes,
    activation_gradient,
    contributions,
    loadings_in_group,
    regression_loadings,
    token_basis,
    token_genes,
)
