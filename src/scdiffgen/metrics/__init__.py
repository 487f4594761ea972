"""Metrics of generated cells and responses, with real-versus-real ceilings, negative controls and baselines.

All cells are compared with held-out real cells, not with training cells, in one `ExpressionSpace`.
"""

from scdiffgen.metrics import baselines

from ._classifiers import classifier_auc, label_accuracy
from ._distances import CopyWarning, energy_distance, mmd, novelty, wasserstein
from ._evaluate import Evaluation, evaluate
from ._genes import dirichlet_multinomial_nll, gene_correlation_error
from ._input import FewCellsWarning as FewCellsWarning  # to filter warnings by class
from ._membership import membership_inference
from ._perturbation_report import perturbation_report
from ._resampling import split_halves
from ._response import pearson_delta
from ._space import ExpressionSpace
from ._spread import gene_programs

__all__ = [
    "CopyWarning",
    "Evaluation",
    "ExpressionSpace",
    "baselines",
    "classifier_auc",
    "dirichlet_multinomial_nll",
    "energy_distance",
    "evaluate",
    "gene_correlation_error",
    "gene_programs",
    "label_accuracy",
    "membership_inference",
    "mmd",
    "novelty",
    "pearson_delta",
    "perturbation_report",
    "split_halves",
    "wasserstein",
]
