"""Minibatches: splitters, and cells on disk, read in blocks and shuffled within pools of blocks."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sized
from concurrent.futures import ThreadPoolExecutor
from typing import Any, cast

import numpy as np
import pandas as pd
import torch
from scipy import sparse
from scvi import settings
from scvi.data import AnnDataManager, AnnTorchDataset
from scvi.dataloaders import AnnDataLoader, DataSplitter
from torch import Tensor

from scdiffgen._arguments import check_whole_number
from scdiffgen._registry_keys import REGISTRY_KEYS

BLOCK_SIZE = 256
N_BLOCKS = 64
N_DRAWN = 10_000  # number of cells that are drawn for the first epochs
FOLLOWED = ("indices", "batch_size", "shuffle", "drop_last", "distributed_sampler")


def cell_loader(
    manager: AnnDataManager,
    *,
    block_size: int = BLOCK_SIZE,
    n_blocks: int = N_BLOCKS,
    generator: torch.Generator | None = None,
    **options: Any,  # options of scvi-tools' AnnDataLoader; for counts on disk, only FOLLOWED are used
) -> AnnDataLoader | BlockLoader:
    """Make a loader of registered cells: scvi-tools' loader for counts in memory, a block loader for counts on disk."""
    if not counts_on_disk(manager):
        return AnnDataLoader(manager, generator=generator, **options)
    followed = {name: options[name] for name in FOLLOWED if options.get(name) is not None}
    return BlockLoader(manager, block_size=block_size, n_blocks=n_blocks, generator=generator, **followed)


def counts_on_disk(manager: AnnDataManager) -> bool:
    """Check whether the counts of registered cells are on disk, or lazy."""
    if REGISTRY_KEYS.X not in manager.data_registry:
        return False
    counts = manager.get_from_registry(REGISTRY_KEYS.X)
    return not (isinstance(counts, np.ndarray) or sparse.issparse(counts))


def csr_tensor(counts: sparse.csr_matrix) -> Tensor:
    """Convert counts to a CSR tensor that shares their memory."""
    pointers, columns, values = (torch.from_numpy(part) for part in (counts.indptr, counts.indices, counts.data))
    return torch.sparse_csr_tensor(pointers, columns, values, counts.shape)


