"""Minibatches of cells at first, later of what was computed of them once."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import torch
from scvi.dataloaders import AnnDataLoader
from torch import Tensor

from ._block_loader import BlockLoader

Minibatch = dict[str, Tensor]


class StagedLoader:
    """A loader that can be told to compute something of every minibatch, and to hand out that from then on.

    Parameters
    ----------
    loader
        Loads the cells.
    shuffle
        Whether what was computed comes in a new order each time.
    """

    def __init__(self, loader: AnnDataLoader | BlockLoader, *, shuffle: bool) -> None:
        self.loader = loader
        self.shuffle = shuffle
        self.cached: Minibatch | None = None

    def __len__(self) -> int:
        """Number of minibatches."""
        return len(self.loader)

    def __iter__(self) -> Iterator[Minibatch]:
        """Minibatches of what is handed out now."""
        if self.cached is None:
            yield from self.loader
            return
        n_cells = len(next(iter(self.cached.values())))
        order = torch.randperm(n_cells) if self.shuffle else torch.arange(n_cells)
        for rows in order.tensor_split(len(self)):
            yield {key: values[rows] for key, values in self.cached.items()}

    def cache(self, compute: Callable[[Minibatch], Minibatch]) -> Minibatch:
        """Compute something of every minibatch, a row a cell, and hand it out from now on; also returned, whole."""
        parts = [compute(batch) for batch in self.loader]
        self.cached = {key: torch.cat([part[key].cpu() for part in parts]) for key in parts[0]}
        return self.cached
