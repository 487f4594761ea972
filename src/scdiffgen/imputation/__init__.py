"""Regressions for imputation: library sizes, high counts, and calibration of shares of a modality."""

from ._count_regression import CountRegression, regression_inputs
from ._library_regression import LibraryRegression
from ._share_calibration import ShareCalibration

__all__ = ["CountRegression", "LibraryRegression", "ShareCalibration", "regression_inputs"]
