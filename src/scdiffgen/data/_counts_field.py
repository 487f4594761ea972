"""The registered counts: checked value by value before anything is touched, and stored by rows."""

from __future__ import annotations

import logging
import warnings
from typing import Any

import numpy as np
from anndata import AnnData
from anndata.abc import CSCDataset
from scipy import sparse
from scvi import settings
from scvi.data.fields import LayerField

from scdiffgen._messages import counted, did_you_mean, listed
from scdiffgen.data._counts import LARGEST_LIBRARY, CountReport, alike_indices, check_counts

logger = logging.getLogger(__name__)

_HISTORY = {
    "divided": "NaN and infinite values come of dividing by zero. Pass raw counts",
    "scaled": "They look scaled or centred. Pass raw counts",
    "log-normalised": "They look log-normalised. Pass raw counts",
    "normalised": "They look normalised for sequencing depth. Pass raw counts",
    "estimated": "If they are estimated counts (as CellBender or RSEM give), round them: "
    "`adata.layers['counts'] = np.rint(...)`, and pass `layer='counts'`. Otherwise pass raw counts",
}


class CountsField(LayerField):
    """Molecule counts in ``adata.X`` or a layer: finite non-negative integers, all of them.

    Counts stored by columns (CSC, or a Fortran-ordered array) and SciPy's sparse arrays are replaced by a CSR matrix or
    array with the same values, which is what scvi-tools' data loaders read. So is a CSR matrix whose two indices are of
    different types, as files have that were written piece by piece: SciPy would bring them to one type for every
    mini-batch. Cells without a molecule are taken if they ``may_be_empty``.
    """

    def __init__(self, registry_key: str, layer: str | None, *, may_be_empty: bool = False) -> None:
        super().__init__(registry_key, layer, is_count_data=True, correct_data_format=False)
        self._may_be_empty = may_be_empty

    def validate_field(self, adata: AnnData) -> None:
        """Raise if the data are no counts, of which only some blocks are looked at if they are not in memory."""
        if self.attr_key is not None and self.attr_key not in adata.layers:
            layers = [name for name in adata.layers if name is not None]
            raise KeyError(
                f"`layer={self.attr_key!r}` is not in `adata.layers` (which has {listed(layers) or 'none'})."
                f"{did_you_mean(self.attr_key, layers)} Pass `layer=None` for `adata.X`."
            )
        _check_shape_and_names(adata, self._place)
        matrix = self.get_field_data(adata)
        if matrix is None:
            raise ValueError(f"{self._place} is empty. Name the layer that holds the counts (`layer=`).")
        self._raise_unless_counts(adata, matrix, whole=False)

    def where_counts_are(self, adata: AnnData) -> CountsField:
        """The field of cells that a model is shown: ``.X`` where they have no layers, as generated cells have none."""
        if self.attr_key is None or any(name is not None for name in adata.layers):
            return self
        return CountsField(self.registry_key, None, may_be_empty=self._may_be_empty)

    def check_the_rest(self, adata: AnnData) -> None:
        """Raise if data that are not in memory are no counts, of which some were looked at in registration."""
        matrix = self.get_field_data(adata)
        if not (isinstance(matrix, np.ndarray) or sparse.issparse(matrix)):
            self._raise_unless_counts(adata, matrix, whole=True)

    def _raise_unless_counts(self, adata: AnnData, matrix: Any, *, whole: bool) -> None:
        try:
            report = check_counts(matrix, whole=whole)
        except TypeError as error:
            raise ValueError(
                f"{self._place}: {error}. Give a numeric array or a CSR matrix in memory (`adata.to_memory()`), or "
                "open the file with `anndata.read_h5ad(path, backed='r')`."
            ) from error
        if report.n_bad:
            raise ValueError(_not_counts(report, self._place, adata, self.attr_key))
        if len(report.full_cells):
            names = adata.obs_names[report.full_cells]
            raise ValueError(
                f"{self._place}: {counted(len(names), 'cell')} with more than {LARGEST_LIBRARY:,} molecules "
                f"({listed(names)}), which are not counted exactly in single precision. If they are sums of many "
                f"cells, thin them: `sc.pp.downsample_counts(adata, counts_per_cell={LARGEST_LIBRARY})`."
            )
        if len(report.empty_cells) and not self._may_be_empty:
            names = adata.obs_names[report.empty_cells]
            raise ValueError(
                f"{self._place}: {counted(len(names), 'cell')} without a single molecule ({listed(names)}). "
                "Remove them first: `sc.pp.filter_cells(adata, min_counts=1)`."
            )

    def register_field(self, adata: AnnData) -> dict[str, Any]:
        """Check the counts, and store them by rows."""
        state = super().register_field(adata)
        matrix = self.get_field_data(adata)
        if sparse.issparse(matrix) and not isinstance(matrix, sparse.csr_matrix):
            logger.info("%s is replaced by a CSR matrix with the same values.", self._place)
            self._replace(adata, sparse.csr_matrix(matrix))
        elif sparse.issparse(matrix) and alike_indices(matrix) is not matrix:
            self._replace(adata, alike_indices(matrix))
        elif isinstance(matrix, np.ndarray) and not matrix.flags["C_CONTIGUOUS"]:
            self._replace(adata, np.ascontiguousarray(matrix))
        elif isinstance(matrix, CSCDataset):
            warnings.warn(
                f"{self._place} is stored by columns on disk: every mini-batch will read all of it. Write it by rows "
                "(`adata.X = adata.X.tocsr()` before `adata.write_h5ad(path)`).",
                UserWarning,
                stacklevel=settings.warnings_stacklevel,
            )
        return state

    def transfer_field(self, state_registry: dict[str, Any], adata_target: AnnData, **kwargs: Any) -> dict[str, Any]:
        """Register other cells, which must have the same genes in the same order."""
        _check_genes(np.asarray(state_registry[self.COLUMN_NAMES_KEY]), np.asarray(adata_target.var_names))
        return super().transfer_field(state_registry, adata_target, **kwargs)

    def _replace(self, adata: AnnData, matrix: np.ndarray | sparse.csr_matrix) -> None:
        if self.attr_key is None:
            adata.X = matrix
        else:
            adata.layers[self.attr_key] = matrix

    @property
    def _place(self) -> str:
        return "`adata.X` (`layer=None`)" if self.attr_key is None else f"`layer={self.attr_key!r}`"


