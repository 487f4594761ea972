"""Mathematics of corruption and generation, as functions of tensors and predictors.

Molecules are removed in ``_thinning`` and drawn in ``_molecules`` (one urn in ``_draws``); noise is added and removed
in ``_gaussian``.
"""

from . import _gaussian as gaussian
from ._blocks import Blocks, column_sums, row_sums, side_by_side, to_scipy, with_values
from ._draws import Rng, couple_molecules
from ._molecules import (
    LARGEST_LOG_RATE,
    BlockPrediction,
    MoleculePrediction,
    MoleculePredictor,
    UrnPrediction,
    grow_molecules,
)
from ._thinning import Thinned, block_levels, likelihood_bound, thin, thin_to, thinning_levels, without_blocks
