"""Prediction of responses in unmeasured contexts, and to unmeasured doses and perturbations."""

from ._estimator import Asked, ResponseEstimator
from ._expression_curves import UNEQUAL_DEPTH, Response, apply_response
from ._predictors import SOURCES, Prediction, dose_weights
from ._pseudobulks import MIN_CELLS, Pseudobulks, PseudobulkSums
from ._response_predictor import Comparisons, ResponsePredictor

__all__ = ["ResponseEstimator"]
