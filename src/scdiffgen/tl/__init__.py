"""What the tokens of a model are: genes, annotations and gene sets that go with each, and what is lost without it.

Everything here reads what :meth:`~scdiffgen.model.TokenDiffusion.write_back` stored in an AnnData, or data frames.
"""

from scdiffgen.tl._ablation import ablate_token
from scdiffgen.tl._associations import token_associations
from scdiffgen.tl._gene_set_tests import enrich_tokens
from scdiffgen.tl._token_lists import annotate_tokens, rank_token_genes, token_similarity

__all__ = [
    "ablate_token",
    "annotate_tokens",
    "enrich_tokens",
    "rank_token_genes",
    "token_associations",
    "token_similarity",
]
