"""Forms of the read-out, to be compared."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Literal, get_args

ReadoutKind = Literal["additive", "mlp", "cross_attention"]
PoolingOverTokens = Literal["sum", "logsumexp"]


@dataclass(frozen=True)
class ReadoutOptions:
    """Form of the read-out.

    Parameters
    ----------
    kind
        ``"additive"``: a sum over the tokens. ``"mlp"``: a perceptron on all tokens together. ``"cross_attention"``:
        every gene attends to the tokens. The last two have no loadings, and none of the options below.
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

    Examples
    --------
    >>> import scdiffgen
    >>> adata = scdiffgen.datasets.pbmc68k()
    >>> scdiffgen.model.setup_anndata(adata, layer="counts", labels_key="cell_type")
    >>> readout = scdiffgen.model.ReadoutOptions(nonnegative=True, sparsity=0.01)
    >>> model = scdiffgen.model.TokenDiffusion(adata, readout=readout)
    """

    kind: ReadoutKind = "additive"
    pooling: PoolingOverTokens = "sum"
    nonnegative: bool = False
    sparsity: float = 0.0
    orthogonality: float = 0.0

    def __post_init__(self) -> None:
        """Check the values."""
        if self.kind not in get_args(ReadoutKind):
            raise ValueError(f"`kind` is {self.kind!r}: choose one of {list(get_args(ReadoutKind))}.")
        if self.kind != "additive" and any(
            getattr(self, f.name) != f.default for f in fields(self) if f.name != "kind"
        ):
            raise ValueError(f"`kind` is {self.kind!r}, which leaves no further choice: give `kind` alone.")
        if self.pooling not in ("sum", "logsumexp"):
            raise ValueError(f"`pooling` is {self.pooling!r}: choose 'sum' or 'logsumexp'.")
        for name in ("sparsity", "orthogonality"):
            if not getattr(self, name) >= 0:
                raise ValueError(f"`{name}` is {getattr(self, name)}: pass a number of at least 0.")
