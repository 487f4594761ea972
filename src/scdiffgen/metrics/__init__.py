"""How good generated cells are: metrics, limits and nulls, and baselines for perturbation responses.

Everything is compared in one `ExpressionSpace`, with held-out real cells, never with the training cells.
"""

from scdiffgen.metrics._baselines import (
    additive_shift,
    dose_shift,
    latent_arithmetic,
    latent_difference,
    linear_shift,
    mean_shift,
    nearest_shift,
    shift_counts,
    shift_expression,
)
from scdiffgen.metrics._classifiers import LabelAccuracy, classifier_auc, label_accuracy
from scdiffgen.metrics._correlations import GeneCorrelations, gene_correlations
from scdiffgen.metrics._differential import GeneTests, rank_genes
from scdiffgen.metrics._distances import energy_distance, frechet_distance, mmd
from scdiffgen.metrics._embedding import joint_embedding
from scdiffgen.metrics._evaluate import evaluate
from scdiffgen.metrics._genes import gene_correlation_error, gene_statistics, library_size_ks
from scdiffgen.metrics._groups import split_halves
from scdiffgen.metrics._input import FewCellsWarning
from scdiffgen.metrics._likelihood import MultinomialNLL, multinomial_nll
from scdiffgen.metrics._manifold import (
    CopyWarning,
    ManifoldScores,
    Novelty,
    manifold_precision_recall,
    novelty,
    one_nn_accuracy,
)
from scdiffgen.metrics._marginals import gene_summary, library_size_quantiles
from scdiffgen.metrics._nulls import null_poisson, null_shuffled
from scdiffgen.metrics._perturbation import PERTURBATION_BASELINES, perturbation_report
from scdiffgen.metrics._predicted import PERTURBATION_METRICS
from scdiffgen.metrics._relative import relative_scores
from scdiffgen.metrics._response import (
    de_overlap,
    de_pr_auc,
    discrimination_score,
    fold_change_slope,
    fold_change_spearman,
    pearson_delta,
    sign_agreement,
    weighted_mse,
)
from scdiffgen.metrics._roc import ClassifierRoc, classifier_roc, evaluation_roc
from scdiffgen.metrics._scores import EVALUATION_METRICS
from scdiffgen.metrics._space import ExpressionSpace
from scdiffgen.metrics._transport import wasserstein

__all__ = [
    "EVALUATION_METRICS",
    "PERTURBATION_BASELINES",
    "PERTURBATION_METRICS",
    "ClassifierRoc",
    "CopyWarning",
    "ExpressionSpace",
    "FewCellsWarning",
    "GeneCorrelations",
    "GeneTests",
    "LabelAccuracy",
    "ManifoldScores",
    "MultinomialNLL",
    "Novelty",
    "additive_shift",
    "classifier_auc",
    "classifier_roc",
    "de_overlap",
    "de_pr_auc",
    "discrimination_score",
    "dose_shift",
    "energy_distance",
    "evaluate",
    "evaluation_roc",
    "fold_change_slope",
    "fold_change_spearman",
    "frechet_distance",
    "gene_correlation_error",
    "gene_correlations",
    "gene_statistics",
    "gene_summary",
    "joint_embedding",
    "label_accuracy",
    "latent_arithmetic",
    "latent_difference",
    "library_size_ks",
    "library_size_quantiles",
    "linear_shift",
    "manifold_precision_recall",
    "mean_shift",
    "mmd",
    "multinomial_nll",
    "nearest_shift",
    "novelty",
    "null_poisson",
    "null_shuffled",
    "one_nn_accuracy",
    "pearson_delta",
    "perturbation_report",
    "rank_genes",
    "relative_scores",
    "shift_counts",
    "shift_expression",
    "sign_agreement",
    "split_halves",
    "wasserstein",
    "weighted_mse",
]
