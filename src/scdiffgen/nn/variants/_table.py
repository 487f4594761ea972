"""Registration of all alternatives under their names in :class:`NetworkOptions`."""

from scdiffgen.nn._numbers import NUMBER_EMBEDDINGS

from . import _embedding_forms as embeddings

NUMBER_EMBEDDINGS.update(
    {
        "fourier": embeddings.FourierEmbedding,
        "direct": embeddings.DirectEmbedding,
        "learned": embeddings.BinEmbedding,
        "rotary": embeddings.RotaryEmbedding,
        "hybrid": embeddings.HybridEmbedding,
    }
)
