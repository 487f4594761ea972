"""Figures of results. Functions return axes and compute only layout: orders, colours and sizes."""

from scdiffgen.pl._curves import dose_response, training_history
from scdiffgen.pl._dispersion_panel import evaluation_dispersion
from scdiffgen.pl._embeddings import evaluation_embedding, token_embedding
from scdiffgen.pl._evaluation_page import evaluation
from scdiffgen.pl._evaluation_panels import (
    evaluation_library_size,
    evaluation_mean_dropout,
    evaluation_mean_variance,
    evaluation_roc,
)
from scdiffgen.pl._heat_maps import evaluation_gene_correlation, evaluation_scores, token_heatmap
from scdiffgen.pl._power_curves import power
from scdiffgen.pl._token_genes import token_contributions, token_loadings

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
