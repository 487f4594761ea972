"""Data of figures: summaries of genes and library sizes, joint embeddings, and ROC curves."""

from typing import Literal, NamedTuple, TypeAlias

import numpy as np
import pandas as pd
from anndata import AnnData
from numpy.typing import NDArray
from scipy import sparse
from sklearn.metrics import auc, roc_curve
from threadpoolctl import threadpool_limits

from scdiffgen._log_normalise import library_sizes, log_normalise

from ._classifiers import FoldScores
from ._comparison import CONFIDENCE
from ._genes import correlation, gene_moments
from ._input import FEWEST_CELLS, CountsLike, as_count_pair, gene_names, labels_of
from ._resampling import subsample, unit_weights
from ._space import ExpressionSpace, most_variable

Basis: TypeAlias = Literal["umap", "pca"]
N_QUANTILES = 100


class ClassifierRoc(NamedTuple):
    """Receiver operating characteristic of a cross-validated classifier."""

    false_positive: NDArray[np.float64]  # false-positive rates, (points,); 0 occurs twice
    true_positive: NDArray[np.float64]  # true-positive rates at these, (folds, points)
    auc: NDArray[np.float64]  # area under the curve of each fold, (folds,)


def gene_summary(real: CountsLike, generated: CountsLike, *, layer: str | None = None) -> pd.DataFrame:
    """Compute moments of the counts of each gene (rows) by ``(source, statistic)``."""
    columns: dict[tuple[str, str], NDArray[np.float64]] = {}
    for name, counts in _sides(real, generated, layer, 1).items():
        moments = gene_moments(counts, unit_weights(counts.shape[0]))
        columns |= {(name, statistic): values[0] for statistic, values in moments.items()}
    table = pd.DataFrame(columns, index=gene_names(real))
    table.columns = table.columns.set_names(["source", "statistic"])
    return table


def library_size_quantiles(real: CountsLike, generated: CountsLike, *, layer: str | None = None) -> pd.DataFrame:
    """Compute quantiles of library sizes of both sides, with asymptotic 95 % sampling intervals of real ones."""
    x, y = (library_sizes(counts) for counts in _sides(real, generated, layer, 1).values())
    share = (np.arange(N_QUANTILES) + 0.5) / N_QUANTILES
    margin = CONFIDENCE * np.sqrt(share * (1 - share) * (1 / len(x) + 1 / len(y)))
    low, high = (np.quantile(x, np.clip(at, 0, 1)) for at in (share - margin, share + margin))
    quantiles = {"real": np.quantile(x, share), "generated": np.quantile(y, share), "low": low, "high": high}
    return pd.DataFrame({"share": share, **quantiles})


def gene_correlations(
    real: CountsLike, generated: CountsLike, n_genes: int, *, layer: str | None = None
) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Correlate log-normalised expression of the most variable real genes in each sample; 0 for constant genes."""
    x, y = (log_normalise(counts, dtype=np.float32) for counts in _sides(real, generated, layer, 3).values())
    genes = most_variable(gene_moments(x, unit_weights(x.shape[0]))["variance"][0], n_genes)
    names = gene_names(real)
    labels = pd.Index(genes) if names is None else names[genes]
    first, second = (correlation(m[:, genes].toarray(), np.ones(m.shape[0])) for m in (x, y))
    return pd.DataFrame(first, labels, labels), pd.DataFrame(second, labels, labels)


def joint_embedding(
    real: CountsLike,
    generated: CountsLike,
    groupby: str | None = None,
    *,
    basis: Basis = "umap",
    layer: str | None = None,
    max_cells: int = 5000,
    seed: int = 0,
) -> pd.DataFrame:
    """Embed equally many real and generated cells in one UMAP or PCA: ``source``, ``cell`` and ``group`` per cell."""
    # Components are fitted on both sides: components of real cells alone fit their noise and separate the sides.
    sides = as_count_pair(real, generated, layer=layer)
    n = min(max_cells, *(side.shape[0] for side in sides))
    if n < FEWEST_CELLS:
        raise ValueError(f"An embedding needs {FEWEST_CELLS} cells per side, but one side has {n}: pass more cells.")
    rows = [subsample(side.shape[0], n, [seed, s]) for s, side in enumerate(sides)]
    counts = sparse.vstack([side[chosen] for side, chosen in zip(sides, rows, strict=True)], format="csr")
    space = ExpressionSpace.fit(counts, seed=seed)
    pcs = space.pcs(counts)
    table = pd.DataFrame({"source": np.repeat(["real", "generated"], n), "cell": np.concatenate(rows)})
    if groupby is not None:
        labels = [labels_of(cells, groupby, name) for cells, name in ((real, "real"), (generated, "generated"))]
        table["group"] = np.concatenate([label[chosen] for label, chosen in zip(labels, rows, strict=True)])
    if basis == "pca":
        table["PC1"], table["PC2"] = pcs[:, :2].T
        table.attrs["explained"] = (pcs[:, :2].var(axis=0) / space.variance.sum()).tolist()
        return table
    import scanpy as sc

    cells = AnnData(pcs.astype(np.float32))
    with threadpool_limits():  # restores OpenMP's number of threads (also PyTorch's), which numba sets
        sc.pp.neighbors(cells, n_neighbors=min(15, cells.n_obs - 1), use_rep="X", random_state=seed)
        sc.tl.umap(cells, random_state=seed)
    table["UMAP1"], table["UMAP2"] = cells.obsm["X_umap"].T
    return table


def roc_of_folds(folds: list[FoldScores]) -> ClassifierRoc:
    """Compute ROC curves of a cross-validated classifier, one per test fold."""
    at, curves, areas = np.linspace(0, 1, 201), [], []
    for fold in folds:
        is_generated = np.repeat([0, 1], [len(fold.real_scores), len(fold.generated_scores)])
        false, true, _ = roc_curve(is_generated, np.concatenate([fold.real_scores, fold.generated_scores]))
        curves.append(np.concatenate([[0.0], np.interp(at, false, true)]))
        areas.append(auc(false, true))
    return ClassifierRoc(np.concatenate([[0.0], at]), np.array(curves), np.array(areas))


def _sides(real: CountsLike, generated: CountsLike, layer: str | None, needed: int) -> dict[str, sparse.csr_matrix]:
    """Check the counts of both sides and their numbers of cells."""
    sides = dict(zip(("real", "generated"), as_count_pair(real, generated, layer=layer), strict=True))
    for name, counts in sides.items():
        if counts.shape[0] < needed:
            raise ValueError(f"`{name}` has {counts.shape[0] or 'no'} cells; pass at least {needed}.")
    return sides
