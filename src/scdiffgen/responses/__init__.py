"""Prediction of responses in unmeasured contexts, and to unmeasured doses and perturbations."""

from ._comparisons import Comparisons
from ._estimator import Asked, ResponseEstimator
from ._expression_curves import UNEQUAL_DEPTH, apply_response
from ._predictors import dose_weights
from ._pseudobulks import MIN_CELLS, Pseudobulks, PseudobulkSums
from ._response_predictor import Response, ResponsePredictor
from ._stacking import SOURCES, Prediction

__all__ = ["Prediction", "ResponseEstimator"]
