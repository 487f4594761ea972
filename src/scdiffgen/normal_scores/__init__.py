"""Normal scores of counts: a count is an interval of a latent normal variable, as in a Gaussian copula."""

from ._copula import GaussianCopula, fit_groups
from ._reference import ReferenceDistribution

__all__ = ["GaussianCopula", "ReferenceDistribution", "fit_groups"]
