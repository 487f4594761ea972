"""Named sizes of the network and their default."""

from dataclasses import fields, replace
from typing import Literal

from scdiffgen._arguments import check_choice
from scdiffgen.nn import NetworkOptions, NetworkSize

Preset = Literal["small", "medium", "base", "large"]

PRESETS: dict[str, NetworkSize] = {
    "small": NetworkSize(),
    "medium": NetworkSize(n_tokens=16, n_layers=3),
    "base": NetworkSize(n_tokens=64, token_dim=256, n_layers=6, n_heads=8, n_hidden=1024, conditioning_dim=512),
    "large": NetworkSize(n_tokens=128, token_dim=512, n_layers=12, n_heads=8, n_hidden=2048, conditioning_dim=1024),
}

MANY_CELLS = 25_000  # number of cells from which the default is "medium", for benchmarked types of models


def default_preset(n_cells: int, n_modalities: int) -> Preset:
    """Choose the preset by the number of cells; "small" for several modalities, without benchmarks of larger ones."""
    return "medium" if n_cells >= MANY_CELLS and n_modalities == 1 else "small"


def network_size(preset: Preset, options: NetworkOptions, is_benchmarked: bool, **sizes: int | None) -> NetworkSize:
    """Build a preset with given sizes; read-out units and orthogonality only for benchmarked types of models."""
    check_choice("preset", preset, PRESETS)
    known = {field.name for field in fields(NetworkSize)}
    given = {name: n for name, n in {**vars(options), **sizes}.items() if name in known and n is not None}
    given = {"readout_units": 8 if is_benchmarked else 0, **given}
    if is_benchmarked and options.orthogonality is None:
        options = replace(options, orthogonality=0.3)
    return replace(PRESETS[preset], options=options, **given)
