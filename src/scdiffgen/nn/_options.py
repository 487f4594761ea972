"""Options and sizes of the network."""

from dataclasses import dataclass, field
from typing import Literal, get_args, get_origin, get_type_hints

from jaxtyping import Float
from torch import Tensor

from scdiffgen._arguments import check_share, check_whole_number

ConditioningKind = Literal["adaln", "cross_attention", "concat"]
PositionKind = Literal["learned", "sinusoidal", "none"]
AttentionKind = Literal["within", "across"]
AttentionNumberKind = Literal["embedded", "rotated"]
NumberKind = Literal["sinusoidal", "fourier", "direct", "learned", "rotary", "hybrid", "wavelet"]
ExpressionKind = Literal[NumberKind, None]
VocabularyKind = Literal["table", "hashed", "coded"]
InputKind = Literal["counts", "values"]


@dataclass(frozen=True)
class NetworkOptions:
    """Options of the network. The defaults performed best in benchmarks.

    Parameters
    ----------
    expression_embedding
        Input of the encoder: log counts (``None``), or learned functions of an embedding of counts, one of the types of
        ``number_embedding``.
    conditioning
        How conditions enter the network: in one vector with the noise level, by adaptive layer norm (``"adaln"``,
        :cite:p:`peebles2023dit`), as vectors to which the tokens attend (``"cross_attention"``), or as further tokens
        (``"concat"``).
    positions
        Position embeddings of tokens: ``"learned"``, ``"sinusoidal"`` or ``"none"``.
    attention
        Whether tokens attend to the tokens of their cell (``"within"``), or also to the same token of all cells of the
        minibatch (``"across"``). The result for a cell then depends on the cells that are drawn or read with it, and so
        on ``batch_size``, but not on their order.
    attention_numbers
        Whether numbers are only ``"embedded"``, or queries and keys are also ``"rotated"`` by proportional angles
        (:cite:p:`su2024roformer`): vectors of conditions by their covariate or mean dose, tokens by
        noise level and library size. Missing numbers count as 0.
    number_embedding, level_embedding
        Embeddings of doses and continuous covariates, and of noise level and library size: ``"sinusoidal"``,
        ``"fourier"``, ``"direct"``, ``"learned"``, ``"rotary"``, ``"hybrid"`` or ``"wavelet"``.
    vocabulary
        Embedding of categories without feature vectors: a ``"table"`` with a vector for each; or, of a size that does
        not depend on their number, the sum of rows of two small tables (``"hashed"``), or a projection of a fixed code
        (``"coded"``). The latter two are for conditions with more than some thousand categories. They have no weights
        of a single category, so query models learn new categories only with ``unfrozen=True``.
    nested_tokens
        Whether to train with random numbers of leading tokens (nested dropout, :cite:p:`rippel2014nested`), so that
        :meth:`~scdiffgen.model.TokenDiffusion.truncate_tokens` can cut the trained model.
    orthogonality
        Weight of the orthogonality penalty on the read-out, which makes tokens load on different genes and reproducible
        with other seeds. ``None`` is 0.3 for thinning of one modality, and 0 for other models, which were not
        benchmarked.
    dropout
        Dropout rate of hidden units in training. ``None``, here and below, is the value of the preset.
    readout_dim, readout_units
        Numbers of linear functions and of nonlinear hidden units of each token that contribute to the genes. By default
        ``readout_units`` is 8, and 0 with several modalities or another process, which were not benchmarked.
    n_heads, n_hidden, conditioning_dim
        Number of attention heads (``token_dim`` is a multiple of it), width of the hidden layer of the encoder, and
        length of the embedded conditions.

    Raises
    ------
    ValueError
        If a value is not one of the choices, a size is not positive, ``orthogonality`` is negative, or rotations would
        have no effect.
    TypeError
        If an argument is unknown.

    Examples
    --------
    >>> import scdiffgen
    >>> adata = scdiffgen.datasets.pbmc68k()
    >>> scdiffgen.model.setup_anndata(adata, layer="counts", labels_key="cell_type")
    >>> network = scdiffgen.model.NetworkOptions(positions="none", dropout=0.0, n_heads=1)
    >>> model = scdiffgen.model.TokenDiffusion(adata, n_tokens=4, token_dim=7, network=network)
    """

    expression_embedding: ExpressionKind = None
    conditioning: ConditioningKind = "adaln"
    positions: PositionKind = "learned"
    attention: AttentionKind = "within"
    attention_numbers: AttentionNumberKind = "embedded"
    number_embedding: NumberKind = "sinusoidal"
    level_embedding: NumberKind = "sinusoidal"
    vocabulary: VocabularyKind = "table"
    nested_tokens: bool = False
    orthogonality: float | None = None
    dropout: float | None = None
    readout_dim: int | None = None
    readout_units: int | None = None
    n_heads: int | None = None
    n_hidden: int | None = None
    conditioning_dim: int | None = None

    def __post_init__(self) -> None:
        check_choices(self)
        if not (self.orthogonality or 0) >= 0:
            raise ValueError(f"`orthogonality` is {self.orthogonality}: pass a number of at least 0.")
        if (self.attention_numbers, self.conditioning) == ("rotated", "adaln"):
            raise ValueError(
                "`attention_numbers` is 'rotated', which has no effect if all vectors are rotated by the same angles. "
                "Pass `conditioning='cross_attention'` or `'concat'`, too."
            )
        check_sizes(self)


