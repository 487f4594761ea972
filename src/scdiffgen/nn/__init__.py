"""Neural networks, independent of diffusion processes and AnnData; this folder holds the default network."""

from ._attention import Attention
from ._categories import TableEmbedding
from ._condition_embedder import ConditionEmbedder, SetEmbedder, UniversalCombination
from ._network import CountEncoder, ScoreNetwork, TokenNetwork, TokenTrunk
from ._options import InputKind, NetworkOptions, NetworkSize, check_choices
from ._readouts import AdditiveReadout, GeneScores, LabelOffsets, PriorLimit
from .variants._autoencoder import TokenAutoencoder
