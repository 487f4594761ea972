"""Modalities predicted from others: few, deeply measured columns by a regression, shares of many by calibration."""

from ._deep_columns import DeepColumns, deep_columns, known_inputs
from ._share_calibration import ShareCalibration, share_calibration

__all__ = ["DeepColumns", "ShareCalibration", "deep_columns", "known_inputs", "share_calibration"]