@dataclass(frozen=True)
class NetworkSize:
    """Sizes and options of a network."""

    n_tokens: int = 8
    token_dim: int = 64
    n_layers: int = 2
    n_heads: int = 2
    n_hidden: int = 256  # width of the hidden layer of the encoder
    conditioning_dim: int = 128
    readout_dim: int = 8
    readout_units: int = 0
    dropout: float = 0.1
    n_levels: int = 1  # number of noise levels and library sizes per cell, one for each modality
    options: NetworkOptions = field(default_factory=NetworkOptions)

    def __post_init__(self) -> None:
        check_sizes(self)
        if self.token_dim % self.n_heads:
            raise ValueError(
                f"`token_dim` is {self.token_dim}, not a multiple of the {self.n_heads} attention heads: pass a "
                f"multiple of {self.n_heads}, or other heads, such as `network=NetworkOptions(n_heads=1)`."
            )


def check_choices(options: object) -> None:
    """Raise unless each value is one of the choices of its ``Literal`` type."""
    for name, kinds in get_type_hints(type(options)).items():
        if get_origin(kinds) is Literal and getattr(options, name) not in get_args(kinds):
            raise ValueError(f"`{name}` is {getattr(options, name)!r}: pass one of {list(get_args(kinds))}.")


def check_sizes(options: NetworkOptions | NetworkSize) -> None:
    """Raise unless each given size is a whole number and dropout is in [0, 1)."""
    positive = ("n_tokens", "token_dim", "n_heads", "n_hidden", "conditioning_dim", "readout_dim")
    for name in (*positive, "n_layers", "readout_units"):
        if getattr(options, name, None) is not None:
            check_whole_number(name, getattr(options, name), at_least=int(name in positive))
    if options.dropout is not None:
        check_share("dropout", options.dropout)


Genes = Float[Tensor, "cells genes"]  # one number per gene: counts (CSR or dense), values, scores
Sums = Float[Tensor, "cells sums"]
Slots = Float[Tensor, "cells slots dim"]
Tokens = Float[Tensor, "cells tokens dim"]
Hidden = Float[Tensor, "cells tokens readout_dim"]
Levels = Float[Tensor, " cells *levels"]  # noise levels or library sizes: one per cell, or one per modality
CellVector = Float[Tensor, "cells conditioning_dim"]
Vectors = Float[Tensor, " cells *vectors conditioning_dim"]  # embedded conditions: one vector with "adaln", or several
ConditionNumbers = Float[Tensor, "cells n_conditions"] | None
"""Number (dose) of each embedded condition, 0 if it has none; needed if numbers rotate queries and keys."""
