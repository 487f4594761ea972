"""Tokens to genes, additively, so that every gene's score splits exactly into contributions of tokens."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ._options import ReadoutOptions


class AdditiveReadout(nn.Module):
    r"""Additive read-out.

    .. math:: \text{scores} = b + \sum_k W_k h_k, \quad h_k = V_k \, \text{token}_k

    Parameters
    ----------
    n_genes, n_tokens, token_dim
        Shapes of the output and of the input.
    readout_dim
        Length of :math:`h_k`.
    options
        Forms to compare with this one; pooling by ``"logsumexp"`` is additive in the rates, not in their logarithms.
    """

    def __init__(
        self,
        n_genes: int,
        n_tokens: int,
        token_dim: int,
        readout_dim: int,
        options: ReadoutOptions | None = None,
    ) -> None:
        super().__init__()
        self.options = options or ReadoutOptions()
        self.heads = nn.Parameter(torch.randn(n_tokens, token_dim, readout_dim) * token_dim**-0.5)
        # a softplus makes weights non-negative: started near 0.05
        start = -3.0 if self.options.nonnegative else 0.0
        self.gene_weights = nn.Parameter(start + torch.randn(n_tokens * readout_dim, n_genes) * 0.01)
        self.bias = nn.Parameter(torch.zeros(n_genes))

    def forward(self, tokens: Tensor) -> Tensor:
        """Scores of the genes ``(cells, genes)`` from tokens ``(cells, tokens, dim)``, all or only the first."""
        hidden, weights = self.hidden(tokens), self._weights()
        if self.options.pooling == "sum":
            return torch.addmm(self.bias, hidden.flatten(1), weights[: hidden.shape[1] * hidden.shape[2]])
        said = torch.einsum("ctr,trg->ctg", hidden, self.loadings()[: hidden.shape[1]])
        return self.bias + said.logsumexp(1)

    def hidden(self, tokens: Tensor) -> Tensor:
        """What each token says to the genes: ``(cells, tokens, readout_dim)``."""
        return torch.einsum("ctd,tdr->ctr", tokens, self.heads[: tokens.shape[1]])

    def loadings(self) -> Tensor:
        """Weights of the genes on :meth:`hidden`: ``(tokens, readout_dim, genes)``."""
        return self._weights().unflatten(0, (self.heads.shape[0], -1))

    def _weights(self) -> Tensor:
        return F.softplus(self.gene_weights) if self.options.nonnegative else self.gene_weights

    def penalty(self) -> Tensor:
        r"""What the options add to the loss.

        With :math:`n_{k,g} = \lVert W_{k,g} \rVert`, the sparsity penalty is the mean over the tokens of
        :math:`\sum_g n_{k,g} / (\sqrt{G} \, \lVert n_k \rVert)`, which is 1 for equal weights and
        :math:`1 / \sqrt G` for a single gene :cite:p:`hoyer2004nonnegative`; that of orthogonality is the mean squared
        cosine between the weights of different tokens. Neither depends on the scale of the weights.
        """
        penalty = self.bias.new_zeros(())
        if self.options.sparsity:
            norms = self.loadings().norm(dim=1)
            spread = F.normalize(norms, dim=1).sum(1) / norms.shape[1] ** 0.5
            penalty = penalty + self.options.sparsity * spread.mean()
        if self.options.orthogonality:
            unit = F.normalize(self.loadings() - self.loadings().mean(2, keepdim=True), dim=2)
            cosines = torch.einsum("trg,usg->turs", unit, unit).square().mean((2, 3))
            others = 1 - torch.eye(len(unit), device=cosines.device)
            penalty = penalty + self.options.orthogonality * (cosines * others).sum() / others.sum().clamp(min=1)
        return penalty

    @torch.no_grad()
    def initialise_bias(self, gene_frequencies: Tensor) -> None:
        """Start from the average cell: set the bias to the log of ``gene_frequencies`` ``(genes,)``."""
        self.bias.copy_(gene_frequencies.clamp(min=1e-8).log())

    @torch.no_grad()
    def hold(self, token: int, contribution: Tensor) -> None:
        """Let a token say the same to the genes ``(genes,)`` in every cell from now on."""
        nothing = -torch.inf if self.options.nonnegative else 0.0
        self.gene_weights.unflatten(0, (self.heads.shape[0], -1))[token] = nothing
        self.bias.add_(contribution)
