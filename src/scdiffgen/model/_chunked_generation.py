"""Generation of more cells than fit in memory, in chunks with independent seeds, locally or on Dask."""

from __future__ import annotations

import json
import os
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import torch
from scipy import sparse
from scvi.utils import track

from scdiffgen.conditions import N_CELLS, Conditions
from scdiffgen.data import required_state
from scdiffgen.io import UNS_KEY, ChunkedFile, digest_of

from ._cell_request import CellRequest
from ._cells import blocks_of, generator_from, new_cells
from ._checks import LibrarySize, library_sizes
from ._model_access import gene_table, modalities, weights_id
from ._sampler import Sampler
from ._training_summary import sizes_by_name

if TYPE_CHECKING:
    from distributed import Client

MAX_LOST = 3  # number of times that workers may be lost before a chunk is given up

Chunk = tuple[Conditions[np.ndarray], np.ndarray, int]
"""Conditions, library sizes and seed of a chunk of cells."""


def write_cells(
    path: str | os.PathLike[str],
    request: CellRequest,
    sampler: Sampler,
    library_size: LibrarySize,
    chunk_size: int,
    seed: int,
    client: Client | None,
    *,
    silent: bool,
) -> Path:
    """Draw missing chunks, locally or on workers, and join all chunks."""
    n_cells, model, specs = len(request.row_of), request.model, request.known.specs
    genes, several = gene_table(model), modalities(model)
    matrices = (
        {f"mod/{name}/X": block for name, block in blocks_of(genes.index).items()} if several else {"X": slice(None)}
    )
    chunks = np.split(np.arange(n_cells), range(chunk_size, n_cells, chunk_size))

    def source(number: int) -> torch.Generator:
        own_seed = int(np.random.SeedSequence([seed, number]).generate_state(1, np.uint64)[0] >> 1)
        return generator_from(own_seed, sampler.module.device)

    def completed(number: int, sizes: Mapping[str, Any]) -> Chunk:
        cells, generator = chunks[number], source(number)
        own = {name: given if callable(given) else given[cells] for name, given in sizes.items()}
        requested = (own or None) if several else own.get("")
        return *request.completed(generator, requested, cells), generator.initial_seed()

    given = {} if library_size is None else sizes_by_name(library_size, several or [""])
    by_name: dict[str, Any] = {name: x if callable(x) else library_sizes(x, n_cells) for name, x in given.items()}
    if any(map(callable, by_name.values())):  # identified by return values, because lambdas have no name
        sizes = np.concatenate([completed(number, by_name)[1] for number in range(len(chunks))])
        by_name = dict(zip(several or [""], sizes.reshape(n_cells, -1).T, strict=True))
    described = {
        "conditions": digest_of(request.table.assign(**{N_CELLS: np.bincount(request.row_of)})),
        "library_size": digest_of(by_name if several else by_name[""]) if by_name else None,
        "guidance_scale": sampler.guidance.scale,
        "n_steps": sampler.n_steps,
        "batch_size": sampler.batch_size,
        "chunk_size": chunk_size,
        "seed": seed,
        "model": weights_id(sampler.module),
        "genes": digest_of(model.get_var_names()),
        "categories": digest_of(
            {spec.registry_key: required_state(model.registry, spec.registry_key) for spec in specs}
        ),
        "training_cells": digest_of(model.training_summary_),
    }

    def chunk(number: int) -> Chunk:
        return completed(number, by_name)

    first = request.obs(request.decoded(request.encoded.take(request.row_of)))[:1]
    new = ChunkedFile(path, len(chunks), described, (".h5mu",) if several else (".h5ad", ".zarr"))
    new.check_columns(first)
    with new as file:
        missing = [] if file.is_whole else file.missing()
        drawn: Iterator[tuple[int, sparse.csr_matrix]]
        if client is None:
            drawn = ((number, sample_chunk(sampler, chunk(number))) for number in missing)
        else:
            drawn = _sample_on(client, sampler, missing, chunk)
        for number, counts in track(drawn, "Generating", disable=silent or len(missing) < 2, total=len(missing)):
            file.write(number, {name: counts[:, block] for name, block in matrices.items()})
        if not file.is_whole:
            parts = [request.complete(source(number), cells).given_only() for number, cells in enumerate(chunks)]
            obs = request.obs(pd.concat(map(request.decoded, parts), ignore_index=True))
            obs = sampler.annotate(obs, Conditions.concatenate(parts))
            cells = new_cells(sparse.csr_matrix((n_cells, len(genes)), dtype=np.int32), obs, genes)
            cells.uns[UNS_KEY] = {"request": json.dumps(file.request)}
            file.finish(cells, list(matrices))
    return file.path


def sample_chunk(sampler: Sampler, chunk: Chunk, device: str | None = None) -> sparse.csr_matrix:
    """Draw the cells of a chunk, by default on the device of the module."""
    if device is not None:
        sampler.module.to(device)
    conditions, sizes, seed = chunk
    return sampler.sample(conditions, sizes, generator_from(seed, sampler.module.device))


def _sample_on(
    client: Client, sampler: Sampler, numbers: Sequence[int], chunk: Callable[[int], Chunk]
) -> Iterator[tuple[int, sparse.csr_matrix]]:
    """Draw chunks on workers, each with one copy of the sampler, and yield them on completion."""
    from distributed import CancelledError, as_completed

    client.wait_for_workers(1)
    device = sampler.module.device.type
    sent = replace(sampler, module=deepcopy(sampler.module).cpu().eval())
    waiting, lost = deque(numbers), dict.fromkeys(numbers, 0)
    under_way: dict[Any, int] = {}  # by keys of futures
    finished = as_completed()
    remote = client.scatter(sent, broadcast=True)

    def refill() -> None:
        # at most two chunks per thread, to limit the memory of this process and the scheduler
        while waiting and len(under_way) < max(2 * sum(client.nthreads().values()), 1):
            number = waiting.popleft()
            future = client.submit(sample_chunk, remote, chunk(number), device, pure=False)
            under_way[future.key] = number
            finished.add(future)

    refill()
    for future in finished:
        number = under_way.pop(future.key)
        try:
            yield number, future.result()
        except CancelledError:  # all workers with the model died
            lost[number] += 1
            if lost[number] > MAX_LOST:
                raise RuntimeError(
                    f"`client`: workers were lost {lost[number]} times while they drew the same cells. Give the "
                    "workers more memory, or pass a smaller `chunk_size` or `batch_size`."
                ) from None
            waiting.append(number)
            client.wait_for_workers(1)
            remote = client.scatter(sent, broadcast=True)
        refill()


def check_client(client: object) -> None:
    """Raise unless ``client`` is ``None`` or a synchronous Dask client."""
    if client is None:
        return
    try:
        from distributed import Client
    except ImportError as error:
        raise ImportError("`client` needs Dask: pip install 'scdiffgen[distributed]'.") from error
    if not isinstance(client, Client) or client.asynchronous:
        raise TypeError(
            f"`client` is {client!r}: pass a synchronous `distributed.Client(...)`; without arguments it starts a "
            "cluster on this computer."
        )
