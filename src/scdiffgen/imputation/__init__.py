"""Regressions for imputation: library sizes, high counts, and calibration of shares of a modality."""

from ._regressions import CountRegression, LibraryRegression, ShareCalibration, draw_missing, regression_inputs

__all__ = ["CountRegression", "LibraryRegression", "ShareCalibration", "draw_missing", "regression_inputs"]
