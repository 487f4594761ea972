"""The numbers behind the figures: what genes and library sizes of two samples look like, one embedding, and curves."""

from typing import Literal, NamedTuple, TypeAlias, get_args

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

    false_positive: NDArray[np.float64]  # shares of the real cells taken for generated ones, (points,); 0 stands twice
    true_positive: NDArray[np.float64]  # shares of the generated cells found at each of these, (folds, points)
    auc: NDArray[np.float64]  # area under the curve of each fold, (folds,)


def gene_summary(real: CountsLike, generated: CountsLike, *, layer: str | None = None) -> pd.DataFrame:
    """Moments of the counts of every gene (rows) by ``(source, statistic)``; a Poisson of mean m has exp(-m) zeros."""
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
    if n_genes < 2:
        raise ValueError(f"`n_genes` is {n_genes}: pass at least 2.")
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
    """Embed as many real as generated cells in one UMAP or PCA, a row a cell (``source``, ``cell``, ``group``)."""
    # Components are fitted on both sides: those of real cells alone would follow their noise and set others apart.
    if basis not in get_args(Basis):
        raise ValueError(f"`basis` is {basis!r}: choose from {list(get_args(Basis))}.")
    sides = as_count_pair(real, generated, layer=layer)
    n = min(max_cells, *(side.shape[0] for side in sides))
    if n < FEWEST_CELLS:
        raise ValueError(f"An embedding needs {FEWEST_CELLS} cells of each side; there are {n} of one to take.")
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
    with threadpool_limits():  # numba sets the threads of OpenMP, which are PyTorch's too: put back afterwards
        sc.pp.neighbors(cells, n_neighbors=min(15, cells.n_obs - 1), use_rep="X", random_state=seed)
        sc.tl.umap(cells, random_state=seed)
    table["UMAP1"], table["UMAP2"] = cells.obsm["X_umap"].T
    return table


def roc_of_folds(folds: list[FoldScores]) -> ClassifierRoc:
    """Curves of a cross-validated classifier, one for each test fold: scores of different fits are never compared."""
    at, found, areas = np.linspace(0, 1, 201), [], []
    for fold in folds:
        is_generated = np.repeat([0, 1], [len(fold.real_scores), len(fold.generated_scores)])
        false, true, _ = roc_curve(is_generated, np.concatenate([fold.real_scores, fold.generated_scores]))
        found.append(np.concatenate([[0.0], np.interp(at, false, true)]))
        areas.append(auc(false, true))
    return ClassifierRoc(np.concatenate([[0.0], at]), np.array(found), np.array(areas))


def _sides(real: CountsLike, generated: CountsLike, layer: str | None, needed: int) -> dict[str, sparse.csr_matrix]:
    """Checked counts of both sides, which have cells enough."""
    sides = dict(zip(("real", "generated"), as_count_pair(real, generated, layer=layer), strict=True))
    for name, counts in sides.items():
        if counts.shape[0] < needed:
            raise ValueError(f"`{name}` has {counts.shape[0] or 'no'} cells; pass at least {needed}.")
    return sides
