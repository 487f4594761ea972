"""The models that users call."""

import rich.pretty  # noqa: F401  scvi-tools 1.4 uses it without importing it

from scdiffgen.nn import ReadoutOptions

from ._token_diffusion import TokenDiffusion

setup_anndata = TokenDiffusion.setup_anndata

__all__ = ["ReadoutOptions", "TokenDiffusion", "setup_anndata"]
