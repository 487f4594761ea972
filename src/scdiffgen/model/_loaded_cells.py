"""Cells that a loader of the user hands out, such as annbatch's, as registered tensors in the order of the loader."""

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
from scdiffgen.data import (
    are_counts,
    categories_of_condition,
    codes_of,
    condition_specs,
    read_registry,
    required_state,
)
from scdiffgen.train import csr_tensor

from ._cells import Cells


class MinibatchReader:
    """Bring minibatches to tensors by registry key; what they lack is coded from the columns of their ``"obs"``."""

    def __init__(self, model: BaseModelClass, place: str) -> None:
        self.module, self.registry, self.place = model.module, model.registry, place
        columns = (required_state(model.registry, key)["column_names"] for key in self.module.count_keys)
        self.genes = pd.Index(np.concatenate(list(columns)))

    def __call__(self, batch: Any) -> dict[str, Tensor]:
        """Registered tensors of a minibatch; raise if one is missing or has other genes."""
        if not isinstance(batch, Mapping):
            raise TypeError(
                f"{self.place}: a minibatch is of type {type(batch).__name__}: hand out a mapping from registry keys, "
                "such as 'X' and 'labels', to tensors with a row a cell."
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
                found = f"of type {type(tensor).__name__}" if key in batch else "not there"
                raise ValueError(
                    f"{self.place}: {key!r} is registered, and in a minibatch it is {found} (there are "
                    f"{listed(batch)}). Hand out a tensor with a row a cell, or the registered columns in a data frame "
                    "'obs'."
                )
        n_columns, var = sum(tensors[key].shape[1] for key in self.module.count_keys), batch.get("var")
        if n_columns != len(self.genes) or (isinstance(var, pd.DataFrame) and not var.index.equals(self.genes)):
            raise ValueError(
                f"{self.place}: a minibatch has {counted(n_columns, 'gene')}, and {len(self.genes):,} are registered: "
                "they differ, or their order. Hand out the registered ones, in their order."
            )
        if len(lengths := {len(tensor) for tensor in tensors.values()}) > 1:
            raise ValueError(f"{self.place}: tensors of a minibatch have {listed(sorted(lengths))} rows: one a cell.")
        return {key: tensor if tensor.ndim > 1 else tensor[:, None] for key, tensor in tensors.items()}

    def unpacked(self, batch: Any, number: int) -> tuple[Tensor, Conditions[Tensor]]:
        """CSR counts and conditions of a minibatch; raise if they cannot be those of registered cells."""
        counts, conditions = self.module.unpack(self(batch))
        library, place = self.module.library(counts), f"{self.place}: minibatch {number}"
        if not are_counts(counts.values()):
            raise ValueError(f"{place} does not hold molecule counts in {self.module.count_keys}. Pass raw counts.")
        if not (library if library.ndim == 1 else library.sum(1)).all():
            raise ValueError(f"{place} has a cell without a single molecule. Leave such cells out.")
        for spec in self.module.specs:
            ids = conditions[spec.name].ids
            if not spec.is_number and ids.numel() and ids.max() >= spec.n_categories:
                raise ValueError(
                    f"{place} has the code {int(ids.max())} of {spec.name!r} in {spec.registry_key!r}, and the "
                    f"registry {counted(spec.n_categories, 'category', 'categories')}, coded from 0 in their order."
                )
        return counts, conditions


def check_categories(model: BaseModelClass, of_module: Any) -> None:
    """Raise if a data module of scvi-tools, which hands out codes, codes labels or batches in another order."""
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
                    f"`datamodule` codes {spec.name!r} by {listed(coded) or 'nothing'}, the model by {listed(own)}. "
                    "Make the model with `registry=datamodule.registry`, or hand out a data frame 'obs' instead."
                )


def _as_tensor(counts: Any) -> Any:
    """Counts in single precision; what is no matrix stays as it is."""
    if sparse.issparse(counts):
        return csr_tensor(sparse.csr_matrix(counts, dtype=np.float32))
    counts = torch.from_numpy(counts) if isinstance(counts, np.ndarray) else counts
    return counts.float() if isinstance(counts, Tensor) else counts


class LoadedCells(Cells):
    """Iterate the minibatches of a loader, in its order."""

    def __init__(self, model: BaseModelClass, loader: Iterable[Any], description: str | None) -> None:
        self.module, self.loader, self.description = model.module, loader, description
        self.read = MinibatchReader(model, "`dataloader`")
        self._obs: list[pd.DataFrame] = []

    def __iter__(self) -> Iterator[tuple[Tensor, Conditions[Tensor]]]:
        """CSR counts and conditions, minibatch after minibatch."""
        self._obs, n_cells = [], 0
        for number, batch in enumerate(track(self.loader, self.description or "", disable=self.description is None)):
            counts, conditions = self.read.unpacked(batch, number)
            numbers = pd.RangeIndex(n_cells, n_cells := n_cells + len(counts))
            obs = batch.get("obs")
            self._obs.append(obs if isinstance(obs, pd.DataFrame) else pd.DataFrame(index=numbers.astype(str)))
            yield counts, conditions
        if not n_cells:
            raise ValueError("`dataloader` hands out no cell.")

    def obs(self) -> pd.DataFrame:
        """The ``.obs`` of the cells that were handed out; numbered where minibatches have none."""
        return pd.concat(self._obs)

    @property
    def names(self) -> pd.Index:
        """Names of the cells that were handed out."""
        return self.obs().index

    def in_order(self, rows: list[Any]) -> Any:
        """Join rows computed minibatch by minibatch."""
        return sparse.vstack(rows, format="csr") if sparse.issparse(rows[0]) else np.concatenate(rows)


def given_cells(
    model: BaseModelClass, adata: Any, indices: Any, batch_size: int, description: str | None, dataloader: Any
) -> Cells:
    """Cells of a loader if there is one, else registered ones."""
    if dataloader is None:
        return Cells(model, adata, indices, batch_size, description)
    if adata is not None or indices is not None:
        raise ValueError("`dataloader` hands out the cells: leave out `adata` and `indices`.")
    return LoadedCells(model, dataloader, description)
