"""The numbers behind the figures: what genes and library sizes of two samples of cells look like, and one embedding."""

from __future__ import annotations

from typing import Literal, NamedTuple, TypeAlias, get_args

import numpy as np
import pandas as pd
from anndata import AnnData
from scipy import sparse

from scdiffgen._log_normalise import log_normalise
from scdiffgen.metrics._comparison import CONFIDENCE
from scdiffgen.metrics._genes import correlation, gene_moments, library_sizes
from scdiffgen.metrics._input import CountsLike, as_count_pair, gene_names, labels_of
from scdiffgen.metrics._resampling import subsample, unit_weights
from scdiffgen.metrics._space import ExpressionSpace, most_variable

Basis: TypeAlias = Literal["umap", "pca"]
FEWEST_CELLS = 10  # of a side, in an embedding
N_NEIGHBOURS = 15


class GeneCorrelations(NamedTuple):
    """Correlations of the same genes in two samples; see `gene_correlations`."""

    real: pd.DataFrame
    generated: pd.DataFrame


def gene_summary(real: CountsLike, generated: CountsLike, *, layer: str | None = None) -> pd.DataFrame:
    """Mean, variance and fraction of zeros of the counts of every gene.

    Poisson counts have a variance equal to the mean ``m`` and a fraction ``exp(-m)`` of zeros; real genes have more of
    both, and generated ones should as well.

    Parameters
    ----------
    real, generated
        Counts, (cells, genes), over the same genes; AnnData objects are aligned by name.
    layer
        Layer of AnnData objects that holds the counts.

    Returns
    -------
    A row a gene; columns ``(source, statistic)``: ``"real"`` and ``"generated"``, each with ``"mean"``, ``"variance"``
    and ``"zero_fraction"``.

    Raises
    ------
    ValueError
        If a side has no cells.

    Examples
    --------
    >>> import numpy as np
    >>> gene_summary(np.array([[0, 2], [4, 2]]), np.array([[1, 1]]))["real"]
    statistic  mean  variance  zero_fraction
    0           2.0       4.0            0.5
    1           2.0       0.0            0.0
    """
    sides = dict(zip(("real", "generated"), as_count_pair(real, generated, layer=layer), strict=True))
    _refuse_empty({name: counts.shape[0] for name, counts in sides.items()})
    columns = {
        (name, statistic): values[0]
        for name, counts in sides.items()
        for statistic, values in gene_moments(counts, unit_weights(counts.shape[0])).items()
    }
    table = pd.DataFrame(columns, index=gene_names(real))
    table.columns = table.columns.set_names(["source", "statistic"])
    return table


def library_size_quantiles(
    real: CountsLike, generated: CountsLike, *, n_quantiles: int = 100, layer: str | None = None
) -> pd.DataFrame:
    """Quantiles of molecules per cell, with where those of as many other real cells would fall.

    Parameters
    ----------
    real, generated
        Counts, (cells, genes), over the same genes; AnnData objects are aligned by name.
    n_quantiles
        Number of quantiles, evenly spaced: the shares 0.5 / n, 1.5 / n and so on.
    layer
        Layer of AnnData objects that holds the counts.

    Returns
    -------
    A row a quantile: ``share`` of the cells below it; ``real``, ``generated``; and ``low`` and ``high``, between which
    95 of 100 samples of the real population of the size of the generated one have it. The interval is asymptotic, and
    holds for each quantile by itself.

    Raises
    ------
    ValueError
        If a side has no cells, or ``n_quantiles`` is below 1.

    Examples
    --------
    >>> import numpy as np
    >>> counts = np.arange(1, 101)[:, None]
    >>> library_size_quantiles(counts, 2 * counts, n_quantiles=2)["generated"].tolist()
    [51.5, 150.5]
    """
    if n_quantiles < 1:
        raise ValueError(f"`n_quantiles` is {n_quantiles}: pass at least 1.")
    x, y = (library_sizes(counts) for counts in as_count_pair(real, generated, layer=layer))
    _refuse_empty({"real": len(x), "generated": len(y)})
    share = (np.arange(n_quantiles) + 0.5) / n_quantiles
    margin = CONFIDENCE * np.sqrt(share * (1 - share) * (1 / len(x) + 1 / len(y)))
    return pd.DataFrame(
        {
            "share": share,
            "real": np.quantile(x, share),
            "generated": np.quantile(y, share),
            "low": np.quantile(x, np.clip(share - margin, 0, 1)),
            "high": np.quantile(x, np.clip(share + margin, 0, 1)),
        }
    )


