"""The table of all forms, by the names that :class:`NetworkOptions` takes."""

from __future__ import annotations

from scdiffgen.nn._categories import CATEGORY_EMBEDDINGS
from scdiffgen.nn._condition_embedder import EMBEDDERS
from scdiffgen.nn._encoders import ENCODERS
from scdiffgen.nn._numbers import NUMBER_EMBEDDINGS
from scdiffgen.nn._readouts import READOUTS

from . import _embedding_forms as embeddings
from ._embedded_sets import SetEmbedder
from ._encoder_forms import GeneAttentionEncoder, LinearEncoder
from ._readout_forms import AttentionReadout, PerceptronReadout

NUMBER_EMBEDDINGS.update(
    {
        "fourier": embeddings.FourierEmbedding,
        "direct": embeddings.DirectEmbedding,
        "learned": embeddings.BinEmbedding,
        "rotary": embeddings.RotaryEmbedding,
        "hybrid": embeddings.HybridEmbedding,
        "wavelet": embeddings.WaveletEmbedding,
    }
)
CATEGORY_EMBEDDINGS.update({"hashed": embeddings.HashedEmbedding, "code": embeddings.CodeEmbedding})
ENCODERS.update({"linear": LinearEncoder, "cross_attention": GeneAttentionEncoder})
READOUTS.update({"mlp": PerceptronReadout, "cross_attention": AttentionReadout})
EMBEDDERS["set"] = SetEmbedder
