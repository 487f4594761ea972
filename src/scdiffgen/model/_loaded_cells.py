"""Cells of a user's data loader (such as annbatch) as registered tensors, in the order of the loader."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import numpy as np
import pandas as pd
import torch
from scipy import sparse
from scvi.model.base import BaseModelClass
from scvi.utils import track
from torch import Tensor

from scdiffgen._messages import counted, listed
from scdiffgen._registry_keys import REGISTRY_KEYS
from scdiffgen.conditions import Conditions
from scdiffgen.data import are_counts, categories_of_condition, codes_of, condition_specs, read_registry, required_state
from scdiffgen.train import csr_tensor

from ._cells import Cells


class MinibatchReader:
    """Conversion of minibatches to tensors by registry key; missing tensors are encoded from columns of ``"obs"``."""

    def __init__(self, model: BaseModelClass, place: str) -> None:
        self.module, self.registry, self.place = model.module, model.registry, place
        columns = (required_state(model.registry, key)["column_names"] for key in self.module.count_keys)
        self.genes = pd.Index(np.concatenate(list(columns)))

    def __call__(self, batch: Any) -> dict[str, Tensor]:
        """Return the registered tensors of a minibatch; raise if one is missing or has other genes."""
        if not isinstance(batch, Mapping):
            raise TypeError(
                f"{self.place}: a minibatch is of type {type(batch).__name__}: yield a mapping from registry keys, "
                "such as 'X' and 'labels', to tensors with one row per cell."
            )
        coded: dict[str, Any] = {}
        if isinstance(batch.get("obs"), pd.DataFrame):
            coded = {key: torch.from_numpy(codes) for key, codes in codes_of(self.registry, batch["obs"]).items()}
        keys = [*self.module.count_keys, *dict.fromkeys(spec.registry_key for spec in self.module.specs)]
        tensors = {key: batch.get(key, coded.get(key)) for key in keys}
        for key in self.module.count_keys:
            tensors[key] = _as_tensor(tensors[key])
        for key, tensor in tensors.items():
            if not isinstance(tensor, Tensor):
                state = f"of type {type(tensor).__name__}" if key in batch else "missing"
                raise ValueError(
                    f"{self.place}: {key!r} is registered, but it is {state} in a minibatch (which has "
                    f"{listed(batch)}). Yield a tensor with one row per cell, or the registered columns in a data "
                    "frame 'obs'."
                )
        n_columns, var = sum(tensors[key].shape[1] for key in self.module.count_keys), batch.get("var")
        if n_columns != len(self.genes) or (isinstance(var, pd.DataFrame) and not var.index.equals(self.genes)):
            raise ValueError(
                f"{self.place}: a minibatch has {counted(n_columns, 'gene')}, and {len(self.genes):,} are registered: "
                "the genes or their order differ. Yield the registered genes in their order."
            )
        if len(lengths := {len(tensor) for tensor in tensors.values()}) > 1:
            raise ValueError(f"{self.place}: tensors have {listed(sorted(lengths))} rows: yield one row per cell.")
        return {key: tensor if tensor.ndim > 1 else tensor[:, None] for key, tensor in tensors.items()}

    def unpacked(self, batch: Any, number: int) -> tuple[Tensor, Conditions[Tensor]]:
        """Return CSR counts and conditions of a minibatch; raise if counts or codes are invalid."""
        counts, conditions = self.module.unpack(self(batch))
        library, place = self.module.library(counts), f"{self.place}: minibatch {number}"
        if not are_counts(counts.values()):
            raise ValueError(f"{place} does not hold molecule counts in {self.module.count_keys}. Pass raw counts.")
        if not (library if library.ndim == 1 else library.sum(1)).all():
            raise ValueError(f"{place} has a cell without a molecule. Leave such cells out.")
        for spec in self.module.specs:
            ids = conditions[spec.name].ids
            if not spec.is_number and ids.numel() and ids.max() >= spec.n_categories:
                raise ValueError(
                    f"{place} has the code {int(ids.max())} of {spec.name!r} in {spec.registry_key!r}, and the registry"
                    f" has {counted(spec.n_categories, 'category', 'categories')}: pass codes from 0 in their order."
                )
        return counts, conditions


def check_categories(model: BaseModelClass, of_module: Any) -> None:
    """Raise if a data module of scvi-tools encodes labels or batches in another order than the model."""
    if not isinstance(of_module, Mapping) or of_module.get("setup_method_name") != "setup_datamodule":
        return
    theirs = read_registry(of_module, type(model))
    known = {spec.registry_key: spec for spec in condition_specs(theirs)}
    for spec in model.module.specs:
        if spec.registry_key in (REGISTRY_KEYS.LABELS, REGISTRY_KEYS.BATCH):
            own, other = categories_of_condition(model.registry, spec), known.get(spec.registry_key)
            coded = [] if other is None else categories_of_condition(theirs, other).tolist()
            if coded[: len(own)] != own.tolist():
                raise ValueError(
                    f"`datamodule` encodes {spec.name!r} as {listed(coded) or 'nothing'}, the model as {listed(own)}. "
                    "Create the model with `registry=datamodule.registry`, or yield a data frame 'obs' instead."
                )


def _as_tensor(counts: Any) -> Any:
    """Convert counts to single-precision tensors; other values are returned unchanged."""
    if sparse.issparse(counts):
        return csr_tensor(sparse.csr_matrix(counts, dtype=np.float32))
    counts = torch.from_numpy(counts) if isinstance(counts, np.ndarray) else counts
    return counts.float() if isinstance(counts, Tensor) else counts


class LoadedCells(Cells):
    """Minibatches of a data loader, in its order."""

    def __init__(self, model: BaseModelClass, loader: Iterable[Any], description: str | None) -> None:
        self.module, self.loader, self.description = model.module, loader, description
        self.read = MinibatchReader(model, "`dataloader`")
        self._obs: list[pd.DataFrame] = []

    def __iter__(self) -> Iterator[tuple[Tensor, Conditions[Tensor]]]:
        """Yield minibatches of CSR counts and conditions."""
        self._obs, n_cells = [], 0
        for number, batch in enumerate(track(self.loader, self.description or "", disable=self.description is None)):
            counts, conditions = self.read.unpacked(batch, number)
            numbers = pd.RangeIndex(n_cells, n_cells := n_cells + len(counts))
            obs = batch.get("obs")
            self._obs.append(obs if isinstance(obs, pd.DataFrame) else pd.DataFrame(index=numbers.astype(str)))
            yield counts, conditions
        if not n_cells:
            raise ValueError("`dataloader` yields no cell: pass a loader with at least one minibatch.")

    def obs(self) -> pd.DataFrame:
        """Return the ``.obs`` of the loaded cells; numbered if minibatches have no ``"obs"``."""
        return pd.concat(self._obs)

    @property
    def names(self) -> pd.Index:
        """Return the names of the loaded cells."""
        return self.obs().index

    def in_order(self, rows: list[Any]) -> Any:
        """Join results of minibatches."""
        return sparse.vstack(rows, format="csr") if sparse.issparse(rows[0]) else np.concatenate(rows)


def given_cells(
    model: BaseModelClass, adata: Any, indices: Any, batch_size: int, description: str | None, dataloader: Any
) -> Cells:
    """Return the cells of a data loader if given, else registered cells."""
    if dataloader is None:
        return Cells(model, adata, indices, batch_size, description)
    if adata is not None or indices is not None:
        raise ValueError("`dataloader` provides the cells: leave out `adata` and `indices`.")
    return LoadedCells(model, dataloader, description)
