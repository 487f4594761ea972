"""Conversion of AnnData, sparse or dense arrays to checked CSR matrices with aligned genes."""

from collections.abc import Iterable, Sequence
from typing import Any, TypeAlias

import numpy as np
import pandas as pd
from anndata import AnnData
from numpy.typing import ArrayLike, NDArray
from scipy import sparse

from scdiffgen._codes import indicator
from scdiffgen._messages import warn_user
from scdiffgen._names import check_column

CountsLike: TypeAlias = AnnData | NDArray | sparse.spmatrix | sparse.sparray
Points: TypeAlias = ArrayLike | sparse.spmatrix | sparse.sparray
Matrix: TypeAlias = NDArray | sparse.csr_matrix

FEWEST_CELLS = 10  # minimum number of cells of a score or variance

# advice in error messages
COUNTS = "pass an AnnData, or an array or sparse matrix (cells, genes)."
POINTS = 'pass an array (cells, dimensions), such as `adata.obsm["X_pca"]`, or use `metrics.evaluate`.'
FEATURES = POINTS.replace("dimensions", "features")
EXPRESSION = "pass an array (cells, genes), such as `ExpressionSpace.expression` makes of an AnnData."
RESPONSE = "pass an array (genes,), such as a difference of mean expression."


class FewCellsWarning(UserWarning):
    """A metric is NaN because it needs more cells."""


def enough_cells(metric: str, needed: int, **n_cells: int) -> bool:
    """Test whether each side has at least ``needed`` cells; warn otherwise."""
    for side, n in n_cells.items():
        if n < needed:
            warn_user(f"{metric} needs {needed} cells, `{side}` has {n}: NaN.", FewCellsWarning)
            return False
    return True


def as_counts(
    counts: CountsLike,
    *,
    layer: str | None = None,
    genes: pd.Index | None = None,
    n_genes: int | None = None,
    name: str = "counts",
) -> sparse.csr_matrix:
    """Check counts (``name`` in messages) and convert them to float32 CSR, aligned to ``genes`` by name."""
    if isinstance(counts, AnnData) and not _layers(counts):
        layer = None
    matrix = _matrix(counts, layer, name)
    _check_values(matrix.data, layer, name)
    if isinstance(counts, AnnData) and genes is not None:
        return matrix[:, gene_positions(counts.var_names, genes, name)]
    if n_genes is not None and matrix.shape[1] != n_genes:
        raise ValueError(
            f"`{name}` has {matrix.shape[1]} genes, expected {n_genes}. Pass the same genes in the same order, "
            "or AnnData objects, whose genes are aligned by name."
        )
    return matrix


def as_count_pair(
    real: CountsLike, generated: CountsLike, *, layer: str | None = None, names: tuple[str, str] = ("real", "generated")
) -> tuple[sparse.csr_matrix, sparse.csr_matrix]:
    """Check the counts of two sides, and align the second to the genes of the first by name if there are names."""
    genes = gene_names(real)
    if genes is None and isinstance(generated, AnnData):
        raise TypeError(
            f"`{names[1]}` is an AnnData, but `{names[0]}` is a matrix without gene names. Pass both as AnnData "
            "objects, whose genes are aligned by name, or both as matrices."
        )
    first = as_counts(real, layer=layer, genes=genes, name=names[0])
    return first, as_counts(generated, layer=layer, genes=genes, n_genes=first.shape[1], name=names[1])


def gene_names(counts: CountsLike) -> pd.Index | None:
    """Return the gene names of an AnnData; ``None`` for a matrix."""
    return counts.var_names if isinstance(counts, AnnData) else None


def labels_of(cells: CountsLike, key: str, name: str, argument: str = "groupby") -> NDArray:
    """Return labels of an AnnData as strings; messages call the cells ``name`` and the key ``argument``."""
    check_column(key, argument)
    if not isinstance(cells, AnnData):
        raise TypeError(f"`{name}` is a {type(cells).__name__} without labels: pass an AnnData with obs[{key!r}].")
    column = obs_column(cells, key, name)
    if column.isna().any():
        raise ValueError(f"obs[{key!r}] of `{name}` is missing for {int(column.isna().sum())} cells. Drop them.")
    return column.astype(str).to_numpy(dtype=object)


def obs_column(cells: AnnData, key: str, name: str) -> pd.Series:
    """Return a column of ``obs``; raise if there is none."""
    if key not in cells.obs:
        raise ValueError(f"`{name}` has no obs column {key!r}: choose from {list(cells.obs.columns)}.")
    return cells.obs[key]


def label_codes(
    labels: ArrayLike, n_cells: int, name: str, known: NDArray[np.str_] | None = None
) -> tuple[NDArray[np.str_], NDArray[np.intp]]:
    """Return sorted label names and the index of each cell's label; raise if a label is not among ``known``."""
    names = np.asarray(labels).astype(str)
    if names.shape != (n_cells,):
        raise ValueError(f"`{name}` has shape {names.shape}, expected one label for each of the {n_cells} cells.")
    if known is None:
        return np.unique(names, return_inverse=True)
    codes = pd.Index(known).get_indexer(names)
    unknown = np.unique(names[codes < 0])
    if len(unknown):
        raise ValueError(
            f"`{name}` has {len(unknown)} labels without training cells: {', '.join(unknown[:5])}. "
            f"Known labels: {', '.join(known[:10])}."
        )
    return known, codes


