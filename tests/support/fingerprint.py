"""Did anything change? Digests of cells, less what scvi-tools writes when it registers them, and of weights."""

from scdiffgen.testing._comparing import fingerprint, weights_of

__all__ = ["fingerprint", "weights_of"]