class BlockLoader:
    """Loader of minibatches from counts on disk, in constant memory: two pools of blocks, one of them prefetched."""

    def __init__(
        self,
        manager: AnnDataManager,
        indices: np.ndarray | None = None,
        batch_size: int = 256,
        shuffle: bool = False,
        drop_last: bool = False,
        block_size: int = BLOCK_SIZE,
        n_blocks: int = N_BLOCKS,
        distributed_sampler: bool = False,
        generator: torch.Generator | None = None,
    ) -> None:
        # With `shuffle`, blocks are read in random order, and cells are shuffled within pools of `n_blocks` blocks.
        # With `distributed_sampler`, each process loads an equal share of the cells.
        for name, value in {"block_size": block_size, "n_blocks": n_blocks}.items():
            check_whole_number(name, value)
        chosen = np.arange(manager.adata.n_obs) if indices is None else np.asarray(indices)
        self.indices = np.sort(np.flatnonzero(chosen) if chosen.dtype == bool else chosen)
        self.batch_size, self.shuffle, self.drop_last = batch_size, shuffle, drop_last
        self.block_size = block_size
        self.pool_size = block_size * n_blocks if shuffle else max(block_size, batch_size)
        self.distributed, self.generator = distributed_sampler, generator
        self._counts = manager.get_from_registry(REGISTRY_KEYS.X)
        self._columns = {
            key: (manager.get_from_registry(key), dtype)
            for key, dtype in AnnTorchDataset(manager).keys_and_dtypes.items()
            if key != REGISTRY_KEYS.X
        }
        self._epoch = 0

    def __len__(self) -> int:
        n_minibatches = len(self._share(self.indices)) / self.batch_size
        return math.floor(n_minibatches) if self.drop_last else math.ceil(n_minibatches)

    def __iter__(self) -> Iterator[dict[str, Tensor]]:
        """Yield minibatches by registry key, with counts in CSR format."""
        random = self._random() if self.shuffle else None
        order = self._share(self.indices if random is None else self._in_blocks(random))
        pools = np.split(order, range(self.pool_size, len(order), self.pool_size))
        left, left_rows = None, np.zeros(0, dtype=np.int64)
        with ThreadPoolExecutor(max_workers=1) as reader:
            following = reader.submit(self._read, pools[0])
            for number, pool in enumerate(pools):
                counts, rows = following.result(), pool
                if number + 1 < len(pools):
                    following = reader.submit(self._read, pools[number + 1])
                if random is not None:
                    mixed = random.permutation(len(rows))
                    counts, rows = counts[mixed], rows[mixed]
                if left is not None:
                    counts, rows = sparse.vstack([left, counts], format="csr"), np.concatenate([left_rows, rows])
                n_whole = len(rows) // self.batch_size * self.batch_size
                for start in range(0, n_whole, self.batch_size):
                    span = slice(start, start + self.batch_size)
                    yield self._minibatch(counts[span], rows[span])
                left, left_rows = counts[n_whole:], rows[n_whole:]
        if len(left_rows) and not self.drop_last:
            yield self._minibatch(left, left_rows)

    def _random(self) -> np.random.Generator:
        """Make a random generator for each epoch, the same in all processes of a distributed training."""
        self._epoch += 1
        if self.distributed:
            return np.random.default_rng([settings.seed or 0, self._epoch])
        return np.random.default_rng(int(torch.empty((), dtype=torch.int64).random_(generator=self.generator)))

    def _in_blocks(self, random: np.random.Generator) -> np.ndarray:
        _, first = np.unique(self.indices // self.block_size, return_index=True)
        blocks = np.split(self.indices, first[1:])
        return np.concatenate([blocks[block] for block in random.permutation(len(blocks))])

    def _share(self, order: np.ndarray) -> np.ndarray:
        """Select the cells of this process; some cells are repeated, so that all processes load equally many."""
        if not self.distributed:
            return order
        n_processes, process = torch.distributed.get_world_size(), torch.distributed.get_rank()
        n_each = math.ceil(len(order) / n_processes)
        return np.resize(order, n_each * n_processes)[process * n_each : (process + 1) * n_each]

    def _read(self, rows: np.ndarray) -> sparse.csr_matrix:
        """Read the counts of cells; rows less than a block apart are read at once, up to a pool of rows."""
        step, next_pool = np.diff(rows), np.diff(rows // self.pool_size) != 0
        ends = np.flatnonzero((step < 0) | (step > self.block_size) | next_pool) + 1
        runs = []
        for run in np.split(rows, ends):
            read = self._counts[int(run[0]) : int(run[-1]) + 1]
            if hasattr(read, "compute"):  # a Dask array
                read = read.compute(scheduler="synchronous")
            runs.append(sparse.csr_matrix(read, dtype=np.float32)[run - run[0]])
        return sparse.vstack(runs, format="csr")

    def _minibatch(self, counts: sparse.csr_matrix, rows: np.ndarray) -> dict[str, Tensor]:
        minibatch = {REGISTRY_KEYS.X: csr_tensor(counts)}
        for key, (column, dtype) in self._columns.items():
            values = column.iloc[rows].to_numpy() if isinstance(column, pd.DataFrame) else column[rows]
            minibatch[key] = torch.from_numpy(values.astype(dtype))
        return minibatch


Minibatch = dict[str, Tensor]


class DrawnFirstLoader:
    """Loader that replaces minibatches by drawn ones while ``is_drawing``; a few draws of every cell take turns."""

    def __init__(
        self,
        loader: Iterable[Minibatch],
        draw: Callable[[Minibatch], Minibatch],
        is_drawing: Callable[[], bool],
        n_draws: int,
    ) -> None:
        self.loader, self.draw, self.is_drawing = loader, draw, is_drawing
        self._epochs: deque[list[Minibatch]] = deque(maxlen=n_draws)

    def __len__(self) -> int:
        return len(cast("Sized", self.loader))

    def __iter__(self) -> Iterator[Minibatch]:
        """Yield drawn minibatches, and those of the loader in the end."""
        if not self.is_drawing():
            self._epochs.clear()
            yield from self.loader
        elif len(self._epochs) < cast("int", self._epochs.maxlen):
            self._epochs.append([])
            for batch in self.loader:
                self._epochs[-1].append(self.draw(batch))
                yield self._epochs[-1][-1]
        else:
            self._epochs.rotate()
            yield from (self._epochs[0][place] for place in torch.randperm(len(self._epochs[0])))


class SparseDataSplitter(DataSplitter):
    """scvi-tools' data splitter, with minibatches that stay sparse, and block-wise reading of counts on disk."""

    data_loader_cls = staticmethod(cell_loader)
    draw: Callable[[Minibatch], Minibatch] | None = None
    """Draws the minibatches of the first epochs (:attr:`TrainingPlanConfig.drawn_share`)."""

    def setup(self, stage: str | None = None) -> None:
        """Split the cells once, because the network is initialised from training cells before Lightning calls this."""
        if not hasattr(self, "train_idx"):
            super().setup(stage)

    def train_dataloader(self) -> Any:
        """Return training minibatches, at first drawn ones if the cells are few."""
        loader = super().train_dataloader()
        if self.draw is None:
            return loader
        plan = self.trainer.lightning_module
        n_draws = math.ceil(N_DRAWN / len(self.train_idx))
        return DrawnFirstLoader(loader, self.draw, plan.learns_draws, n_draws)

    def val_dataloader(self) -> AnnDataLoader | BlockLoader | list:
        """Return held-out minibatches, or an empty list if no cell is held out."""
        loader = super().val_dataloader()
        if loader is None:
            return []
        loader.generator = torch.Generator()  # otherwise validation would draw from the generator of the training
        return loader

    def on_before_batch_transfer(self, batch: Minibatch, dataloader_idx: int) -> Minibatch:
        """Check the minibatch before a device has it."""
        self.trainer.lightning_module.module.check(batch)
        return batch

    def on_after_batch_transfer(self, batch: Minibatch, dataloader_idx: int) -> Minibatch:
        return batch


class StagedLoader:
    """Loader that can compute features of all minibatches once, and yield minibatches of the features afterwards."""

    def __init__(self, loader: Iterable[Minibatch], *, shuffle: bool) -> None:
        self.loader = loader
        self.shuffle = shuffle
        self.cached: Minibatch | None = None
        self.n_cached = 0

    def __len__(self) -> int:
        return self.n_cached or len(cast("Sized", self.loader))

    def __iter__(self) -> Iterator[Minibatch]:
        """Yield minibatches of cells, or of the features once they are cached."""
        if self.cached is None:
            yield from self.loader
            return
        n_cells = len(next(iter(self.cached.values())))
        order = torch.randperm(n_cells) if self.shuffle else torch.arange(n_cells)
        for rows in order.tensor_split(len(self)):
            yield {key: values[rows] for key, values in self.cached.items()}

    def cache(self, compute: Callable[[Minibatch], Minibatch]) -> Minibatch:
        """Compute features of all cells, cache them for later iterations, and return them; one row per cell."""
        parts = [compute(batch) for batch in self.loader]
        self.n_cached = len(parts)
        self.cached = {key: torch.cat([part[key].cpu() for part in parts]) for key in parts[0]}
        return self.cached


class StagedDataSplitter(SparseDataSplitter):
    """Data splitter for training in stages, with later stages that need no counts."""

    def train_dataloader(self) -> StagedLoader:
        return StagedLoader(super().train_dataloader(), shuffle=True)

    def val_dataloader(self) -> StagedLoader | list:
        """Return held-out minibatches, or an empty list if no cell is held out."""
        loader = super().val_dataloader()
        return [] if isinstance(loader, list) else StagedLoader(loader, shuffle=False)
