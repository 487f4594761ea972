"""How good generated cells are: metrics, with real-versus-real ceilings, and baselines that a model has to beat.

Everything is compared in one `ExpressionSpace`, with held-out real cells, never with the training cells.
"""

from scdiffgen.metrics import baselines
from scdiffgen.metrics._classifiers import classifier_auc, label_accuracy
from scdiffgen.metrics._comparison import EVALUATION_METRICS
from scdiffgen.metrics._dispersion import dispersion
from scdiffgen.metrics._distances import CopyWarning, energy_distance, mmd, novelty, wasserstein
from scdiffgen.metrics._evaluate import evaluate
from scdiffgen.metrics._evaluation import Evaluation
from scdiffgen.metrics._genes import dirichlet_multinomial_nll, gene_correlation_error, multinomial_nll
from scdiffgen.metrics._heterogeneity import response_heterogeneity
from scdiffgen.metrics._input import FewCellsWarning
from scdiffgen.metrics._perturbation_report import perturbation_report
from scdiffgen.metrics._programs import gene_programs
from scdiffgen.metrics._resampling import split_halves
from scdiffgen.metrics._response import pearson_delta
from scdiffgen.metrics._space import ExpressionSpace

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
    "mmd",
    "multinomial_nll",
    "novelty",
    "pearson_delta",
    "perturbation_report",
    "response_heterogeneity",
    "split_halves",
    "wasserstein",
]
