"""Counts come in as AnnData, sparse or dense arrays; they leave as checked CSR matrices over one list of genes."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Sequence
from typing import TypeAlias

import numpy as np
import pandas as pd
from anndata import AnnData
from numpy.typing import ArrayLike, NDArray
from scipy import sparse

from scdiffgen._names import check_column

CountsLike: TypeAlias = AnnData | NDArray | sparse.spmatrix | sparse.sparray
Points: TypeAlias = ArrayLike | sparse.spmatrix | sparse.sparray

# what to pass instead
COUNTS = "pass an AnnData, or an array or sparse matrix (cells, genes)."
POINTS = 'pass an array (cells, dimensions), such as `adata.obsm["X_pca"]`, or use `metrics.evaluate`.'
FEATURES = POINTS.replace("dimensions", "features")
EXPRESSION = "pass an array (cells, genes), such as `ExpressionSpace.expression` makes of an AnnData."
RESPONSE = "pass an array (genes,), such as a difference of mean expression."


class FewCellsWarning(UserWarning):
    """A metric got fewer cells than it needs and is reported as NaN."""


def as_counts(
    counts: CountsLike, *, layer: str | None = None, genes: Sequence[str] | None = None, name: str = "counts"
) -> sparse.csr_matrix:
    """Check counts and return them as CSR matrix of float32.

    Parameters
    ----------
    counts
        Molecules, (cells, genes).
    layer
        Layer of an AnnData that holds the counts; ``None`` is ``.X``. An AnnData without layers, as generated cells
        are, is read from ``.X``.
    genes
        Names and order of the columns to return. An AnnData is aligned by ``var_names``; a matrix without names must
        have this many columns and is taken to be in this order.
    name
        What messages call the argument.

    Raises
    ------
    ValueError
        If values are missing, negative or not whole numbers, or genes are absent.
    """
    if isinstance(counts, AnnData) and not _names(counts.layers):
        layer = None
    matrix = _matrix(counts, layer, name)
    _check_values(matrix.data, layer, name)
    if genes is None:
        return matrix
    if isinstance(counts, AnnData):
        return matrix[:, gene_positions(counts.var_names, genes, name)]
    if matrix.shape[1] != len(genes):
        raise ValueError(
            f"`{name}` has {matrix.shape[1]} genes, expected {len(genes)}. Pass the same genes in the same order, "
            "or AnnData objects, which are aligned by name."
        )
    return matrix


def as_count_pair(
    real: CountsLike, generated: CountsLike, *, layer: str | None = None
) -> tuple[sparse.csr_matrix, sparse.csr_matrix]:
    """Check the counts of two sides and bring the second to the genes of the first, by name where there are names."""
    names = gene_names(real)
    if names is None and isinstance(generated, AnnData):
        raise TypeError(
            "`generated` is an AnnData, but `real` is a matrix without gene names. Pass both as AnnData objects, "
            "which are aligned by name, or both as matrices."
        )
    first = as_counts(real, layer=layer, genes=names, name="real")
    genes = [str(i) for i in range(first.shape[1])] if names is None else names
    return first, as_counts(generated, layer=layer, genes=genes, name="generated")


def gene_names(counts: CountsLike) -> pd.Index | None:
    """Gene names of an AnnData; ``None`` for a matrix, which has none."""
    return counts.var_names if isinstance(counts, AnnData) else None


def gene_positions(available: pd.Index, wanted: Sequence[str], name: str) -> NDArray[np.intp]:
    """Columns of ``available`` that hold ``wanted``, in the order of ``wanted``."""
    if not available.is_unique:
        raise ValueError(
            f"`{name}` has repeated gene names (first: {available[available.duplicated()][0]!r}). "
            "Call `.var_names_make_unique()` first."
        )
    positions = available.get_indexer(pd.Index(wanted))
    absent = [str(gene) for gene, position in zip(wanted, positions, strict=True) if position < 0]
    if absent:
        shown = ", ".join(absent[:5]) + (", ..." if len(absent) > 5 else "")
        raise ValueError(f"`{name}` lacks {len(absent)} of {len(wanted)} genes: {shown}. Pass the same genes.")
    return positions


def labels_of(cells: CountsLike, key: str, name: str, argument: str = "groupby") -> NDArray:
    """Labels of the cells of an AnnData, as strings; messages call the cells ``name`` and the key ``argument``."""
    check_column(key, argument)
    if not isinstance(cells, AnnData):
        raise TypeError(f"`{name}` is a {type(cells).__name__} without labels. Pass an AnnData with obs[{key!r}].")
    if key not in cells.obs:
        raise ValueError(f"`{name}` has no obs column {key!r}; it has {list(cells.obs.columns)}.")
    column = cells.obs[key]
    if column.isna().any():
        raise ValueError(f"obs[{key!r}] of `{name}` is missing for {int(column.isna().sum())} cells. Drop them.")
    return column.astype(str).to_numpy(dtype=object)


def as_array(values: object, name: str, way_out: str) -> NDArray:
    """Array of what is one for NumPy; anything else is refused at once, with a way out.

    NumPy itself takes an AnnData for a sequence of cells of sequences, and searches them for minutes.
    """
    if isinstance(values, Sequence) or hasattr(values, "__array__"):
        return np.asarray(values)
    raise TypeError(f"`{name}` is of type {type(values).__name__}: {way_out}")


def as_numbers(values: object, name: str, way_out: str) -> NDArray:
    """Array of numbers; anything else is refused."""
    array = as_array(values, name, way_out)
    if array.dtype.kind not in "biuf":
        raise TypeError(f"`{name}` holds values of type {array.dtype}, no numbers: {way_out}")
    return array


def to_dense(matrix: Points, name: str = "matrix", way_out: str = POINTS) -> NDArray:
    """Dense array of numbers of a matrix that may be sparse."""
    return as_numbers(matrix.toarray() if hasattr(matrix, "toarray") else matrix, name, way_out)


def as_points(points: Points, name: str) -> NDArray[np.float64]:
    """Coordinates of cells, (cells, dimensions), as a checked dense array."""
    array = to_dense(points, name).astype(np.float64)
    if array.ndim != 2:
        raise ValueError(f"`{name}` must be (cells, dimensions), got shape {array.shape}.")
    if not np.isfinite(array).all():
        raise ValueError(f"`{name}` holds {int((~np.isfinite(array)).sum())} values that are NaN or infinite.")
    return array


def as_point_pair(real: Points, generated: Points) -> tuple[NDArray, NDArray]:
    """Two clouds of points over the same dimensions."""
    first, second = as_points(real, "real"), as_points(generated, "generated")
    if first.shape[1] != second.shape[1]:
        raise ValueError(
            f"`real` has {first.shape[1]} dimensions and `generated` {second.shape[1]}. "
            "Map both through the same ExpressionSpace."
        )
    return first, second


def enough_cells(metric: str, needed: int, **n_cells: int) -> bool:
    """Whether every side has at least ``needed`` cells; warns and returns False otherwise."""
    for side, n in n_cells.items():
        if n < needed:
            warnings.warn(f"{metric} needs {needed} cells, `{side}` has {n}: NaN.", FewCellsWarning, stacklevel=3)
            return False
    return True


def _matrix(counts: CountsLike, layer: str | None, name: str) -> sparse.csr_matrix:
    if isinstance(counts, AnnData):
        if layer is not None and layer not in counts.layers:
            raise ValueError(f"`layer`={layer!r} is not a layer of `{name}`; it has {_names(counts.layers)}.")
        values = counts.X if layer is None else counts.layers[layer]
        if values is None:
            raise ValueError(f"`{name}` has no .X. Pass layer= with the layer that holds the counts.")
    else:
        values = counts
    if hasattr(values, "to_memory"):  # an AnnData that is backed by a file
        values = values.to_memory()
    if not sparse.issparse(values):
        values = as_array(values, name, COUNTS)
        if values.ndim != 2:
            raise ValueError(f"`{name}` must be (cells, genes), got shape {values.shape}.")
    # csr_matrix(values, dtype=...) would share its indices with `values`, and sorting them would break `values`
    matrix = sparse.csr_matrix(values).astype(np.float32)
    matrix.sum_duplicates()
    return matrix


def _names(layers: Iterable[str | None]) -> list[str]:
    """Names of layers; anndata 0.13 lists ``.X`` among them, as ``None``."""
    return [key for key in layers if key is not None]


def _check_values(values: NDArray, layer: str | None, name: str) -> None:
    if not np.isfinite(values).all():
        raise ValueError(f"`{name}` holds {int((~np.isfinite(values)).sum())} values that are NaN or infinite.")
    if (values < 0).any():
        raise ValueError(
            f"`{name}` holds {int((values < 0).sum())} negative values (first: {values[values < 0][0]:g}). "
            "Pass raw counts, not scaled expression."
        )
    fractional = values != np.rint(values)
    if fractional.any():
        place = "`.X`, or the matrix itself," if layer is None else f"layer {layer!r}"
        raise ValueError(
            f"`{name}` holds {int(fractional.sum())} values that are not whole numbers (first: "
            f"{values[fractional][0]:g}), so {place} is not counts but probably log-normalised expression. "
            "Pass layer= with the layer that holds the counts."
        )
