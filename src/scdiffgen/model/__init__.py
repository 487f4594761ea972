"""Models and their options, and files of cells that are read on demand."""

import rich.pretty  # noqa: F401  scvi-tools 1.4 uses it without importing it

from scdiffgen.data import open_cells
from scdiffgen.module import GaussianOptions, LatentOptions
from scdiffgen.nn import NetworkOptions

from ._token_diffusion import TokenDiffusion

__all__ = ["GaussianOptions", "LatentOptions", "NetworkOptions", "TokenDiffusion", "open_cells"]
