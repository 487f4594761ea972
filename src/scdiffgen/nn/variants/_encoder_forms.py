"""Encoders to compare with the perceptron: a linear map, and attention of the tokens to the genes."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float
from torch import Tensor, nn

from scdiffgen.nn._attention import Attention
from scdiffgen.nn._encoders import Encoder, WeighingEncoder
from scdiffgen.nn._numbers import NUMBER_EMBEDDINGS
from scdiffgen.nn._options import InputKind, NetworkSize
from scdiffgen.nn._shapes import CellVector, Genes, Sums, Tokens

from ._attention_forms import PlaneAngles


class LinearEncoder(WeighingEncoder):
    """Tokens as weighted sums of the genes, shifted by the conditioning."""

    def __init__(self, n_genes: int, size: NetworkSize, input_kind: InputKind = "counts") -> None:
        super().__init__(n_genes, size.n_tokens * size.token_dim, size, input_kind)

    def forward(self, gene_sums: Sums, conditioning: CellVector, n_tokens: int | None = None) -> Tokens:
        return (gene_sums + self.shift(conditioning)).unflatten(1, self.shape)[:, :n_tokens]


class GeneAttentionEncoder(Encoder):
    """Tokens are queries that attend to the expressed genes of a cell, or to all genes of dense values.

    A gene is a learned vector times the embedded number of its molecules, or with ``expression_embedding="rotary"`` a
    vector whose key is rotated by the number. One learned vector is always attended to.
    """

    def __init__(self, n_genes: int, size: NetworkSize, input_kind: InputKind = "counts") -> None:
        super().__init__()
        dim = size.token_dim
        self.input_kind = input_kind
        self.genes = nn.Parameter(torch.randn(n_genes, dim))
        self.nothing = nn.Parameter(torch.randn(dim))
        kind = size.options.expression_embedding or "sinusoidal"
        self.embed_expression = None if kind == "rotary" else NUMBER_EMBEDDINGS[kind](dim)
        self.queries = nn.Parameter(torch.randn(size.n_tokens, dim))
        self.angles = None if self.embed_expression is not None else PlaneAngles(dim // size.n_heads // 2, [1.0])
        self.attention = Attention(dim, size.n_heads, dim, learned_queries=True)
        self.shift = nn.Linear(size.conditioning_dim, dim)
        self.norm = nn.LayerNorm(dim)
        self.out = nn.Sequential(nn.SiLU(), nn.Linear(dim, dim))

    def read(self, state: Genes) -> Tokens:
        """What each token takes from the genes."""
        if self.input_kind == "values":
            return self._attend(self.genes.expand(len(state), -1, -1), state, torch.ones_like(state, dtype=torch.bool))
        counts = state if state.layout == torch.strided else state.to_dense()
        n_expressed = int((counts > 0).sum(1).max())
        largest, columns = counts.topk(n_expressed, dim=1)  # the expressed genes of each cell, padded by others
        return self._attend(F.embedding(columns, self.genes), torch.log1p(largest), largest > 0)

    def forward(
        self, gene_sums: Float[Tensor, "cells all dim"], conditioning: CellVector, n_tokens: int | None = None
    ) -> Tokens:
        return self.out(self.norm(gene_sums[:, :n_tokens] + self.shift(conditioning)[:, None]))

    def _attend(
        self, genes: Float[Tensor, "cells genes dim"], expression: Genes, mask: Bool[Tensor, "cells genes"]
    ) -> Tokens:
        if self.embed_expression is not None:
            genes = genes * self.embed_expression(expression)
        sources = torch.cat([self.nothing.expand(len(genes), 1, -1), genes], dim=1)
        angles = None if self.angles is None else self.angles(F.pad(expression, (1, 0))[..., None])
        return self.attention(self.queries, sources, F.pad(mask, (1, 0), value=True), angles)
