"""Fields of counts of an AnnData or a modality, which check counts and store them as CSR."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
from anndata import AnnData
from anndata.abc import CSCDataset
from mudata import MuData
from scipy import sparse
from scvi.data import AnnDataManager
from scvi.data.fields import BaseMuDataWrapperClass, LayerField

from scdiffgen._messages import counted, did_you_mean, listed, plain, raise_if_not_unique, warn_user
from scdiffgen._registry_keys import REGISTRY_KEYS
from scdiffgen.data._count_checks import (
    LARGEST_LIBRARY,
    CountReport,
    check_counts,
    each_once,
    holds_counts,
    with_one_index_type,
)

logger = logging.getLogger(__name__)


class CountsField(LayerField):
    """Field of molecule counts in ``adata.X`` or a layer: finite nonnegative integers, as CSR with one index type."""

    def __init__(self, registry_key: str, layer: str | None, *, may_be_empty: bool = False) -> None:
        super().__init__(registry_key, layer, is_count_data=True, correct_data_format=False)
        self._may_be_empty = may_be_empty

    def validate_field(self, adata: AnnData) -> None:
        """Raise if the data are not counts; only some blocks of data on disk are checked."""
        if self.attr_key is not None and self.attr_key not in adata.layers:
            layers = [name for name in adata.layers if name is not None]
            raise KeyError(
                f"`layer={self.attr_key!r}` is not in `adata.layers` (which has {listed(layers) or 'none'})."
                f"{did_you_mean(self.attr_key, layers)} Pass `layer=None` for `adata.X`."
            )
        if 0 in adata.shape:
            empty = "cells" if adata.n_obs == 0 else "genes"
            raise ValueError(f"{self._place} has no {empty} (shape {adata.shape}): was everything filtered out?")
        for axis, names in (("obs", adata.obs_names), ("var", adata.var_names)):
            way_out = f"Make them unique with `adata.{axis}_names_make_unique()`."
            raise_if_not_unique(names, f"`adata.{axis}_names`", way_out)
        matrix = self.get_field_data(adata)
        if matrix is None:
            raise ValueError(f"{self._place} is empty. Name the layer that holds the counts (`layer=`).")
        if self._raise_unless_counts(adata, matrix, whole=False).rounded:
            warn_user(
                f"{self._place} looks normalised for sequencing depth and rounded: in many cells, some whole numbers "
                f"are missing below frequent ones. Pass raw counts{_where_counts_are(adata, self.attr_key)}."
            )

    def where_counts_are(self, adata: AnnData) -> CountsField:
        """Return the field of new cells: ``.X`` for cells without layers, such as generated cells."""
        if self.attr_key is None or any(name is not None for name in adata.layers):
            return self
        return CountsField(self.registry_key, None, may_be_empty=self._may_be_empty)

    def check_again(self, adata: AnnData) -> None:
        """Raise if the data are not, or no longer, counts; all values are checked."""
        self._raise_unless_counts(adata, self.get_field_data(adata), whole=True)

    def _raise_unless_counts(self, adata: AnnData, matrix: Any, *, whole: bool) -> CountReport:
        try:
            report = check_counts(matrix, whole=whole)
        except TypeError as error:
            raise ValueError(
                f"{self._place}: {error}. Pass a numeric array or a CSR matrix in memory (`adata.to_memory()`), or "
                "open the file with `anndata.read_h5ad(path, backed='r')`."
            ) from error
        if report.first is not None:
            faults = ", ".join(f"{n:,} {fault}" for fault, n in report.faults.items() if n)
            cell, gene, value = report.first
            raise ValueError(
                f"{self._place} does not hold molecule counts: {faults} of its values (first: {value:g} in cell "
                f"{adata.obs_names[cell]!r}, gene {adata.var_names[gene]!r}). {report.advice}"
                f"{_where_counts_are(adata, self.attr_key)}."
            )
        if len(report.full_cells):
            names = adata.obs_names[report.full_cells]
            raise ValueError(
                f"{self._place}: {counted(len(names), 'cell')} with more than {LARGEST_LIBRARY:,} molecules "
                f"({listed(names)}), which are not counted exactly in single precision. If they are sums of many "
                f"cells, thin them: `sc.pp.downsample_counts(adata, counts_per_cell={LARGEST_LIBRARY})`."
            )
        if len(report.empty_cells) and not self._may_be_empty:
            names = adata.obs_names[report.empty_cells]
            way_out = "sc.pp.filter_cells(adata, min_counts=1)"  # reads `.X`
            if self.attr_key is not None:
                way_out = f"adata = adata[adata.layers[{self.attr_key!r}].sum(axis=1) > 0].copy()"
            raise ValueError(
                f"{self._place}: {counted(len(names), 'cell')} without a molecule ({listed(names)}). "
                f"Remove them first: `{way_out}`."
            )
        return report

    def register_field(self, adata: AnnData) -> dict[str, Any]:
        """Check the counts, and store them by rows."""
        state = super().register_field(adata)
        matrix = by_rows = self.get_field_data(adata)
        if isinstance(matrix, CSCDataset):
            warn_user(
                f"{self._place} is stored by columns on disk, so each minibatch reads all of it. Write it by rows "
                "(`adata.X = adata.X.tocsr()` before `adata.write_h5ad(path)`)."
            )
        elif isinstance(matrix, np.ndarray):
            by_rows = np.asanyarray(matrix, order="C")
        elif sparse.issparse(matrix):
            by_rows = matrix if isinstance(matrix, sparse.csr_matrix) else sparse.csr_matrix(matrix)
            by_rows = with_one_index_type(each_once(by_rows))
        if by_rows is not matrix:
            logger.info("%s is stored by rows, with the same values.", self._place)
            if self.attr_key is None:
                adata.X = by_rows
            else:
                adata.layers[self.attr_key] = by_rows
        return state

    def transfer_field(self, state_registry: dict[str, Any], adata_target: AnnData, **kwargs: Any) -> dict[str, Any]:
        """Register other cells with the same genes in the same order."""
        expected, genes = np.asarray(state_registry[self.COLUMN_NAMES_KEY]), np.asarray(adata_target.var_names)
        missing = expected[~np.isin(expected, genes)]
        way_out = "Reorder them by `adata = adata[:, model.get_var_names()].copy()`."
        if len(missing) == len(expected):
            raise ValueError(
                f"No registered gene is in `adata.var_names` (first: {plain(genes[0])!r}, registered: "
                f"{plain(expected[0])!r}): use the same type of identifier."
            )
        if len(missing):
            raise ValueError(
                f"{counted(len(missing), 'gene')} of the {len(expected):,} registered ones are missing from "
                f"`adata.var_names` ({listed(missing)}). "
                "`TokenDiffusion.prepare_query_anndata(adata, model)` fills them with zeros, read as unexpressed."
            )
        if len(genes) > len(expected):
            raise ValueError(f"`adata` has {len(genes):,} genes, {len(expected):,} are registered. {way_out}")
        if not np.array_equal(expected, genes):
            raise ValueError(f"The genes of `adata` are the registered ones in another order. {way_out}")
        return super().transfer_field(state_registry, adata_target, **kwargs)

    @property
    def _place(self) -> str:
        return "`adata.X` (`layer=None`)" if self.attr_key is None else f"`layer={self.attr_key!r}`"


def _where_counts_are(adata: AnnData, layer: str | None) -> str:
    """Name other matrices of the cells that hold counts, and how to register them."""
    layers = [name for name in adata.layers if name not in (None, layer) and holds_counts(adata.layers[name])]
    places = [f"{listed(layers)} are in `adata.layers` (pass `layer=`)"] if layers else []
    if layer is not None and holds_counts(adata.X):
        places.append("`adata.X` holds counts (pass `layer=None`)")
    if adata.raw is not None and holds_counts(adata.raw.X):
        places.append("`adata.raw` holds counts (register `adata.raw.to_adata()`)")
    return f": {'; '.join(places)}" if places else ", for example as a layer"


class ModalityCountsField(BaseMuDataWrapperClass):
    """Field of molecule counts of one modality; new cells without the modality have empty counts."""

    def __init__(self, registry_key: str, layer: str | None, modality: str, *, may_be_empty: bool = False) -> None:
        super().__init__(mod_key=modality, mod_required=True)
        self._adata_field = CountsField(registry_key, layer, may_be_empty=may_be_empty)

    def register_field(self, mdata: MuData) -> dict[str, Any]:
        """Check the counts, and store them by rows."""
        with self._named():
            return super().register_field(mdata)

    def transfer_field(self, state_registry: dict[str, Any], mdata_target: MuData, **kwargs: Any) -> dict[str, Any]:
        """Register other cells with the same genes in the same order, or without the modality."""
        if self.mod_key not in mdata_target.mod or not mdata_target.mod[self.mod_key].n_obs:
            return dict(state_registry)
        with self._named():
            return super().transfer_field(state_registry, mdata_target, **kwargs)

    def check_again(self, mdata: MuData) -> None:
        """Raise if the modality does not, or no longer, hold counts."""
        if self.mod_key in mdata.mod and mdata.mod[self.mod_key].n_obs:
            with self._named():
                self._adata_field.check_again(mdata.mod[self.mod_key])

    @contextmanager
    def _named(self) -> Iterator[None]:
        """Name the modality in errors."""
        try:
            yield
        except (KeyError, ValueError) as error:
            message = error.args[0] if error.args else ""
            raise type(error)(f"Modality {self.mod_key!r} (`adata` is `mdata[{self.mod_key!r}]`): {message}") from error


def modality_fields(modalities: Sequence[str], layers: Mapping[str, str | None]) -> list[ModalityCountsField]:
    """Create the count fields of all modalities; the first has the registry key of an AnnData's counts."""
    several = len(modalities) > 1
    keys = counts_key_of(modalities)
    return [ModalityCountsField(key, layers.get(name), name, may_be_empty=several) for name, key in keys.items()]


def check_counts_again(manager: AnnDataManager) -> None:
    """Raise if registered cells do not, or no longer, hold counts; all values are checked."""
    for field in manager.fields:
        if isinstance(field, CountsField | ModalityCountsField):
            field.check_again(manager.adata)


def counts_key_of(modalities: Sequence[str]) -> dict[str, str]:
    """Map modalities to registry keys of their counts; the first has the key of an AnnData's counts."""
    first = REGISTRY_KEYS.X
    return {name: f"{first}_{name}" if position else first for position, name in enumerate(modalities)}
