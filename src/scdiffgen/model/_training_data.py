"""Training cells of an AnnData, which are read repeatedly, or of a data module (such as annbatch), read once."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
import torch
from anndata import AnnData
from lightning.pytorch import LightningDataModule
from lightning.pytorch.utilities.model_helpers import is_overridden
from mudata import MuData
from scipy import sparse
from scvi.model.base import BaseModelClass
from scvi.utils import track
from torch import Tensor

from scdiffgen._messages import counted, listed
from scdiffgen._registry_keys import REGISTRY_KEYS
from scdiffgen.conditions import Conditions
from scdiffgen.data import categories_of_condition, codes_of, condition_specs, read_registry, required_state
from scdiffgen.diffusion import to_scipy
from scdiffgen.module import DiffusionModule
from scdiffgen.train import StagedLoader, csr_tensor

from ._cells import BATCH_SIZE, MOST_CELLS, SMALL_BATCH, Cells, evenly_spread


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
        self.module.check(tensors := self(batch), f"{self.place}: minibatch {number}")
        return self.module.unpack(tensors)


def check_categories(model: BaseModelClass, registry: object) -> None:
    """Raise if a data module of scvi-tools encodes labels or batches in another order than the model."""
    if not isinstance(registry, Mapping) or registry.get("setup_method_name") != "setup_datamodule":
        return
    theirs = read_registry(registry, type(model))
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
        return self.obs().index

    def in_order(self, rows: list[Any]) -> Any:
        """Join results of minibatches."""
        return sparse.vstack(rows, format="csr") if sparse.issparse(rows[0]) else np.concatenate(rows)


def given_cells(
    model: BaseModelClass,
    adata: AnnData | MuData | None,
    indices: Sequence[int] | np.ndarray | None,
    batch_size: int,
    description: str | None,
    dataloader: Iterable[Any] | None,
) -> Cells:
    """Return the cells of a data loader if given, else registered cells."""
    if dataloader is None:
        return Cells(model, adata, indices, batch_size, description)
    if adata is not None or indices is not None:
        raise ValueError("`dataloader` provides the cells: leave out `adata` and `indices`.")
    return LoadedCells(model, dataloader, description)


logger = logging.getLogger(__name__)

Batch = tuple[Tensor, Conditions[Tensor]]
Kept = tuple[np.ndarray, sparse.csr_matrix, Conditions[np.ndarray]]  # positions in the stream, counts, conditions


def training_indices(model: BaseModelClass) -> np.ndarray:
    """Return positions of the training and validation cells."""
    if model.train_indices is None:
        raise ValueError(
            "The model was trained from a data module, so its training cells are unknown, and this method reads them: "
            "create and train the model with `adata`."
        )
    return np.concatenate([model.train_indices, model.validation_indices]).astype(int)


class RegisteredData:
    """Training and validation cells in the AnnData of a model."""

    def __init__(self, model: BaseModelClass) -> None:
        self.model = model
        self.indices = np.sort(training_indices(model))
        self.n_train = len(self.indices)

    def known(self) -> tuple[np.ndarray, Conditions[np.ndarray]]:
        """Return library sizes and conditions of all cells."""
        library = self.model.module.library
        batches = [(library(counts).cpu().numpy(), given.numpy()) for counts, given in self._cells(self.indices)]
        return np.concatenate([sizes for sizes, _ in batches]), Conditions.concatenate([given for _, given in batches])

    def again(self, conditions: Conditions[np.ndarray]) -> tuple[Cells, Conditions[np.ndarray]]:
        """Return the cells in a fixed order, and their conditions."""
        return self._cells(self.indices), conditions

    def some(self, at_most: int, batch_size: int = BATCH_SIZE) -> Cells:
        return self._cells(evenly_spread(self.indices, at_most), batch_size)

    def learned(self, at_most: int) -> Cells:
        """Return cells without those of validation."""
        return self._cells(evenly_spread(np.sort(np.asarray(self.model.train_indices, dtype=int)), at_most))

    def left_out(self, at_most: int) -> Iterable[Batch]:
        """Return at most ``at_most`` held-out cells."""
        indices = evenly_spread(np.sort(np.asarray(self.model.validation_indices, dtype=int)), at_most)
        return self._cells(indices, SMALL_BATCH) if len(indices) else ()

    def _cells(self, indices: np.ndarray, batch_size: int = BATCH_SIZE) -> Cells:
        return Cells(self.model, None, indices, batch_size)


class KeptCells:
    """At most ``at_most`` evenly spaced cells of a stream, kept in memory, as minibatches."""

    def __init__(self, module: DiffusionModule, at_most: int, batch_size: int = BATCH_SIZE) -> None:
        self.module, self.at_most, self.batch_size = module, at_most, batch_size
        self.n_seen, self.step = 0, 1  # every `step`-th cell is kept
        self._parts: list[Kept] = []

    def __len__(self) -> int:
        return sum(len(positions) for positions, *_ in self._parts)

    def add(self, counts: sparse.csr_matrix, conditions: Conditions[np.ndarray]) -> None:
        """Add cells of the stream; above ``at_most``, every second kept cell is dropped."""
        positions = np.arange(self.n_seen, self.n_seen + conditions.n_cells)
        self.n_seen += len(positions)
        self._parts.append(self._kept((positions, counts, conditions)))
        while len(self) > self.at_most:
            self.step *= 2
            self._parts = [self._kept(part) for part in self._parts]

    def _kept(self, part: Kept) -> Kept:
        rows = np.flatnonzero(part[0] % self.step == 0)
        return part[0][rows], part[1][rows], part[2].take(rows)

    def _joined(self) -> Kept:
        if len(self._parts) > 1:  # joined once for all passes
            positions, counts, conditions = zip(*self._parts, strict=True)
            whole = np.concatenate(positions), sparse.vstack(counts, format="csr"), Conditions.concatenate(conditions)
            self._parts = [whole]
        return self._parts[0]

    @property
    def conditions(self) -> Conditions[np.ndarray]:
        return self._joined()[2]

    def some(self, at_most: int, batch_size: int) -> KeptCells:
        fewer = KeptCells(self.module, at_most, batch_size)
        rows, (_, counts, conditions) = evenly_spread(np.arange(len(self)), at_most), self._joined()
        fewer.add(counts[rows], conditions.take(rows))
        return fewer

    def __iter__(self) -> Iterator[Batch]:
        """Yield CSR counts and conditions on the device of the module."""
        _, counts, conditions = self._joined()
        for start in range(0, counts.shape[0], self.batch_size):
            rows = np.arange(start, min(start + self.batch_size, counts.shape[0]))
            device = self.module.device
            yield csr_tensor(counts[rows]).to(device), conditions.take(rows).to(device)


class StreamedData(LightningDataModule):
    """Wrapper of a user's data module; one pass before training keeps at most 20,000 training cells."""

    def __init__(self, source: LightningDataModule, model: BaseModelClass, *, initialise: bool) -> None:
        super().__init__()
        self.source, self.module = source, model.module
        self.train_idx = self.val_idx = self.test_idx = None  # attributes that scvi-tools reads
        self.read = MinibatchReader(model, "`datamodule`")
        self.kept = KeptCells(self.module, MOST_CELLS)
        self.has_stages = len(self.module.stages()) > 1
        self.n_batches = 0
        self._library: list[np.ndarray] = []
        self._conditions: list[Conditions[np.ndarray]] = []
        check_categories(model, getattr(source, "registry", None))
        source.prepare_data()
        source.setup("fit")
        cells = self._looked_at()
        if initialise:
            self.module.initialise(cells)
        deque(cells, maxlen=0)  # what the initialisation did not read
        if initialise:
            self.module.start_linearly(self.some(MOST_CELLS, SMALL_BATCH))
        self.n_train = self.kept.n_seen

    def _looked_at(self) -> Iterator[Batch]:
        """Iterate the training cells once; raise if a minibatch does not match the registry."""
        for batch in self.source.train_dataloader():
            counts, conditions = self.read.unpacked(self.handed(batch), self.n_batches)
            self._library.append(self.module.library(counts).cpu().numpy())
            self._conditions.append(conditions.numpy())
            self.kept.add(to_scipy(counts), self._conditions[-1])
            self.n_batches += 1
            yield counts, conditions
        if not self.kept.n_seen:
            raise ValueError("`datamodule`: `train_dataloader()` yields no cell: pass a module with training cells.")

    def known(self) -> tuple[np.ndarray, Conditions[np.ndarray]]:
        """Return library sizes and conditions of all training cells."""
        return np.concatenate(self._library), Conditions.concatenate(self._conditions)

    def again(self, conditions: Conditions[np.ndarray]) -> tuple[KeptCells, Conditions[np.ndarray]]:
        """Return the kept cells in a fixed order, and their conditions."""
        if self.kept.step > 1:
            logger.info("Responses are estimated from %d of %d training cells.", len(self.kept), self.n_train)
        return self.kept, self.kept.conditions

    def some(self, at_most: int, batch_size: int = BATCH_SIZE) -> KeptCells:
        return self.kept.some(at_most, batch_size)

    learned = some

    def left_out(self, at_most: int) -> Iterable[Batch]:
        """Return no cells, because validation cells are not kept."""
        return ()

    # Hooks that Lightning calls.

    def setup(self, stage: str | None = None) -> None:
        """Pass the trainer to the user's data module, which is already set up."""
        self.source.trainer = self.trainer

    def teardown(self, stage: str) -> None:
        self.source.teardown(stage)

    def train_dataloader(self) -> Any:
        return self._staged(self.source.train_dataloader(), shuffle=True)

    def val_dataloader(self) -> Any:
        """Return validation minibatches; an empty list if there are none."""
        if not is_overridden("val_dataloader", self.source, parent=LightningDataModule):
            return []
        loader = self.source.val_dataloader()
        return [] if loader is None else self._staged(loader, shuffle=False)

    def _staged(self, loader: Any, *, shuffle: bool) -> Any:
        """Wrap a loader for a process that is trained in stages; its minibatches are then registered tensors."""
        return StagedLoader(_ReadLoader(loader, self), shuffle=shuffle) if self.has_stages else loader

    def on_before_batch_transfer(self, batch: Any, dataloader_idx: int) -> dict[str, Tensor]:
        """Convert a minibatch to registered tensors, and check them."""
        tensors = batch if self.has_stages else self.read(self.handed(batch, dataloader_idx))
        self.module.check(tensors, "`datamodule`: a minibatch")
        return tensors

    def handed(self, batch: Any, dataloader_idx: int = 0) -> Any:
        """Convert a minibatch by the user's data module, and restore ``"obs"`` if it was dropped."""
        handed = self.source.on_before_batch_transfer(batch, dataloader_idx)
        both = isinstance(batch, Mapping) and isinstance(handed, Mapping) and "obs" in batch
        return {"obs": batch["obs"], **handed} if both else handed

    def on_after_batch_transfer(self, batch: dict[str, Tensor], dataloader_idx: int) -> dict[str, Tensor]:
        """Call the hook of the user's data module, if there is one, and check its result."""
        if self.has_stages or not is_overridden("on_after_batch_transfer", self.source, parent=LightningDataModule):
            return batch
        changed = self.source.on_after_batch_transfer(batch, dataloader_idx)
        self.module.check(changed, "`datamodule`: the result of `on_after_batch_transfer`, a minibatch,")
        return changed


class _ReadLoader:
    """Loader of a user's data module, as registered tensors."""

    def __init__(self, loader: Any, data: StreamedData) -> None:
        self.loader, self.data = loader, data

    def __len__(self) -> int:
        return len(self.loader)

    def __iter__(self) -> Iterator[dict[str, Tensor]]:
        for batch in self.loader:
            yield self.data.read(self.data.handed(batch))
