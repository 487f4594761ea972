"""Training: optimiser, weight averaging (EMA), validation and sparse minibatches."""

from ._block_loader import BlockLoader, SparseDataSplitter, StagedDataSplitter, StagedLoader, cell_loader, csr_tensor
from ._plan import (
    NO_STEP,
    DiffusionTrainingPlan,
    GracefulTrainer,
    TrainingPlanConfig,
    drawn_epochs,
    logged_history,
    stage_ends,
)
