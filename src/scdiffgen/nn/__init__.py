"""Networks: they know no diffusion and no AnnData."""

from ._autoencoder import LatentKind, LikelihoodKind, TokenAutoencoder
from ._categories import TableEmbedding
from ._condition_embedder import ConditionEmbedder, PartEmbedding, UniversalCombination
from ._effects import EffectNetwork
from ._encoders import CountEncoder, GeneAttentionEncoder, LinearEncoder
from ._network import ScoreNetwork, TokenNetwork, TokenTrunk
from ._options import InputKind, NetworkOptions, NetworkSize, ReadoutOptions
from ._readouts import AdditiveReadout, PerceptronReadout
from ._transformer import Attention
from ._urn import GeneScores, PriorLimit

__all__ = [
    "AdditiveReadout",
    "Attention",
    "ConditionEmbedder",
    "CountEncoder",
    "EffectNetwork",
    "GeneAttentionEncoder",
    "GeneScores",
    "InputKind",
    "LatentKind",
    "LikelihoodKind",
    "LinearEncoder",
    "NetworkOptions",
    "NetworkSize",
    "PartEmbedding",
    "PerceptronReadout",
    "PriorLimit",
    "ReadoutOptions",
    "ScoreNetwork",
    "TableEmbedding",
    "TokenAutoencoder",
    "TokenNetwork",
    "TokenTrunk",
    "UniversalCombination",
]
