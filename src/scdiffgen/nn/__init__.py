"""Networks: they know no diffusion and no AnnData."""

from ._autoencoder import LatentKind, TokenAutoencoder
from ._categories import TableEmbedding
from ._conditions import ConditionEmbedder, UniversalCombination
from ._effects import EffectNetwork
from ._encoder import CountEncoder, LinearEncoder
from ._gene_attention import GeneAttentionEncoder
from ._likelihood import CountLikelihood, LikelihoodKind
from ._network import ScoreNetwork, TokenNetwork
from ._options import ConditioningKind, InputKind, InterventionKind, NetworkOptions, NetworkSize, ReadoutOptions
from ._prior_limit import PriorLimit
from ._readout import AdditiveReadout
from ._sets import PartEmbedding
from ._transformer import Attention
from ._trunk import TokenTrunk
from ._urn import GeneScores, Urn

__all__ = [
    "AdditiveReadout",
    "Attention",
    "ConditionEmbedder",
    "ConditioningKind",
    "CountEncoder",
    "CountLikelihood",
    "EffectNetwork",
    "GeneAttentionEncoder",
    "GeneScores",
    "InputKind",
    "InterventionKind",
    "LatentKind",
    "LikelihoodKind",
    "LinearEncoder",
    "NetworkOptions",
    "NetworkSize",
    "PartEmbedding",
    "PriorLimit",
    "ReadoutOptions",
    "ScoreNetwork",
    "TableEmbedding",
    "TokenAutoencoder",
    "TokenNetwork",
    "TokenTrunk",
    "UniversalCombination",
    "Urn",
]
