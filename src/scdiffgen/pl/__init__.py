"""Figures of results. They draw what they are given, compute nothing, and return axes."""

from scdiffgen.pl._attention import attention
from scdiffgen.pl._dose_response import dose_response
from scdiffgen.pl._generation_path import generation_path
from scdiffgen.pl._token_contributions import token_contributions
from scdiffgen.pl._token_graph import token_graph
from scdiffgen.pl._token_groups import token_dotplot, token_embedding, token_heatmap
from scdiffgen.pl._token_loadings import token_loadings
from scdiffgen.pl._training_history import training_history

__all__ = [
    "attention",
    "dose_response",
    "generation_path",
    "token_contributions",
    "token_dotplot",
    "token_embedding",
    "token_graph",
    "token_heatmap",
    "token_loadings",
    "training_history",
]
