"""What can be chosen of a network: the forms that exist to be compared, and its size."""

from dataclasses import dataclass, field
from typing import Any, Literal, get_args, get_origin, get_type_hints

from scdiffgen._arguments import check_share, check_whole_number

ConditioningKind = Literal["adaln", "cross_attention", "concat"]
PositionKind = Literal["learned", "sinusoidal", "none"]
AttentionNumberKind = Literal["embedded", "rotated"]
InterventionKind = Literal["effect", "embedding"]
NumberKind = Literal["sinusoidal", "fourier", "direct", "learned", "rotary", "hybrid"]
ExpressionKind = Literal[NumberKind, None]
InputKind = Literal["counts", "values"]


@dataclass(frozen=True)
class ReadoutOptions:
    """Penalty of the read-out, in which the contributions of the tokens add up.

    Parameters
    ----------
    orthogonality
        Weight of the penalty that draws tokens to different genes. ``None``: 0.3 where it was measured, that is for
        cells of one modality without effects of perturbations, else 0. With it tokens return more surely with other
        seeds.

    Raises
    ------
    ValueError
        If the penalty is negative.

    Examples
    --------
    >>> import scdiffgen
    >>> adata = scdiffgen.datasets.pbmc68k()
    >>> scdiffgen.model.setup_anndata(adata, layer="counts", labels_key="cell_type")
    >>> readout = scdiffgen.model.ReadoutOptions(orthogonality=1.0)
    >>> network = scdiffgen.model.NetworkOptions(readout=readout)
    >>> model = scdiffgen.model.TokenDiffusion(adata, network=network)
    """

    orthogonality: float | None = None

    def __post_init__(self) -> None:
        if not (self.orthogonality or 0) >= 0:
            raise ValueError(f"`orthogonality` is {self.orthogonality}: pass a number of at least 0.")


@dataclass(frozen=True)
class NetworkOptions:
    """Forms of the network that exist to be compared. The defaults are what did best.

    Parameters
    ----------
    expression_embedding
        How the encoder reads the molecules of a gene: weighted by their logarithm (``None``), or by learned functions
        of an embedding, one of the kinds of ``number_embedding``.
    conditioning
        How conditions reach the tokens: in one vector with the noise level that scales and shifts the layers
        (``"adaln"``, :cite:p:`peebles2023dit`), each as a vector that the tokens attend to (``"cross_attention"``), or
        as one more token (``"concat"``).
    positions
        What distinguishes tokens beside the encoder: ``"learned"`` vectors, ``"sinusoidal"`` ones, or ``"none"``.
    attention_numbers
        Whether numbers are only ``"embedded"``, or queries and keys are also ``"rotated"`` by angles proportional to
        them (:cite:p:`su2024roformer`): vectors of conditions by their covariate or mean dose (a dose needs
        ``intervention="embedding"``), tokens by noise level and library size. A missing number counts as 0.
    intervention
        ``"effect"``: perturbations add to the scores of the genes, seeing the molecules of the cell but not its labels,
        so that responses transfer to cells never treated. ``"embedding"``: they are embedded as other conditions are.
    number_embedding, level_embedding
        How doses and continuous covariates, and how noise level and library size are embedded: ``"sinusoidal"``,
        ``"fourier"``, ``"direct"``, ``"learned"``, ``"rotary"`` or ``"hybrid"``.
    readout
        Penalty of the read-out.
    dropout
        Share of hidden units dropped while training. ``None``, here and below, is that of the preset.
    readout_dim, readout_units
        Length of the vector by which each token contributes to the genes in proportion, and number of hidden units by
        which it also contributes a curved function of itself (0: none). Without ``readout_units`` there are none with
        effects of perturbations, several modalities or another process, which were not measured.
    n_heads, n_hidden, conditioning_dim
        Attention heads (``token_dim`` is a multiple of them), width of the hidden layer of the encoder, and length of
        the embedded conditions.

    Raises
    ------
    ValueError
        If a value is not one of the choices, a size is not positive, or rotations would change nothing.
    TypeError
        If ``readout`` is no :class:`ReadoutOptions`, or an argument is unknown.

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
    attention_numbers: AttentionNumberKind = "embedded"
    intervention: InterventionKind = "effect"
    number_embedding: NumberKind = "sinusoidal"
    level_embedding: NumberKind = "sinusoidal"
    readout: ReadoutOptions = field(default_factory=ReadoutOptions)
    dropout: float | None = None
    readout_dim: int | None = None
    readout_units: int | None = None
    n_heads: int | None = None
    n_hidden: int | None = None
    conditioning_dim: int | None = None

    def __post_init__(self) -> None:
        check_choices(self)
        if not isinstance(self.readout, ReadoutOptions):
            raise TypeError(f"`readout` is {self.readout!r}: pass `scdiffgen.model.ReadoutOptions(...)`.")
        if (self.attention_numbers, self.conditioning) == ("rotated", "adaln"):
            raise ValueError(
                "`attention_numbers` is 'rotated', which changes nothing where an attention rotates all vectors alike. "
                "Pass `conditioning='cross_attention'` or `'concat'`, too."
            )
        check_sizes(self)


@dataclass(frozen=True)
class NetworkSize:
    """Sizes of a network, all of them known, and its form."""

    n_tokens: int = 8
    token_dim: int = 64
    n_layers: int = 2
    n_heads: int = 2
    n_hidden: int = 256  # width of the hidden layer of the encoder
    conditioning_dim: int = 128
    readout_dim: int = 8
    readout_units: int = 0
    dropout: float = 0.1
    n_levels: int = 1  # noise levels, and library sizes, of a cell: one for each modality
    options: NetworkOptions = field(default_factory=NetworkOptions)

    def __post_init__(self) -> None:
        check_sizes(self)
        if self.token_dim % self.n_heads:
            raise ValueError(
                f"`token_dim` is {self.token_dim}, not a multiple of the {self.n_heads} attention heads: pass a "
                f"multiple of {self.n_heads}, or other heads, such as `network=NetworkOptions(n_heads=1)`."
            )


def check_choices(options: Any) -> None:
    """Raise unless every value is one that its type, a ``Literal``, lists."""
    for name, kinds in get_type_hints(type(options)).items():
        if get_origin(kinds) is Literal and getattr(options, name) not in get_args(kinds):
            raise ValueError(f"`{name}` is {getattr(options, name)!r}: pass one of {list(get_args(kinds))}.")


def check_sizes(options: NetworkOptions | NetworkSize) -> None:
    """Raise unless every size that is given is a whole number, and dropout a share."""
    positive = ("n_tokens", "token_dim", "n_heads", "n_hidden", "conditioning_dim", "readout_dim")
    for name in (*positive, "n_layers", "readout_units"):
        if getattr(options, name, None) is not None:
            check_whole_number(name, getattr(options, name), at_least=int(name in positive))
    if options.dropout is not None:
        check_share("dropout", options.dropout)
