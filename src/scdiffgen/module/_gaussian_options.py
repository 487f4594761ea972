"""Settings of Gaussian diffusion."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from scdiffgen.diffusion import SCHEDULES, SOLVERS, PredictionKind, SamplerKind, ScheduleKind, WeightingKind

CounterfactualKind = Literal["noise", "inversion"]


@dataclass(frozen=True)
class GaussianOptions:
    """Settings of ``process="gaussian"``, passed in place of the name.

    Parameters
    ----------
    prediction
        What the network predicts: the data ``"x0"``, the noise ``"eps"``, or the velocity ``"v"``.
    loss_space
        In which of the three the squared error is counted.
    weighting
        ``"uniform"`` over the levels, or ``"min_snr"``, which is the same in every space.
    schedule
        How the noise grows: ``"linear"`` (DDPM), ``"cosine"`` or ``"rectified"`` (straight, as in flow matching).
    sampler
        ``"ddim"``, ``"euler"``, ``"heun"`` (two evaluations a step), ``"dpm_solver"``, or ``"ancestral"`` (DDPM's, with
        new noise at each step).
    counterfactual
        How given cells come to noise. ``"noise"``: random noise is added. ``"inversion"``: a cell is followed to its
        own noise under its own conditions, and what the network leaves out of it stays.

    Examples
    --------
    >>> import scdiffgen
    >>> adata = scdiffgen.datasets.pbmc68k()
    >>> scdiffgen.model.setup_anndata(adata, layer="counts", labels_key="cell_type")
    >>> options = scdiffgen.model.GaussianOptions(prediction="v", loss_space="v", sampler="heun")
    >>> model = scdiffgen.model.TokenDiffusion(adata, process=options)
    """

    prediction: PredictionKind = "x0"
    loss_space: PredictionKind = "x0"
    weighting: WeightingKind = "uniform"
    schedule: ScheduleKind = "cosine"
    sampler: SamplerKind = "dpm_solver"
    counterfactual: CounterfactualKind = "noise"

    def __post_init__(self) -> None:
        """Check the values."""
        spaces = ["x0", "eps", "v"]
        known = {
            "prediction": spaces,
            "loss_space": spaces,
            "weighting": ["uniform", "min_snr"],
            "schedule": list(SCHEDULES),
            "sampler": [*SOLVERS, "ancestral"],
            "counterfactual": ["noise", "inversion"],
        }
        for name, kinds in known.items():
            if getattr(self, name) not in kinds:
                raise ValueError(f"`{name}` is {getattr(self, name)!r}: choose one of {kinds}.")
