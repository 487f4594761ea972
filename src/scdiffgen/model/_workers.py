"""Drawing cells on the workers of a Dask cluster."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from copy import deepcopy
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from scipy import sparse

from scdiffgen.conditions import Conditions

from ._cells import generator_from
from ._sampler import Sampler

if TYPE_CHECKING:
    from distributed import Client, Future

MAX_LOST = 3
"""Times that the workers may lose the model before a chunk is given up."""


class Chunk(NamedTuple):
    """Cells to draw together: all that is needed beside the sampler."""

    number: int
    conditions: Conditions[np.ndarray]
    sizes: np.ndarray
    seed: int


def sample_chunk(sampler: Sampler, chunk: Chunk) -> sparse.csr_matrix:
    """Draw the cells of a chunk, on the device of the module."""
    return sampler.sample(chunk.conditions, chunk.sizes, generator_from(chunk.seed, sampler.module.device))


def sample_on(
    client: Client, sampler: Sampler, numbers: Sequence[int], chunk: Callable[[int], Chunk]
) -> Iterator[tuple[int, sparse.csr_matrix]]:
    """Draw chunks on workers, on the kind of device that the module is on, and yield them as they come.

    Each worker gets a copy of the sampler, once. Chunks of a worker that dies are drawn by another. At most two a
    thread are under way, so that neither this process nor the scheduler holds more.
    """
    from distributed import CancelledError, as_completed

    client.wait_for_workers(1)
    device = sampler.module.device.type
    sent = replace(sampler, module=deepcopy(sampler.module).cpu().eval())
    waiting, lost = deque(numbers), dict.fromkeys(numbers, 0)
    under_way: dict[Any, int] = {}  # by keys of futures
    finished = as_completed()
    there = client.scatter(sent, broadcast=True)

    def refill() -> None:
        while waiting and len(under_way) < max(2 * sum(client.nthreads().values()), 1):
            number = waiting.popleft()
            future: Future = client.submit(_sample_there, there, device, chunk(number), pure=False)
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
                    f"`client`: the workers were lost {lost[number]} times while they drew the same cells. Give them "
                    "more memory, or pass a smaller `chunk_size` or `batch_size`."
                ) from None
            waiting.append(number)
            client.wait_for_workers(1)
            there = client.scatter(sent, broadcast=True)
        refill()


def _sample_there(sampler: Sampler, device: str, chunk: Chunk) -> sparse.csr_matrix:
    sampler.module.to(device)
    return sample_chunk(sampler, chunk)


def check_client(client: Any) -> None:
    """Raise unless ``client`` is none, or one of Dask's, which waits for results."""
    if client is None:
        return
    try:
        from distributed import Client
    except ImportError as error:
        raise ImportError("`client` needs Dask: pip install 'scdiffgen[distributed]'.") from error
    if not isinstance(client, Client) or client.asynchronous:
        raise TypeError(
            f"`client` is {client!r}: pass a `distributed.Client(...)` that is not asynchronous; one without arguments "
            "makes a cluster of this computer."
        )
