"""Responses that training cells show, predicted for contexts, doses and perturbations that were not measured."""

from ._counts import apply_response
from ._estimator import Response, ResponseEstimator
from ._predictors import dose_weights
from ._pseudobulks import MIN_CELLS, ConditionGroups, Pseudobulks, PseudobulkSums
from ._stacking import SOURCES, Prediction
