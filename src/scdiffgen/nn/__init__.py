"""Networks: they know no diffusion and no AnnData."""

from ._categories import CategoryKind
from ._conditions import ConditionEmbedder, UniversalCombination, withhold
from ._effects import EffectNetwork
from ._embedders import ConditionOptions
from ._network import TokenNetwork
from ._number_kinds import NumberKind
from ._readout import AdditiveReadout, GeneScores
from ._readout_options import ReadoutOptions
from ._sets import PoolingKind
from ._transformer import Attention, ConditioningKind
from ._trunk import NetworkSize, TokenTrunk

__all__ = [
    "AdditiveReadout",
    "Attention",
    "CategoryKind",
    "ConditionEmbedder",
    "ConditionOptions",
    "ConditioningKind",
    "EffectNetwork",
    "GeneScores",
    "NetworkSize",
    "NumberKind",
    "PoolingKind",
    "ReadoutOptions",
    "TokenNetwork",
    "TokenTrunk",
    "UniversalCombination",
    "withhold",
]
