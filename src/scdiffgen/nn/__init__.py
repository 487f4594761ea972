"""Neural networks, independent of diffusion processes and AnnData; this folder holds the default network."""

from ._embeddings import ConditionEmbedder, SetEmbedder, TableEmbedding, UniversalCombination
from ._network import Attention, CountEncoder, ScoreNetwork, TokenAutoencoder, TokenNetwork, TokenTrunk
from ._options import InputKind, NetworkOptions, NetworkSize, check_choices
from ._readouts import AdditiveReadout, GeneScores, LabelOffsets, PriorLimit
