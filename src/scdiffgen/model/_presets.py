"""Sizes of the network by name."""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

import torch

from scdiffgen.nn import NetworkSize

from ._checks import check_positive_integer, check_share, check_whole_number

Preset = Literal["small", "base", "large"]

PRESETS: dict[str, NetworkSize] = {
    "small": NetworkSize(),
    "base": NetworkSize(n_tokens=64, token_dim=256, n_layers=6, n_heads=8, n_hidden=1024, conditioning_dim=512),
    "large": NetworkSize(n_tokens=128, token_dim=512, n_layers=12, n_heads=8, n_hidden=2048, conditioning_dim=1024),
}


def default_preset() -> Preset:
    """``"base"`` where a GPU is found, ``"small"`` elsewhere."""
    return "base" if torch.cuda.is_available() else "small"


def network_size(
    preset: str,
    n_tokens: int | None,
    token_dim: int | None,
    n_layers: int | None,
    dropout: float | None,
    readout_dim: int | None,
) -> NetworkSize:
    """The named size, with what the user says otherwise."""
    if preset not in PRESETS:
        raise ValueError(f"`preset` is {preset!r}: choose one of {list(PRESETS)}.")
    for name, number in {"n_tokens": n_tokens, "token_dim": token_dim, "readout_dim": readout_dim}.items():
        if number is not None:
            check_positive_integer(name, number)
    if n_layers is not None:
        check_whole_number("n_layers", n_layers, at_least=0)
    if dropout is not None:
        check_share("dropout", dropout)
    size = PRESETS[preset]
    return replace(
        size,
        n_tokens=size.n_tokens if n_tokens is None else n_tokens,
        token_dim=size.token_dim if token_dim is None else token_dim,
        n_layers=size.n_layers if n_layers is None else n_layers,
        dropout=size.dropout if dropout is None else dropout,
        readout_dim=size.readout_dim if readout_dim is None else readout_dim,
    )
