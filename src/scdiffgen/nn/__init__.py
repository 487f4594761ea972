"""Networks: they know no diffusion and no AnnData."""

from ._autoencoder import TokenAutoencoder
from ._categories import TableEmbedding
from ._condition_embedder import ConditionEmbedder, PartEmbedding, UniversalCombination
from ._effects import EffectNetwork
from ._encoders import CountEncoder, GeneAttentionEncoder, LinearEncoder
from ._label_offsets import LabelOffsets
from ._network import ScoreNetwork, TokenNetwork, TokenTrunk
from ._options import InputKind, NetworkOptions, NetworkSize, ReadoutOptions, check_choices
from ._readouts import AdditiveReadout, GeneScores, PerceptronReadout, PriorLimit
from ._transformer import Attention
