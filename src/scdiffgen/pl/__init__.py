"""Figures of results. They return axes, and what they draw is given to them or comes from `metrics` or `tl`.

Nothing is computed here but where things are drawn: orders, colours and sizes.
"""

from scdiffgen.pl._attention_map import attention
from scdiffgen.pl._dose_curves import dose_response
from scdiffgen.pl._evaluation_embedding import evaluation_embedding
from scdiffgen.pl._evaluation_maps import evaluation_gene_correlation, evaluation_scores
from scdiffgen.pl._evaluation_page import evaluation
from scdiffgen.pl._evaluation_panels import (
    evaluation_library_size,
    evaluation_mean_dropout,
    evaluation_mean_variance,
    evaluation_roc,
)
from scdiffgen.pl._generation_path import generation_path
from scdiffgen.pl._token_activations import token_dotplot, token_embedding, token_heatmap
from scdiffgen.pl._token_genes import token_contributions, token_graph, token_loadings
from scdiffgen.pl._training_history import training_history

__all__ = [
    "attention",
    "dose_response",
    "evaluation",
    "evaluation_embedding",
    "evaluation_gene_correlation",
    "evaluation_library_size",
    "evaluation_mean_dropout",
    "evaluation_mean_variance",
    "evaluation_roc",
    "evaluation_scores",
    "generation_path",
    "token_contributions",
    "token_dotplot",
    "token_embedding",
    "token_graph",
    "token_heatmap",
    "token_loadings",
    "training_history",
]
