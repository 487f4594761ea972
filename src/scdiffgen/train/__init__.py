"""Training: optimiser, averaged weights, validation, sparse minibatches."""

from ._data_splitter import SparseDataSplitter, StagedDataSplitter
from ._plan import DiffusionTrainingPlan, TrainingPlanConfig

__all__ = ["DiffusionTrainingPlan", "SparseDataSplitter", "StagedDataSplitter", "TrainingPlanConfig"]
