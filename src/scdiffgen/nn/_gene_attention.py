"""An encoder that attends to the genes of a cell, and so can do with any subset of them."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ._encoder import GeneEncoder
from ._number_kinds import ExpressionEmbedding
from ._options import InputKind


class GeneAttentionEncoder(GeneEncoder):
    r"""Tokens are queries that attend to the expressed genes of a cell.

    Gene :math:`g` with :math:`x_g` molecules is the product of its own learned vector and the embedded number,
    :math:`e_g \odot \phi(x_g)`. Genes without molecules are not looked at; of values, which have no such zero, all are.
    Beside the genes there is always one learned vector to look at, for cells that are empty.

    Parameters
    ----------
    n_genes, n_tokens, token_dim, n_heads
        Shapes of the input and of the output, and attention heads.
    conditioning_dim
        Length of the conditioning vector, which shifts what was read.
    reads
        ``"counts"`` or ``"values"``.
    """

    def __init__(
        self,
        n_genes: int,
        n_tokens: int,
        token_dim: int,
        n_heads: int,
        conditioning_dim: int,
        reads: InputKind = "counts",
    ) -> None:
        super().__init__()
        self.reads = reads
        self.n_heads = n_heads
        self.genes = nn.Parameter(torch.randn(n_genes, token_dim))
        self.nothing = nn.Parameter(torch.randn(token_dim))
        self.embed_expression = ExpressionEmbedding(token_dim)
        self.queries = nn.Parameter(torch.randn(n_tokens, token_dim))
        self.key_value = nn.Linear(token_dim, 2 * token_dim)
        self.shift = nn.Linear(conditioning_dim, token_dim)
        self.norm = nn.LayerNorm(token_dim)
        self.out = nn.Sequential(nn.SiLU(), nn.Linear(token_dim, token_dim))

    def read(self, state: Tensor) -> Tensor:
        """What each token saw ``(cells, tokens, dim)``."""
        if self.reads == "values":
            number = self.embed_expression.embedding(state)
            return self._attend(self.genes * number, torch.ones_like(state, dtype=torch.bool))
        counts = state if state.layout == torch.strided else state.to_dense()
        n_expressed = int((counts > 0).sum(1).max())
        largest, columns = counts.topk(n_expressed, dim=1)  # the expressed genes of each cell, padded by others
        return self._attend(self.genes[columns] * self.embed_expression(largest), largest > 0)

    def forward(self, gene_sums: Tensor, conditioning: Tensor, n_tokens: int | None = None) -> Tensor:
        """Tokens ``(cells, tokens, dim)``, or only the first, from :meth:`read` and the conditioning."""
        return self.out(self.norm(gene_sums[:, :n_tokens] + self.shift(conditioning)[:, None]))

    def _attend(self, genes: Tensor, mask: Tensor) -> Tensor:
        """Attention of the queries to genes ``(cells, genes, dim)`` where ``mask`` ``(cells, genes)``."""
        n_cells = len(genes)
        genes = torch.cat([self.nothing.expand(n_cells, 1, -1), genes], dim=1)
        mask = F.pad(mask, (1, 0), value=True)[:, None, None]
        key, value = self.key_value(genes).unflatten(2, (2, self.n_heads, -1)).permute(2, 0, 3, 1, 4)
        query = self.queries.unflatten(1, (self.n_heads, -1)).transpose(0, 1).expand(n_cells, -1, -1, -1)
        seen = F.scaled_dot_product_attention(query, key, value, attn_mask=mask)
        return seen.transpose(1, 2).flatten(2)
