"""Training: optimiser, averaged weights, validation, sparse minibatches."""

from ._data_splitter import SparseDataSplitter
from ._plan import DiffusionTrainingPlan, TrainingPlanConfig

__all__ = ["DiffusionTrainingPlan", "SparseDataSplitter", "TrainingPlanConfig"]
