"""Sizes of the network by name."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Literal

import torch

from scdiffgen.nn import NetworkOptions, NetworkSize

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
    nested_tokens: bool,
    options: NetworkOptions,
) -> NetworkSize:
    """The named size, with whatever is given in place of its own numbers."""
    if preset not in PRESETS:
        raise ValueError(f"`preset` is {preset!r}: choose one of {list(PRESETS)}.")
    given: dict[str, Any] = {
        "n_tokens": n_tokens,
        "token_dim": token_dim,
        "n_layers": n_layers,
        "n_heads": options.n_heads,
        "n_hidden": options.n_hidden,
        "conditioning_dim": options.conditioning_dim,
        "readout_dim": options.readout_dim,
        "dropout": options.dropout,
    }
    changes = {name: value for name, value in given.items() if value is not None}
    return replace(PRESETS[preset], nested_tokens=nested_tokens, options=options, **changes)
