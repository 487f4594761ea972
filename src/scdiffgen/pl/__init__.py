"""Figures of results. Functions return axes and compute only layout: orders, colours and sizes."""

from scdiffgen.pl._evaluation import evaluation
from scdiffgen.pl._results import (
    dose_response,
    membership_inference,
    power_curves,
    ranked_experiments,
    token_contributions,
    token_embedding,
    token_heatmap,
    token_loadings,
    training_history,
)

__all__ = [
    "dose_response",
    "evaluation",
    "membership_inference",
    "power_curves",
    "ranked_experiments",
    "token_contributions",
    "token_embedding",
    "token_heatmap",
    "token_loadings",
    "training_history",
]
