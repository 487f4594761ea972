"""Interpret tokens (genes, annotations, gene sets, ablation), and simulate experiments.

Functions of tokens read the results that :meth:`~scdiffgen.model.TokenDiffusion.write_back` stored in an AnnData.
"""

from scdiffgen.tl._ablation import ablate_token
from scdiffgen.tl._experiments import simulate_experiment
from scdiffgen.tl._interactions import interactions
from scdiffgen.tl._planner import rank_experiments
from scdiffgen.tl._power import power_analysis
from scdiffgen.tl._token_tables import (
    annotate_tokens,
    enrich_tokens,
    rank_token_genes,
    token_associations,
    token_similarity,
)

__all__ = [
    "ablate_token",
    "annotate_tokens",
    "enrich_tokens",
    "interactions",
    "power_analysis",
    "rank_experiments",
    "rank_token_genes",
    "simulate_experiment",
    "token_associations",
    "token_similarity",
]
