"""Modalities of few, deeply measured columns, such as tags of proteins, predicted from others by a regression."""

from ._deep_columns import DeepColumns, deep_columns, known_inputs

__all__ = ["DeepColumns", "deep_columns", "known_inputs"]
