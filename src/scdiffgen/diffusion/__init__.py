"""The mathematics of corruption and generation: functions of tensors and of any callable predictor."""

from ._ema import update_ema
from ._guidance import GuidedPrediction, guide
from ._samplers import MoleculePrediction, MoleculePredictor, grow_molecules, molecule_schedule
from ._sparse import column_sums, row_sums
from ._thinning import (
    Thinned,
    UrnPrediction,
    draw_molecules,
    likelihood_bound,
    molecule_loss,
    thin,
    thin_to,
    thinning_levels,
)

__all__ = [
    "GuidedPrediction",
    "MoleculePrediction",
    "MoleculePredictor",
    "Thinned",
    "UrnPrediction",
    "column_sums",
    "draw_molecules",
    "grow_molecules",
    "guide",
    "likelihood_bound",
    "molecule_loss",
    "molecule_schedule",
    "row_sums",
    "thin",
    "thin_to",
    "thinning_levels",
    "update_ema",
]
