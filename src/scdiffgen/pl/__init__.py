"""Figures of results. Functions return axes and compute only layout: orders, colours and sizes."""

from scdiffgen.pl._curves import dose_response, power, training_history
from scdiffgen.pl._evaluation import (
    evaluation,
    evaluation_dispersion,
    evaluation_embedding,
    evaluation_gene_correlation,
    evaluation_library_size,
    evaluation_mean_dropout,
    evaluation_mean_variance,
    evaluation_roc,
    evaluation_scores,
)
from scdiffgen.pl._token_figures import token_contributions, token_embedding, token_heatmap, token_loadings

__all__ = [
    "dose_response",
    "evaluation",
    "evaluation_dispersion",
    "evaluation_embedding",
    "evaluation_gene_correlation",
    "evaluation_library_size",
    "evaluation_mean_dropout",
    "evaluation_mean_variance",
    "evaluation_roc",
    "evaluation_scores",
    "power",
    "token_contributions",
    "token_embedding",
    "token_heatmap",
    "token_loadings",
    "training_history",
]
