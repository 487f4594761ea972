"""The whole network: corrupted cell, noise level and conditions to scores of the genes."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from torch import Tensor, nn

from ._options import InputKind, NetworkSize
from ._readout import AdditiveReadout
from ._readout_kinds import AttentionReadout, JointReadout, PerceptronReadout
from ._trunk import TokenTrunk
from ._urn import GeneScores, Urn

READOUTS: dict[str, Callable[[int, NetworkSize], AdditiveReadout | JointReadout]] = {
    "additive": lambda n_genes, size: AdditiveReadout(
        n_genes, size.n_tokens, size.token_dim, size.readout_dim, size.options.readout
    ),
    "mlp": lambda n_genes, size: PerceptronReadout(n_genes, size.n_tokens, size.token_dim, size.n_hidden),
    "cross_attention": lambda n_genes, size: AttentionReadout(n_genes, size.token_dim, size.n_heads),
}


class Read(NamedTuple):
    """What the tokens of cells say."""

    scores: Tensor  # (cells, genes)
    conditioning: Tensor  # (cells, conditioning_dim)


class ScoreNetwork(nn.Module):
    """Encoder, transformer over the tokens, read-out: one score a gene.

    Parameters
    ----------
    n_genes
        Number of genes.
    size
        Widths and depths.
    reads
        What a corrupted cell is, see :class:`TokenTrunk`.
    """

    def __init__(self, n_genes: int, size: NetworkSize, reads: InputKind) -> None:
        super().__init__()
        self.n_genes = n_genes
        self.trunk = TokenTrunk(n_genes, size, reads)
        self.readout = READOUTS[size.options.readout.kind](n_genes, size)

    @property
    def additive_readout(self) -> AdditiveReadout:
        """The read-out, of which the tokens' contributions are asked; raise if it has none."""
        if not isinstance(self.readout, AdditiveReadout):
            raise ValueError("The tokens do not add up to the scores of the genes: their read-out is not additive.")
        return self.readout

    def read(self, state: Tensor, level: Tensor, library: Tensor, condition: Tensor) -> Read:
        """Scores of the genes.

        Parameters
        ----------
        state
            Corrupted cells ``(cells, genes)``.
        level, library
            Noise level, and molecules in the finished cell, ``(cells,)``; of several kinds of molecules
            ``(cells, kinds)``.
        condition
            Embedded conditions: one vector a cell ``(cells, conditioning_dim)`` with ``conditioning="adaln"``,
            otherwise several ``(cells, vectors, conditioning_dim)``.
        """
        conditioning = self.trunk.conditioning(level, library, condition)
        tokens = self.trunk(self.trunk.encoder.read(state), conditioning)
        return Read(self.readout(tokens), conditioning.vector)

    def tokens(self, state: Tensor, level: Tensor, library: Tensor, condition: Tensor) -> Tensor:
        """Tokens ``(cells, tokens, dim)`` after the transformer; arguments as in :meth:`read`."""
        conditioning = self.trunk.conditioning(level, library, condition)
        return self.trunk(self.trunk.encoder.read(state), conditioning)


class TokenNetwork(ScoreNetwork):
    """Network of counts, whose scores are those of the next molecule, with an urn term.

    Parameters
    ----------
    n_genes
        Number of genes.
    size
        Widths and depths.
    """

    def __init__(self, n_genes: int, size: NetworkSize) -> None:
        super().__init__(n_genes, size, "counts")
        self.urn = Urn(n_genes, size.conditioning_dim, size.n_levels)

    def forward(self, state: Tensor, n_molecules: Tensor, library: Tensor, condition: Tensor) -> GeneScores:
        """Scores of the genes for the next molecule.

        Parameters
        ----------
        state
            Molecules there, CSR or dense ``(cells, genes)``.
        n_molecules, library
            Molecules there, and in the finished cell, ``(cells,)``; of several kinds ``(cells, kinds)``.
        condition
            As in :meth:`read`.
        """
        scores, conditioning = self.read(state, n_molecules, library, condition)
        return self.urn(scores, conditioning, n_molecules)
