"""Models, their options, and the registration of cells."""

import rich.pretty  # noqa: F401  scvi-tools 1.4 uses it without importing it

from scdiffgen.data import open_cells
from scdiffgen.module import GaussianOptions, LatentOptions
from scdiffgen.nn import NetworkOptions

from ._token_diffusion import TokenDiffusion

setup_anndata = TokenDiffusion.setup_anndata
setup_mudata = TokenDiffusion.setup_mudata

__all__ = [
    "GaussianOptions",
    "LatentOptions",
    "NetworkOptions",
    "TokenDiffusion",
    "open_cells",
    "setup_anndata",
    "setup_mudata",
]
