"""Regressions for imputation: library sizes, high counts, and calibration of shares of a modality."""

from ._count_regression import CountRegression, regression_inputs
from ._library_regression import LibraryRegression
from ._missing_features import draw_missing
from ._share_calibration import ShareCalibration

__all__ = ["CountRegression", "LibraryRegression", "ShareCalibration", "draw_missing", "regression_inputs"]
