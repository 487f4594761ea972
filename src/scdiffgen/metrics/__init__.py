"""How good generated cells are: metrics, with real-versus-real ceilings, and baselines that a model has to beat.

Everything is compared in one `ExpressionSpace`, with held-out real cells, never with the training cells.
"""

from scdiffgen.metrics import baselines
from scdiffgen.metrics._classifiers import classifier_auc, label_accuracy
from scdiffgen.metrics._distances import energy_distance, mmd, wasserstein
from scdiffgen.metrics._evaluate import evaluate, evaluation_roc
from scdiffgen.metrics._evaluation_metrics import EVALUATION_METRICS
from scdiffgen.metrics._genes import gene_correlation_error, library_size_ks
from scdiffgen.metrics._input import FewCellsWarning
from scdiffgen.metrics._manifold import CopyWarning, manifold_precision_recall, novelty
from scdiffgen.metrics._multinomial import multinomial_nll
from scdiffgen.metrics._perturbation_report import perturbation_report
from scdiffgen.metrics._relative import relative_scores
from scdiffgen.metrics._resampling import split_halves
from scdiffgen.metrics._response import de_overlap, fold_change_slope, pearson_delta
from scdiffgen.metrics._space import ExpressionSpace
from scdiffgen.metrics._summaries import (
    GeneCorrelations,
    gene_correlations,
    gene_summary,
    joint_embedding,
    library_size_quantiles,
)

__all__ = [
    "EVALUATION_METRICS",
    "CopyWarning",
    "ExpressionSpace",
    "FewCellsWarning",
    "GeneCorrelations",
    "baselines",
    "classifier_auc",
    "de_overlap",
    "energy_distance",
    "evaluate",
    "evaluation_roc",
    "fold_change_slope",
    "gene_correlation_error",
    "gene_correlations",
    "gene_summary",
    "joint_embedding",
    "label_accuracy",
    "library_size_ks",
    "library_size_quantiles",
    "manifold_precision_recall",
    "mmd",
    "multinomial_nll",
    "novelty",
    "pearson_delta",
    "perturbation_report",
    "relative_scores",
    "split_halves",
    "wasserstein",
]
