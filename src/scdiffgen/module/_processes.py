"""The processes that there are. A new one is a subclass of ``DiffusionModule``, and its name here."""

from __future__ import annotations

from ._gaussian import GaussianModule
from ._latent import LatentModule
from ._process import DiffusionModule
from ._thinning import ThinningModule

PROCESSES: dict[str, type[DiffusionModule]] = {
    module.process: module for module in (ThinningModule, GaussianModule, LatentModule)
}


def process_module(process: str) -> type[DiffusionModule]:
    """The module of a process by its name."""
    if process not in PROCESSES:
        raise ValueError(f"`process` is {process!r}: choose one of {list(PROCESSES)}.")
    return PROCESSES[process]
