"""The whole network: corrupted cell, noise level and conditions to scores of the genes."""

from __future__ import annotations

from torch import Tensor, nn

from ._readout import AdditiveReadout, GeneScores
from ._trunk import NetworkSize, TokenTrunk


class TokenNetwork(nn.Module):
    """Encoder, transformer over the tokens, additive read-out.

    Parameters
    ----------
    n_genes
        Number of genes.
    size
        Widths and depths.
    """

    def __init__(self, n_genes: int, size: NetworkSize) -> None:
        super().__init__()
        self.n_genes = n_genes
        self.trunk = TokenTrunk(n_genes, size)
        self.readout = AdditiveReadout(
            n_genes, size.n_tokens, size.token_dim, size.readout_dim, size.conditioning_dim, size.readout
        )

    def forward(self, state: Tensor, n_molecules: Tensor, library: Tensor, condition: Tensor) -> GeneScores:
        """Scores of the genes for the next molecule.

        Parameters
        ----------
        state
            Molecules there, CSR or dense ``(cells, genes)``.
        n_molecules, library
            Molecules there, and in the finished cell, ``(cells,)``.
        condition
            Embedded conditions: one vector a cell ``(cells, conditioning_dim)`` with ``conditioning="adaln"``,
            otherwise several ``(cells, vectors, conditioning_dim)``.
        """
        conditioning = self.trunk.conditioning(n_molecules, library, condition)
        tokens = self.trunk(self.trunk.encoder.sum_genes(state), conditioning)
        return self.readout(tokens, conditioning.vector, n_molecules)

    def tokens(self, state: Tensor, n_molecules: Tensor, library: Tensor, condition: Tensor) -> Tensor:
        """Tokens ``(cells, tokens, dim)`` after the transformer; arguments as in :meth:`forward`."""
        conditioning = self.trunk.conditioning(n_molecules, library, condition)
        return self.trunk(self.trunk.encoder.sum_genes(state), conditioning)