def gene_correlations(
    real: CountsLike, generated: CountsLike, n_genes: int = 200, *, layer: str | None = None
) -> GeneCorrelations:
    """Correlations of the log-normalised expression of the genes that vary most in the real cells.

    A gene that does not vary in a sample correlates with none there, nor with itself.

    Parameters
    ----------
    real, generated
        Counts, (cells, genes), over the same genes; AnnData objects are aligned by name.
    n_genes
        Number of genes; all if there are fewer.
    layer
        Layer of AnnData objects that holds the counts.

    Returns
    -------
    The matrices ``real`` and ``generated``, (genes, genes), genes in the order of the data.

    Raises
    ------
    ValueError
        If a side has fewer than three cells, or ``n_genes`` is below 2.

    Examples
    --------
    >>> import numpy as np
    >>> real, generated = np.random.default_rng(0).poisson(2.0, size=(2, 50, 9))
    >>> gene_correlations(real, generated, n_genes=4).generated.shape
    (4, 4)
    """
    if n_genes < 2:
        raise ValueError(f"`n_genes` is {n_genes}: pass at least 2.")
    counts = as_count_pair(real, generated, layer=layer)
    for name, matrix in zip(("real", "generated"), counts, strict=True):
        if matrix.shape[0] < 3:
            raise ValueError(f"`{name}` has {matrix.shape[0]} cells; correlations need at least 3.")
    x, y = (log_normalise(matrix, dtype=np.float32) for matrix in counts)
    variance = gene_moments(x, unit_weights(x.shape[0]))["variance"][0]
    genes = most_variable(variance, n_genes)
    names = gene_names(real)
    labels = pd.Index(genes) if names is None else names[genes]
    return GeneCorrelations(
        *(pd.DataFrame(correlation(m[:, genes].toarray(), np.ones(m.shape[0])), labels, labels) for m in (x, y))
    )


def joint_embedding(
    real: CountsLike,
    generated: CountsLike,
    groupby: str | None = None,
    *,
    basis: Basis = "umap",
    layer: str | None = None,
    n_pcs: int = 30,
    max_cells: int = 5000,
    seed: int = 0,
) -> pd.DataFrame:
    """Place real and generated cells in one UMAP, or on the first two principal components.

    Principal components are fitted on both sides together, in equal numbers of cells, so that neither is favoured:
    components of the real cells alone would follow their noise and set them apart from any other cells, real ones
    included. The UMAP is scanpy's, with 15 neighbours. A picture shows gross errors, such as groups that are missing,
    moved or merged. That two clouds overlap in it says little; see `evaluate`.

    Parameters
    ----------
    real, generated
        Counts, (cells, genes), over the same genes; AnnData objects are aligned by name.
    groupby
        Column of ``obs`` of both AnnData objects.
    basis
        ``"umap"`` or ``"pca"``.
    layer
        Layer of AnnData objects that holds the counts.
    n_pcs
        Number of principal components that the UMAP is made from.
    max_cells
        Cells taken of each side, as many of one as of the other; drawn without replacement.
    seed
        Seed of the draws and of the UMAP.

    Returns
    -------
    A row a cell: ``source``, ``"real"`` or ``"generated"``; ``cell``, its position there; ``group``, if asked for; and
    the coordinates, ``UMAP1`` and ``UMAP2`` or ``PC1`` and ``PC2``. For principal components, ``.attrs`` holds the
    shares of the variance that they ``explain``.

    Raises
    ------
    ValueError
        If there is no such basis, or a side has fewer than ten cells.

    Examples
    --------
    >>> import numpy as np
    >>> real, generated = np.random.default_rng(0).poisson(2.0, size=(2, 30, 12))
    >>> joint_embedding(real, generated, basis="pca").columns.tolist()
    ['source', 'cell', 'PC1', 'PC2']
    """
    if basis not in get_args(Basis):
        raise ValueError(f"`basis` is {basis!r}: choose from {list(get_args(Basis))}.")
    sides = as_count_pair(real, generated, layer=layer)
    n = min(max_cells, *(side.shape[0] for side in sides))
    if n < FEWEST_CELLS:
        raise ValueError(f"An embedding needs {FEWEST_CELLS} cells of each side; there are {n} of one to take.")
    rows = [subsample(side.shape[0], n, [seed, s]) for s, side in enumerate(sides)]
    counts = sparse.vstack([side[chosen] for side, chosen in zip(sides, rows, strict=True)], format="csr")
    space = ExpressionSpace.fit(counts, n_pcs=max(n_pcs, 2), seed=seed)
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
    sc.pp.neighbors(cells, n_neighbors=min(N_NEIGHBOURS, cells.n_obs - 1), use_rep="X", random_state=seed)
    sc.tl.umap(cells, random_state=seed)
    table["UMAP1"], table["UMAP2"] = cells.obsm["X_umap"].T
    return table


def _refuse_empty(n_cells: dict[str, int]) -> None:
    empty = [name for name, n in n_cells.items() if n == 0]
    if empty:
        raise ValueError(f"`{empty[0]}` has no cells.")
