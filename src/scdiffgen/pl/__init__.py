"""Figures of results. They return axes, and what they draw is given to them or comes from `metrics` or `tl`.

Nothing is computed here but where things are drawn: orders, colours and sizes.
"""

from scdiffgen.pl._attention import attention
from scdiffgen.pl._dose_response import dose_response
from scdiffgen.pl._evaluation import evaluation
from scdiffgen.pl._evaluation_correlation import evaluation_gene_correlation
from scdiffgen.pl._evaluation_embedding import evaluation_embedding
from scdiffgen.pl._evaluation_genes import evaluation_mean_dropout, evaluation_mean_variance
from scdiffgen.pl._evaluation_library import evaluation_library_size
from scdiffgen.pl._evaluation_roc import evaluation_roc
from scdiffgen.pl._evaluation_scores import evaluation_scores
from scdiffgen.pl._generation_path import generation_path
from scdiffgen.pl._token_contributions import token_contributions
from scdiffgen.pl._token_graph import token_graph
from scdiffgen.pl._token_groups import token_dotplot, token_embedding, token_heatmap
from scdiffgen.pl._token_loadings import token_loadings
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