def label_sums(
    matrix: sparse.csr_matrix, labels: ArrayLike, name: str
) -> tuple[NDArray[np.str_], NDArray[np.float64], NDArray[np.int64]]:
    """Return label names, sums of rows per label, (labels, genes), and numbers of cells."""
    known, which = label_codes(labels, matrix.shape[0], name)
    sums = (indicator(which, len(known)) @ matrix.astype(np.float64)).toarray()
    return known, sums, np.bincount(which, minlength=len(known))


def as_numbers(values: object, name: str, way_out: str) -> NDArray:
    """Convert to an array of numbers; reject AnnData first, which NumPy would treat as a slow sequence."""
    if not (isinstance(values, Sequence) or hasattr(values, "__array__")):
        raise TypeError(f"`{name}` is of type {type(values).__name__}: {way_out}")
    array = np.asarray(values)
    if array.dtype.kind not in "biuf":
        raise TypeError(f"`{name}` holds values of type {array.dtype}, not numbers: {way_out}")
    return array


def as_features(
    cells: Points, name: str, way_out: str = FEATURES, *, dtype: type[np.floating] = np.float32
) -> NDArray | sparse.csr_matrix:
    """Check features of cells; dense arrays stay dense, sparse matrices become CSR."""
    if sparse.issparse(cells):
        features = sparse.csr_matrix(cells).astype(dtype)
    else:
        features = as_numbers(cells, name, way_out).astype(dtype, copy=False)
    if features.ndim != 2:
        raise ValueError(f"`{name}` has shape {features.shape}: {way_out}")
    _refuse_infinite(features.data if sparse.issparse(features) else features, name)
    return features


def as_point_pair(real: Points, generated: Points) -> tuple[NDArray, NDArray]:
    """Check two samples of points over the same dimensions."""
    return as_feature_pair(to_dense(real), to_dense(generated), "dimensions", POINTS, dtype=np.float64)


def as_feature_pair(
    real: Points,
    generated: Points,
    unit: str = "features",
    way_out: str = FEATURES,
    *,
    dtype: type[np.floating] = np.float32,
) -> tuple[Any, Any]:
    """Check two samples with the same features, or genes."""
    x, y = as_features(real, "real", way_out, dtype=dtype), as_features(generated, "generated", way_out, dtype=dtype)
    if x.shape[1] != y.shape[1]:
        raise ValueError(
            f"`real` has {x.shape[1]} {unit} and `generated` {y.shape[1]}. Map both through the same ExpressionSpace."
        )
    return x, y


def to_dense(matrix: Points) -> Any:
    """Convert a sparse matrix to a dense array; other values are unchanged."""
    return matrix.toarray() if hasattr(matrix, "toarray") else matrix


def gene_positions(available: pd.Index, wanted: Sequence[str], name: str) -> NDArray[np.intp]:
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


def _matrix(counts: CountsLike, layer: str | None, name: str) -> sparse.csr_matrix:
    if isinstance(counts, AnnData):
        if layer is not None and layer not in counts.layers:
            raise ValueError(f"`layer`={layer!r} is not a layer of `{name}`: choose from {_layers(counts)}.")
        values = counts.X if layer is None else counts.layers[layer]
        if values is None:
            raise ValueError(f"`{name}` has no .X. Pass layer= with the layer that holds the counts.")
    else:
        values = counts
    if hasattr(values, "to_memory"):  # a backed AnnData
        values = values.to_memory()
    if not sparse.issparse(values):
        values = as_numbers(values, name, COUNTS)
        if values.ndim != 2:
            raise ValueError(f"`{name}` must be (cells, genes), got shape {values.shape}.")
    matrix = sparse.csr_matrix(values)  # shares memory with `values`, so its indices must not be sorted in place
    matrix = matrix.astype(np.float32, copy=not matrix.has_canonical_format)
    matrix.sum_duplicates()
    return matrix


def _layers(cells: AnnData) -> list[str]:
    """Return names of the layers without ``None``, under which anndata 0.13 lists ``.X``."""
    keys: Iterable[str | None] = cells.layers
    return [key for key in keys if key is not None]


def _refuse_infinite(values: NDArray, name: str) -> None:
    if not np.isfinite(values).all():
        raise ValueError(f"`{name}` holds {int((~np.isfinite(values)).sum())} values that are NaN or infinite.")


def _check_values(values: NDArray, layer: str | None, name: str) -> None:
    _refuse_infinite(values, name)
    if (values < 0).any():
        raise ValueError(
            f"`{name}` holds {int((values < 0).sum())} negative values (first: {values[values < 0][0]:g}). "
            "Pass raw counts, not scaled expression."
        )
    fractional = values != np.rint(values)
    if fractional.any():
        place = "`.X`, or the matrix itself," if layer is None else f"layer {layer!r}"
        raise ValueError(
            f"`{name}` holds {fractional.sum():,} values that are not whole numbers (first: "
            f"{values[fractional][0]:g}), so {place} is not counts but probably log-normalised expression. "
            "Pass layer= with the layer that holds the counts."
        )
