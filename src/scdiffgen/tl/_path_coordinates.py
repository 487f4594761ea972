"""Generated cells, from empty to full, among measured ones."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from anndata import AnnData
from numpy.typing import NDArray
from scipy.sparse import issparse
from sklearn.decomposition import PCA

from scdiffgen._log_normalise import log_normalise
from scdiffgen._shared_docs import shared_docs


class PathCoordinates(NamedTuple):
    """Principal components of measured cells and of the states of generated ones; see `path_coordinates`.

    Parameters
    ----------
    cells
        Coordinates of the measured cells, (cells, components).
    path
        Coordinates of the states of generated cells, (states, components).
    explained
        Shares of the variance of the measured cells that the components explain, (components,).
    """

    cells: NDArray[np.float64]
    path: NDArray[np.float64]
    explained: NDArray[np.float64]


@shared_docs
def path_coordinates(path: AnnData, adata: AnnData, layer: str | None = None, n_components: int = 2) -> PathCoordinates:
    """Place the states of generated cells among the principal components of measured ones.

    Both are counts per 10,000, ``log1p``. A state is placed by the full cell that the model expects from it, because a
    few molecules have no place: the first state is the mean of what may come, the last the finished cell.

    Parameters
    ----------
    {path}
    adata
        Measured cells with the genes of the path.
    layer
        Layer of their counts; by default ``adata.X``.
    n_components
        Number of components, which are fitted on the measured cells.

    Returns
    -------
    Coordinates of the measured cells and of the states, and the shares of variance that the components explain.

    Raises
    ------
    ValueError
        If genes of the path are missing among the measured cells, or there is no such layer.

    Examples
    --------
    >>> path = model.get_generation_path({"cell_type": "Dendritic"}, n_steps=4, seed=0)
    >>> path_coordinates(path, adata, layer="counts").path.shape
    (5, 2)
    """
    if layer is not None and layer not in adata.layers:
        raise ValueError(f"`layer` is {layer!r}: choose from {[name for name in adata.layers if name]}.")
    missing = path.var_names.difference(adata.var_names)
    if len(missing):
        raise ValueError(f"`adata` lacks {len(missing)} genes of the path (first: {missing[0]!r}).")
    measured = adata[:, path.var_names]
    pca = PCA(n_components, svd_solver="randomized", random_state=0)
    counts, expected = measured.X if layer is None else measured.layers[layer], path.layers["expected"]
    cells, states = (log_normalise(each.toarray() if issparse(each) else each) for each in (counts, expected))
    return PathCoordinates(pca.fit_transform(cells), pca.transform(states), pca.explained_variance_ratio_)
