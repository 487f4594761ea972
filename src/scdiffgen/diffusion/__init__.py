"""Forward (corruption) and reverse (generation) processes, as functions of tensors and predictors."""

from ._blocks import (
    BlockPrediction,
    Blocks,
    block_levels,
    block_likelihood_bound,
    block_loss,
    split_thinned,
    thin_blocks,
    without_blocks,
)
from ._draws import Rng, couple_molecules
from ._gaussian import PredictionKind, add_noise, error_weight, gaussian_loss, to_clean
from ._guidance import guide, guide_denoisers
from ._ode_samplers import SAMPLERS, Denoise, SamplerKind
from ._samplers import MoleculePrediction, MoleculePredictor, grow_molecules
from ._schedules import (
    SCHEDULES,
    TIME_MAX,
    TIME_MIN,
    Level,
    Schedule,
    ScheduleKind,
    even_log_snr,
    even_times,
    noise_times,
    time_of_signal,
)
from ._sparse import column_sums, row_sums, side_by_side, to_scipy, with_values
from ._thinning import (
    LARGEST_LOG_RATE,
    Thinned,
    UrnPrediction,
    likelihood_bound,
    molecule_loss,
    thin,
    thin_to,
    thinning_levels,
)
