"""Library sizes of generated cells, drawn from training cells under the same conditions."""

from ._empirical import JointLibrarySizes, LibrarySizeModel

__all__ = ["JointLibrarySizes", "LibrarySizeModel"]
