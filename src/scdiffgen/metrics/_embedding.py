"""Real and generated cells in two dimensions."""

from __future__ import annotations

from typing import Literal, TypeAlias, get_args

import numpy as np
import pandas as pd
from anndata import AnnData
from numpy.typing import NDArray
from scipy import sparse

from scdiffgen.metrics._input import CountsLike, as_count_pair, labels_of
from scdiffgen.metrics._resampling import subsample
from scdiffgen.metrics._space import ExpressionSpace

Basis: TypeAlias = Literal["umap", "pca"]
FEWEST_CELLS = 10  # of a side
N_NEIGHBOURS = 15


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
    included. The UMAP is scanpy's, with 15 neighbours.

    A picture shows gross errors, such as groups that are missing, moved or merged. That two clouds overlap in it says
    little; see `evaluate`.

    Parameters
    ----------
    real
        Real counts, (cells, genes).
    generated
        Generated counts over the same genes; AnnData objects are aligned by name.
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
    the two coordinates, ``UMAP1`` and ``UMAP2`` or ``PC1`` and ``PC2``. For principal components, ``.attrs`` holds the
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
    places, name = (pcs[:, :2], "PC") if basis == "pca" else (_umap(pcs, seed), "UMAP")
    table[f"{name}1"], table[f"{name}2"] = places.T
    if basis == "pca":
        table.attrs["explained"] = (pcs[:, :2].var(axis=0) / space.variance.sum()).tolist()
    return table


def _umap(pcs: NDArray[np.float64], seed: int) -> NDArray[np.float32]:
    import scanpy as sc

    cells = AnnData(pcs.astype(np.float32))
    sc.pp.neighbors(cells, n_neighbors=min(N_NEIGHBOURS, cells.n_obs - 1), use_rep="X", random_state=seed)
    sc.tl.umap(cells, random_state=seed)
    return np.asarray(cells.obsm["X_umap"])
