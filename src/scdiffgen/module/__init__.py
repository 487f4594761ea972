"""Modules of processes and denoisers, by name in ``PROCESSES``, and token statistics."""

from ._denoiser import ConditionedDenoiser, Denoiser
from ._diffusion_module import DiffusionModule
from ._gaussian_module import GaussianModule
from ._joint_thinning_module import JointThinningModule
from ._latent_module import LatentModule
from ._processes import GaussianOptions, LatentOptions, Predictor
from ._thinning_module import ThinningModule
from ._token_attributions import activation_gradient, contributions
from ._token_basis import HiddenMoments, TokenBasis, loadings_in_group, token_basis
from ._token_regression import TokenGenes, regression_loadings, token_genes

PROCESSES: dict[str, type[DiffusionModule]] = {
    module.process_name: module for module in (ThinningModule, GaussianModule, LatentModule)
}


def process_module(process: str | GaussianOptions, n_modalities: int) -> type[DiffusionModule]:
    """Return the module class of a process, given by name or options; several modalities need thinning."""
    name = next((name for name, module in PROCESSES.items() if type(process) is module.options_cls), process)
    if not isinstance(name, str) or name not in PROCESSES:
        raise ValueError(
            f"`process` is {process!r}: choose one of {list(PROCESSES)}, or pass `GaussianOptions(...)` or "
            "`LatentOptions(...)`."
        )
    if n_modalities == 1:
        return PROCESSES[name]
    if name != ThinningModule.process_name:
        raise ValueError(
            f"`process` is {process!r}, but several modalities need the thinning process: pass 'thinning'."
        )
    return JointThinningModule
