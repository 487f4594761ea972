"""The processes that there are. A new one is a subclass of ``DiffusionModule``, and its name here."""

from __future__ import annotations

from ._diffusion_module import DiffusionModule
from ._gaussian_module import GaussianModule
from ._joint_thinning_module import JointThinningModule
from ._latent_module import LatentModule
from ._thinning_module import ThinningModule

PROCESSES: dict[str, type[DiffusionModule]] = {
    module.process_name: module for module in (ThinningModule, GaussianModule, LatentModule)
}


def process_module(process: str) -> type[DiffusionModule]:
    """The module of a process by its name."""
    if process not in PROCESSES:
        raise ValueError(f"`process` is {process!r}: choose one of {list(PROCESSES)}.")
    return PROCESSES[process]


def joint_module(process: str) -> type[JointThinningModule]:
    """The module of a process for several modalities; only thinning has one."""
    if process_module(process) is not ThinningModule:
        raise ValueError(
            f"`process` is {process!r}, but several modalities need one that takes molecules away: 'thinning'."
        )
    return JointThinningModule
