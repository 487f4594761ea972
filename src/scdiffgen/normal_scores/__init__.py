"""Normal scores of counts: each count is an interval of a latent normal variable, as in a Gaussian copula."""

from ._copula import FactorModel, Frame, GaussianCopula, ReferenceDistribution, fit_factors, fit_groups

__all__ = ["FactorModel", "Frame", "GaussianCopula", "ReferenceDistribution", "fit_factors", "fit_groups"]
