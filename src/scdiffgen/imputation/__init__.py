"""Regressions of a modality on others: its library size, its counts if they are high, or the shares of its columns."""

from ._count_regression import CountRegression, regression_inputs
from ._library_regression import LibraryRegression
from ._share_calibration import ShareCalibration

__all__ = ["CountRegression", "LibraryRegression", "ShareCalibration", "regression_inputs"]
