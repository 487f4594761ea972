"""Networks: they know no diffusion and no AnnData."""

from ._autoencoder import LatentKind, TokenAutoencoder
from ._categories import CategoryKind, TableEmbedding
from ._conditions import ConditionEmbedder, UniversalCombination
from ._effects import EffectNetwork
from ._embedders import ConditionOptions
from ._encoder import CountEncoder, InputKind, LinearEncoder
from ._gene_attention import GeneAttentionEncoder
from ._likelihood import CountLikelihood, LikelihoodKind
from ._network import ScoreNetwork, TokenNetwork
from ._number_kinds import NumberKind
from ._prior_limit import PriorLimit
from ._readout import AdditiveReadout
from ._readout_options import ReadoutOptions
from ._sets import PartEmbedding, PoolingKind
from ._transformer import Attention, AttentionKind, ConditioningKind
from ._trunk import EncoderKind, NetworkSize, PositionKind, TokenTrunk
from ._urn import GeneScores, Urn

__all__ = [
    "AdditiveReadout",
    "Attention",
    "AttentionKind",
    "CategoryKind",
    "ConditionEmbedder",
    "ConditionOptions",
    "ConditioningKind",
    "CountEncoder",
    "CountLikelihood",
    "EffectNetwork",
    "EncoderKind",
    "GeneAttentionEncoder",
    "GeneScores",
    "InputKind",
    "LatentKind",
    "LikelihoodKind",
    "LinearEncoder",
    "NetworkSize",
    "NumberKind",
    "PartEmbedding",
    "PoolingKind",
    "PositionKind",
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
