"""The processes that there are. A new one is a subclass of ``DiffusionModule``, and its name here."""

from __future__ import annotations

from ._diffusion_module import DiffusionModule
from ._gaussian_module import GaussianModule
from ._joint_thinning_module import JointThinningModule
from ._latent_module import LatentModule
from ._process_options import GaussianOptions
from ._thinning_module import ThinningModule

PROCESSES: dict[str, type[DiffusionModule]] = {
    module.process_name: module for module in (ThinningModule, GaussianModule, LatentModule)
}


def process_module(process: str | GaussianOptions) -> tuple[type[DiffusionModule], GaussianOptions | None]:
    """The module of a process, given by its name or by its options, and the options if there are any."""
    for module in PROCESSES.values():
        if isinstance(process, GaussianOptions) and type(process) is module.options_cls:
            return module, process
    if not isinstance(process, str) or process not in PROCESSES:
        raise ValueError(
            f"`process` is {process!r}: choose one of {list(PROCESSES)}, or pass `GaussianOptions(...)` or "
            "`LatentOptions(...)`."
        )
    return PROCESSES[process], None


def joint_module(process: str | GaussianOptions) -> type[JointThinningModule]:
    """The module of a process for several modalities; only thinning has one."""
    if process_module(process)[0] is not ThinningModule:
        raise ValueError(
            f"`process` is {process!r}, but several modalities need one that takes molecules away: 'thinning'."
        )
    return JointThinningModule
