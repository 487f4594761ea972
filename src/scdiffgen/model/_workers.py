"""Growing cells on the workers of a Dask cluster."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from copy import deepcopy
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from scipy import sparse

from scdiffgen._conditions import Parts
from scdiffgen.module import DiffusionModule

from ._cells import generator_from
from ._growth import Growth

if TYPE_CHECKING:
    from distributed import Client, Future

MAX_LOST = 3
"""Times that the workers may lose the model before a chunk is given up."""


class Chunk(NamedTuple):
    """Cells to grow together: all that is needed beside the module and the settings."""

    number: int
    conditions: dict[str, Parts[np.ndarray]]
    sizes: np.ndarray
    seed: int


def grow_chunk(module: DiffusionModule, growth: Growth, chunk: Chunk) -> sparse.csr_matrix:
    """Grow the cells of a chunk, on the device of the module."""
    return growth.grow(module, chunk.conditions, chunk.sizes, generator_from(chunk.seed, module.device))


def grow_on(
    client: Client, module: DiffusionModule, growth: Growth, numbers: Sequence[int], chunk: Callable[[int], Chunk]
) -> Iterator[tuple[int, sparse.csr_matrix]]:
    """Grow chunks on workers, on the kind of device that the module is on, and yield them as they come.

    Chunks of a worker that dies are grown by another. At most two a thread are under way, so that neither this process
    nor the scheduler holds more.

    Parameters
    ----------
    client
        Client of the cluster.
    module
        Trained module; each worker gets a copy, once.
    growth
        Settings.
    numbers
        Numbers of the chunks.
    chunk
        Makes a chunk of its number.
    """
    from distributed import CancelledError, as_completed

    client.wait_for_workers(1)
    device, sent = module.device.type, deepcopy(module).cpu().eval()
    waiting, lost = deque(numbers), dict.fromkeys(numbers, 0)
    under_way: dict[Any, int] = {}  # by keys of futures
    finished = as_completed()
    there = client.scatter(sent, broadcast=True)

    def refill() -> None:
        while waiting and len(under_way) < max(2 * sum(client.nthreads().values()), 1):
            number = waiting.popleft()
            future: Future = client.submit(_grow_there, there, device, growth, chunk(number), pure=False)
            under_way[future.key] = number
            finished.add(future)

    refill()
    for future in finished:
        number = under_way.pop(future.key)
        try:
            yield number, future.result()
        except CancelledError:  # its worker died, and all others that had the model
            lost[number] += 1
            if lost[number] > MAX_LOST:
                raise RuntimeError(
                    f"`client`: the workers were lost {lost[number]} times while they grew the same cells. Give them "
                    "more memory, or pass a smaller `chunk_size` or `batch_size`."
                ) from None
            waiting.append(number)
            client.wait_for_workers(1)
            there = client.scatter(sent, broadcast=True)
        refill()


def _grow_there(module: DiffusionModule, device: str, growth: Growth, chunk: Chunk) -> sparse.csr_matrix:
    return grow_chunk(module.to(device), growth, chunk)


def check_client(client: Any) -> None:
    """Raise unless ``client`` is one of Dask's, which waits for results.

    Parameters
    ----------
    client
        What the user passed.
    """
    try:
        from distributed import Client
    except ImportError as error:
        raise ImportError("`client` needs Dask: pip install 'scdiffgen[distributed]'.") from error
    if not isinstance(client, Client) or client.asynchronous:
        raise TypeError(
            f"`client` is {client!r}: pass a `distributed.Client(...)` that is not asynchronous; one without arguments "
            "makes a cluster of this computer."
        )
