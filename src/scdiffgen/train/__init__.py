"""Training: optimiser, weight averaging (EMA), validation and sparse minibatches."""

from ._block_loader import BlockLoader, cell_loader, csr_tensor
from ._data_splitter import SparseDataSplitter, StagedDataSplitter, StagedLoader
from ._plan import NO_STEP, DiffusionTrainingPlan, TrainingPlanConfig, logged_history, stage_ends
from ._trainer import GracefulTrainer