def _check_shape_and_names(adata: AnnData, place: str) -> None:
    if adata.n_obs == 0 or adata.n_vars == 0:
        empty = "cells" if adata.n_obs == 0 else "genes"
        raise ValueError(f"{place} has no {empty} (shape {adata.shape}): was everything filtered out?")
    for axis, names in (("obs", adata.obs_names), ("var", adata.var_names)):
        if not names.is_unique:
            twice = names[names.duplicated()].unique()
            raise ValueError(
                f"`adata.{axis}_names` are not unique: {listed(twice)} occur more than once. "
                f"Make them unique with `adata.{axis}_names_make_unique()`."
            )


def _check_genes(expected: np.ndarray, found: np.ndarray) -> None:
    if np.array_equal(expected, found):
        return
    way_out = "Bring them in order with `adata = adata[:, model.get_var_names()].copy()`."
    missing = expected[~np.isin(expected, found)]
    if len(missing):
        raise ValueError(
            f"{counted(len(missing), 'gene')} of the {len(expected):,} registered ones are missing from "
            f"`adata.var_names` ({listed(missing)}). Use the same gene names; "
            "`scvi.model.SCVI.prepare_query_anndata(adata, model)` adds genes that were not measured as zeros."
        )
    if len(found) > len(expected):
        raise ValueError(f"`adata` has {len(found):,} genes, {len(expected):,} are registered. {way_out}")
    raise ValueError(f"The genes of `adata` are the registered ones in another order. {way_out}")


def _not_counts(report: CountReport, place: str, adata: AnnData, layer: str | None) -> str:
    kinds = {"negative": report.n_negative, "fractional": report.n_fractional, "not finite": report.n_not_finite}
    faults = ", ".join(f"{n:,} {kind}" for kind, n in kinds.items() if n)
    if report.first is None or report.looks is None:
        raise AssertionError("a report with bad values names the first of them")
    cell, gene, value = report.first
    others = [name for name in adata.layers if name is not None and name != layer]
    advice = f": {listed(others)} are in `adata.layers` (pass `layer=`)" if others else ", for example as a layer"
    return (
        f"{place} does not hold molecule counts: {faults} of its values (first: {value:g} in cell "
        f"{adata.obs_names[cell]!r}, gene {adata.var_names[gene]!r}). {_HISTORY[report.looks]}{advice}."
    )
