"""More cells than fit in memory: drawn chunk by chunk, each with its own source of randomness, into a file."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from scipy import sparse
from scvi.utils import track

from scdiffgen.io import ChunkedFile, digest_of

from ._cell_request import CellRequest
from ._cells import generator_from
from ._checks import library_sizes
from ._model_access import gene_names, weights_id
from ._sampler import Sampler
from ._workers import Chunk, sample_chunk, sample_on

if TYPE_CHECKING:
    from distributed import Client


def write_cells(
    path: str | os.PathLike[str],
    request: CellRequest,
    sampler: Sampler,
    library_size: Any,
    chunk_size: int,
    seed: int,
    client: Client | None,
    *,
    silent: bool,
) -> Path:
    """Draw the chunks that are missing, here or on workers, and join them."""
    n_cells = len(request.row_of)
    if library_size is not None and not callable(library_size):
        library_size = library_sizes(library_size, n_cells)
    described = {
        "conditions": request.digest(),
        "library_size": _name_of(library_size),
        "guidance_scale": sampler.guidance_scale,
        "n_steps": sampler.n_steps,
        "batch_size": sampler.batch_size,
        "chunk_size": chunk_size,
        "seed": seed,
        "model": weights_id(sampler.module),
    }
    chunks = np.split(np.arange(n_cells), range(chunk_size, n_cells, chunk_size))
    file = ChunkedFile(path, len(chunks), described)
    if file.is_whole:
        return file.path

    def chunk(number: int) -> Chunk:
        own_seed = int(np.random.SeedSequence([seed, number]).generate_state(1, np.uint64)[0] >> 1)
        generator, cells = generator_from(own_seed, sampler.module.device), chunks[number]
        sizes = library_size[cells] if isinstance(library_size, np.ndarray) else library_size
        return Chunk(number, *request.completed(generator, sizes, cells), own_seed)

    missing = file.missing()
    drawn: Iterator[tuple[int, sparse.csr_matrix]]
    if client is None:
        drawn = ((number, sample_chunk(sampler, chunk(number))) for number in missing)
    else:
        drawn = sample_on(client, sampler, missing, chunk)
    for number, counts in track(drawn, "Generating", disable=silent or len(missing) < 2, total=len(missing)):
        file.write(number, counts)
    file.finish(request.obs(), pd.DataFrame(index=gene_names(request.model)))
    return file.path


def _name_of(library_size: np.ndarray | Callable[..., Any] | None) -> str | None:
    """What stands in a request for library sizes: nothing, a digest, or the name of a function."""
    if callable(library_size):
        return f"{library_size.__module__}.{library_size.__qualname__}"
    return None if library_size is None else digest_of(library_size)
