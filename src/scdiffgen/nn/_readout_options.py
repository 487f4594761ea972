"""Forms of the read-out, to be compared."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

PoolingOverTokens = Literal["sum", "logsumexp"]


@dataclass(frozen=True)
class ReadoutOptions:
    """Form of the read-out.

    Parameters
    ----------
    pooling
        How tokens share a gene. ``"sum"``: they add to its log-rate, which gives exact contributions. ``"logsumexp"``:
        they add to its rate, so that for each gene the strongest token counts (as in DRVI,
        :cite:p:`moinfar2024unsupervised`).
    nonnegative
        Whether the weights of the genes are non-negative.
    sparsity
        Weight of the penalty that draws each token to few genes.
    orthogonality
        Weight of the penalty that draws tokens to different genes.
    """

    pooling: PoolingOverTokens = "sum"
    nonnegative: bool = False
    sparsity: float = 0.0
    orthogonality: float = 0.0

    def __post_init__(self) -> None:
        """Check the values."""
        if self.pooling not in ("sum", "logsumexp"):
            raise ValueError(f"`pooling` is {self.pooling!r}: choose 'sum' or 'logsumexp'.")
        for name in ("sparsity", "orthogonality"):
            if not getattr(self, name) >= 0:
                raise ValueError(f"`{name}` is {getattr(self, name)}: pass a number of at least 0.")
