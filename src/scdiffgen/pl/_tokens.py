"""Tokens that a user chooses to draw."""

from __future__ import annotations

from collections.abc import Sequence

from anndata import AnnData

from scdiffgen._names import as_names
from scdiffgen._stored_tokens import token_labels

MOST_NAMED = 10  # annotations that a message lists


def chosen_tokens(adata: AnnData, tokens: Sequence[str] | None) -> tuple[list[str], list[str]]:
    """Tokens to draw, chosen by name or by annotation, and what they are called."""
    labels = token_labels(adata)
    asked = list(labels) if tokens is None else as_names(tokens)
    found = {name: [name] if name in labels else _called(name, labels) for name in asked}
    unknown = [name for name in asked if not found[name]]
    if unknown:
        first, *_, last = [*labels, *labels]
        raise ValueError(
            f"`tokens` names {unknown[:5]}, which are none of {first!r} to {last!r}, nor of the names given by "
            f"`tl.annotate_tokens`: {_given(labels)}."
        )
    for name, several in found.items():
        if len(several) > 1:
            raise ValueError(f"`tokens` names {name!r}, as {several} are called: choose one of these.")
    chosen = [found[name][0] for name in asked]
    return chosen, [labels[token] for token in chosen]


def _called(name: str, labels: dict[str, str]) -> list[str]:
    """Tokens of this annotation."""
    return [token for token, label in labels.items() if label == name]


def _given(labels: dict[str, str]) -> str:
    """Annotations in words; many are cut short."""
    given = [label for token, label in labels.items() if label != token]
    return (str(given[:MOST_NAMED]) + (" and so on" if len(given) > MOST_NAMED else "")) if given else "none yet"
