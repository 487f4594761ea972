"""Genes to tokens: ``read`` sees the corrupted cells, ``forward`` the conditioning as well."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float
from torch import Tensor, nn

from ._numbers import NUMBER_EMBEDDINGS, log_count_embedding
from ._options import EncoderKind, InputKind, NetworkSize, NumberKind
from ._rotations import PlaneAngles
from ._shapes import Genes, Tokens, Vector
from ._transformer import Attention

Sums = Float[Tensor, "cells sums"]

N_FUNCTIONS, EMBEDDED_DIM = 4, 32


class ExpressionFunctions(nn.Module):
    """Learned functions of expression, linear in its embedding; 0 of 0. The first begins as the identity."""

    def __init__(self, kind: NumberKind) -> None:
        super().__init__()
        self.embed = log_count_embedding(kind, EMBEDDED_DIM)
        self.to_functions = nn.Linear(EMBEDDED_DIM, N_FUNCTIONS)
        with torch.no_grad():
            self.to_functions.weight[0] = self.to_functions.bias[0] = 0

    def forward(self, expression: Float[Tensor, "*shape"]) -> Float[Tensor, "*shape functions"]:
        learned = self.to_functions(self.embed(expression)) * (expression != 0)[..., None]
        return learned + F.pad(expression[..., None], (0, N_FUNCTIONS - 1))


class WeighingEncoder(nn.Module):
    r"""An encoder that begins with weighted sums of the genes: of ``log1p(counts)``, or of values as they are.

    With an ``expression_embedding`` these are :math:`\sum_j B_j \odot \sum_g a_j(x_g) W_g`, with learned functions
    :math:`a_j`; at first :math:`a_0(x) = x`, :math:`B_0 = 1`, others zero.
    """

    def __init__(self, n_genes: int, n_sums: int, size: NetworkSize, input_kind: InputKind) -> None:
        super().__init__()
        self.input_kind = input_kind
        self.shape = (size.n_tokens, size.token_dim)
        self.weight = nn.Parameter(torch.randn(n_genes, n_sums) * 0.1)
        self.shift = nn.Linear(size.conditioning_dim, n_sums)
        kind = size.options.expression_embedding
        self.functions = None if kind is None else ExpressionFunctions(kind)
        self.mix = None if kind is None else nn.Parameter(torch.eye(N_FUNCTIONS, 1).repeat(1, n_sums))

    def read(self, state: Genes) -> Sums:
        """Weighted sums; of CSR counts their cost follows the non-zeros, not the genes."""
        if self.functions is not None and self.mix is not None:
            return self._read_embedded(state, self.functions, self.mix)
        if self.input_kind == "values":
            return state @ self.weight
        if state.layout == torch.strided:
            return torch.log1p(state) @ self.weight
        columns, rows, logs = state.col_indices(), state.crow_indices(), torch.log1p(state.values())
        return F.embedding_bag(
            columns, self.weight, rows, per_sample_weights=logs, mode="sum", include_last_offset=True
        )

    def _read_embedded(self, state: Genes, functions: ExpressionFunctions, mix: Tensor) -> Sums:
        """The same of embedded expression; genes of a cell with equal counts are summed first, and share a factor."""
        if self.input_kind == "values":
            return torch.einsum("cgj,gs,js->cs", functions(state), self.weight, mix)
        counts = state.to_sparse_csr() if state.layout == torch.strided else state
        distinct, place = counts.values().unique(return_inverse=True)
        factors = functions(torch.log1p(distinct)) @ mix
        cells = torch.arange(len(counts), device=counts.device).repeat_interleave(counts.crow_indices().diff())
        groups, order = (cells * len(distinct) + place).sort()
        groups, sizes = groups.unique_consecutive(return_counts=True)
        starts, columns = F.pad(sizes.cumsum(0), (1, 0)), counts.col_indices()[order]
        sums = F.embedding_bag(columns, self.weight, starts, mode="sum", include_last_offset=True)
        sums = sums * F.embedding(groups % len(distinct), factors)
        return sums.new_zeros(len(counts), sums.shape[1]).index_add(0, groups // len(distinct), sums)


class CountEncoder(WeighingEncoder):
    """Two-layer perceptron from cells to tokens, whose hidden layer is shifted by the conditioning."""

    def __init__(self, n_genes: int, size: NetworkSize, input_kind: InputKind = "counts") -> None:
        super().__init__(n_genes, size.n_hidden, size, input_kind)
        self.norm = nn.LayerNorm(size.n_hidden)
        self.dropout = nn.Dropout(size.dropout)
        self.to_tokens = nn.Linear(size.n_hidden, size.n_tokens * size.token_dim)

    def forward(self, gene_sums: Sums, conditioning: Vector, n_tokens: int | None = None) -> Tokens:
        """Tokens, all or only the first, from :meth:`read` and the conditioning."""
        hidden = self.dropout(F.silu(self.norm(gene_sums + self.shift(conditioning))))
        n_outputs = None if n_tokens is None else n_tokens * self.shape[1]
        tokens = F.linear(hidden, self.to_tokens.weight[:n_outputs], self.to_tokens.bias[:n_outputs])
        return tokens.unflatten(1, (-1, self.shape[1]))

    def gene_weights(self, direction: Float[Tensor, "tokens dim"]) -> Float[Tensor, "tokens genes"]:
        """Weights of the genes on a direction of each token, along the linear maps."""
        to_tokens = self.to_tokens.weight.unflatten(0, self.shape)  # (tokens, dim, hidden)
        return torch.einsum("td,tdh->th", direction, to_tokens) @ self.weight.T


class LinearEncoder(WeighingEncoder):
    """Tokens as weighted sums of the genes, shifted by the conditioning."""

    def __init__(self, n_genes: int, size: NetworkSize, input_kind: InputKind = "counts") -> None:
        super().__init__(n_genes, size.n_tokens * size.token_dim, size, input_kind)

    def forward(self, gene_sums: Sums, conditioning: Vector, n_tokens: int | None = None) -> Tokens:
        return (gene_sums + self.shift(conditioning)).unflatten(1, self.shape)[:, :n_tokens]

    def gene_weights(self, direction: Float[Tensor, "tokens dim"]) -> Float[Tensor, "tokens genes"]:
        """Weights of the genes on a direction of each token."""
        return torch.einsum("td,gtd->tg", direction, self.weight.unflatten(1, self.shape))


class GeneAttentionEncoder(nn.Module):
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
        self, gene_sums: Float[Tensor, "cells all dim"], conditioning: Vector, n_tokens: int | None = None
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


ENCODERS: dict[EncoderKind, type[CountEncoder] | type[LinearEncoder] | type[GeneAttentionEncoder]] = {
    "mlp": CountEncoder,
    "linear": LinearEncoder,
    "cross_attention": GeneAttentionEncoder,
}
