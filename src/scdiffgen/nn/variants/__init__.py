"""Alternative components of the network, for comparisons with the default ones of the folder above.

``VARIANTS`` has their places by option of :class:`NetworkOptions` and name; a file is imported when a network needs it.
Names of weights must not change, because saved models are loaded by them.
"""

from importlib import import_module
from typing import Any

NUMBERS = {
    "fourier": "_embedding_forms.FourierEmbedding",
    "direct": "_embedding_forms.DirectEmbedding",
    "learned": "_embedding_forms.BinEmbedding",
    "rotary": "_embedding_forms.RotaryEmbedding",
    "hybrid": "_embedding_forms.HybridEmbedding",
    "wavelet": "_embedding_forms.WaveletEmbedding",
}

VARIANTS: dict[str, dict[Any, str]] = {
    "number_embedding": NUMBERS,
    "level_embedding": NUMBERS,
    "expression_embedding": dict.fromkeys(["sinusoidal", *NUMBERS], "_embedding_forms.ExpressionFunctions"),
    "conditioning": {"cross_attention": "_attention_forms.GatedAttention"},
    "positions": {"sinusoidal": "_embedding_forms.sinusoidal_positions", "none": "torch.zeros"},
    "attention": {"across": "_attention_forms.CellAttention"},
    "attention_numbers": {"rotated": "_attention_forms.Rotations"},
    "vocabulary": {"hashed": "_embedding_forms.HashedVocabulary", "coded": "_embedding_forms.CodedVocabulary"},
}


def variant(option: str, name: Any) -> Any:
    """Import an alternative, a class or a function, by the option and its value."""
    module, _, attribute = VARIANTS[option][name].rpartition(".")
    return getattr(import_module(f"{__name__}.{module}" if module.startswith("_") else module), attribute)
