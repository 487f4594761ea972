"""Metrics of generated cells and responses, with real-versus-real ceilings, negative controls and baselines.

All cells are compared with held-out real cells, not with training cells, in one `ExpressionSpace`.
"""

from scdiffgen.metrics import baselines

from ._classifiers import classifier_auc, label_accuracy
from ._comparison import EVALUATION_METRICS
from ._dispersion import dispersion
from ._distances import CopyWarning, energy_distance, mmd, novelty, wasserstein
from ._evaluate import evaluate
from ._evaluation import Evaluation
from ._genes import dirichlet_multinomial_nll, gene_correlation_error, multinomial_nll
from ._heterogeneity import response_heterogeneity
from ._input import FewCellsWarning
from ._membership import membership_inference
from ._perturbation_report import perturbation_report
from ._programs import gene_programs
from ._resampling import split_halves
from ._response import pearson_delta
from ._space import ExpressionSpace

__all__ = [
    "EVALUATION_METRICS",
    "CopyWarning",
    "Evaluation",
    "ExpressionSpace",
    "FewCellsWarning",
    "baselines",
    "classifier_auc",
    "dirichlet_multinomial_nll",
    "dispersion",
    "energy_distance",
    "evaluate",
    "gene_correlation_error",
    "gene_programs",
    "label_accuracy",
    "membership_inference",
    "mmd",
    "multinomial_nll",
    "novelty",
    "pearson_delta",
    "perturbation_report",
    "response_heterogeneity",
    "split_halves",
    "wasserstein",
]
