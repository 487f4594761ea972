"""Encoder from genes to tokens: ``read`` takes the corrupted cells, ``forward`` adds the conditioning."""

import torch
import torch.nn.functional as F
from torch import nn

from ._options import InputKind, NetworkSize
from ._shapes import CellVector, Genes, Sums, Tokens
from .variants._table import variant


class CountEncoder(nn.Module):
    r"""Two-layer perceptron from cells to tokens, with a hidden layer that is shifted by the conditioning.

    The first layer is a weighted sum over genes of ``log1p(counts)`` or of values; with ``expression_embedding``
    :math:`\sum_j B_j \odot \sum_g a_j(x_g) W_g`, learned :math:`a_j`, initially :math:`a_0(x) = x`, :math:`B_0 = 1`.
    """

    def __init__(self, n_genes: int, size: NetworkSize, input_kind: InputKind = "counts") -> None:
        super().__init__()
        self.input_kind = input_kind
        self.token_dim = size.token_dim
        self.weight = nn.Parameter(torch.randn(n_genes, size.n_hidden) * 0.1)
        self.shift = nn.Linear(size.conditioning_dim, size.n_hidden)
        kind = size.options.expression_embedding
        self.functions = None if kind is None else variant("expression_embedding", kind)(kind)
        self.mix = None
        if self.functions is not None:
            self.mix = nn.Parameter(torch.eye(self.functions.n_functions, 1).repeat(1, size.n_hidden))
        self.norm = nn.LayerNorm(size.n_hidden)
        self.dropout = nn.Dropout(size.dropout)
        self.to_tokens = nn.Linear(size.n_hidden, size.n_tokens * size.token_dim)

    def read(self, state: Genes) -> Sums:
        """Compute the weighted sums over genes; for CSR counts, the cost is proportional to the non-zeros."""
        if self.functions is not None and self.mix is not None:
            return self.functions.weighted_sums(state, self.weight, self.mix, self.input_kind)
        if self.input_kind == "values":
            return state @ self.weight
        if state.layout == torch.strided:
            return torch.log1p(state) @ self.weight
        columns, rows, logs = state.col_indices(), state.crow_indices(), torch.log1p(state.values())
        return F.embedding_bag(
            columns, self.weight, rows, per_sample_weights=logs, mode="sum", include_last_offset=True
        )

    def forward(self, gene_sums: Sums, conditioning: CellVector) -> Tokens:
        """Compute tokens from the sums of :meth:`read` and the conditioning."""
        hidden = self.dropout(F.silu(self.norm(gene_sums + self.shift(conditioning))))
        return self.to_tokens(hidden).unflatten(1, (-1, self.token_dim))
