"""Generating more cells than fit in memory."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from scipy import sparse
from scvi.utils import track

from scdiffgen.conditions import request_table
from scdiffgen.io import ChunkedFile, digest_of

from ._cells import INFERENCE_BATCH_SIZE, generator_from
from ._checks import check_positive_integer, check_whole_number, library_sizes
from ._generation import N_STEPS, Generation
from ._sampler import Sampler
from ._workers import Chunk, check_client, sample_chunk, sample_on

if TYPE_CHECKING:
    from distributed import Client
    from numpy.typing import ArrayLike

CHUNK_SIZE = 8192


class Streaming(Generation):
    """Cells that go to a file."""

    def generate_to(
        self,
        path: str | os.PathLike[str],
        conditions: Mapping[str, Any] | pd.DataFrame | None = None,
        n_cells: int | None = None,
        *,
        library_size: float | ArrayLike | Callable[[pd.DataFrame, np.random.Generator], ArrayLike] | None = None,
        guidance_scale: float | Mapping[str, float] = 1.0,
        n_steps: int = N_STEPS,
        batch_size: int = INFERENCE_BATCH_SIZE,
        chunk_size: int = CHUNK_SIZE,
        seed: int = 0,
        client: Client | None = None,
        silent: bool = False,
    ) -> Path:
        """Generate cells into a file, chunk by chunk; what was killed goes on where it was.

        Memory holds the counts of one chunk, and the ``.obs`` of all cells at the end. Until then the chunks lie in the
        folder ``<path>.partial``. Called again with the same arguments after a kill, it generates what is missing, and
        the file is the one that it would have been; called again when the file is there, it does nothing.

        Parameters
        ----------
        path
            The new file: ``.h5ad``, or a folder ``.zarr``.
        conditions, n_cells, guidance_scale, n_steps, batch_size, silent
            As in :meth:`generate`.
        library_size
            As in :meth:`generate`; a function is called for the cells of each chunk.
        chunk_size
            Cells a chunk.
        seed
            Same seed, same cells, if ``chunk_size`` and ``batch_size`` are the same too. Each chunk has its own source
            of randomness, so that no chunk waits for another.
        client
            Client of a Dask cluster whose workers generate the chunks; the file is written here. The cells are the same
            as without. Needs ``pip install 'scdiffgen[distributed]'``.

        Returns
        -------
        Path of the file, which :func:`anndata.read_h5ad` (with ``backed="r"``, if it is large) or
        :func:`anndata.io.read_zarr` reads. What was asked for is in ``.uns["generated"]``.

        Raises
        ------
        ValueError
            As in :meth:`generate`; or if there are other cells at ``path``, whole or begun.
        RuntimeError
            If the model is not trained, or the workers were lost again and again.
        ImportError
            If there is a client, and Dask is not installed.

        Examples
        --------
        >>> import anndata, tempfile
        >>> path = tempfile.mkdtemp() + "/cells.h5ad"
        >>> _ = model.generate_to(path, {"cell_type": "CD14+ Monocyte"}, 5, n_steps=4, chunk_size=2, seed=0)
        >>> anndata.read_h5ad(path, backed="r").n_obs
        5
        """
        self._require_training()
        self._require_anndata("generate_to")
        if client is not None:
            check_client(client)
        check_positive_integer("chunk_size", chunk_size)
        check_whole_number("seed", seed, at_least=0)
        table = request_table(conditions, n_cells)
        row_of = np.repeat(np.arange(len(table)), table["n_cells"])
        encoded = self._encode(table)
        sampler = Sampler(self.module, self._responses(), guidance_scale, n_steps, batch_size)
        sampler.check(encoded.given_only())
        if library_size is not None and not callable(library_size):
            library_size = library_sizes(library_size, len(row_of))
        request = {
            "conditions": digest_of(table),
            "library_size": name_of(library_size),
            "guidance_scale": guidance_scale,
            "n_steps": n_steps,
            "batch_size": batch_size,
            "chunk_size": chunk_size,
            "seed": seed,
            "model": self._weights_id(),
        }
        chunks = np.split(np.arange(len(row_of)), range(chunk_size, len(row_of), chunk_size))
        file = ChunkedFile(path, len(chunks), request)
        if file.is_whole:
            return file.path
        table = table.drop(columns="n_cells")

        def chunk(number: int) -> Chunk:
            cells = chunks[number]
            rows = row_of[cells]
            own_seed = int(np.random.SeedSequence([seed, number]).generate_state(1, np.uint64)[0] >> 1)
            generator = generator_from(own_seed, self.device)
            asked = library_size[cells] if isinstance(library_size, np.ndarray) else library_size
            described = table.iloc[rows].reset_index(drop=True)
            complete = self._complete(encoded.take(rows), generator)
            sizes = self._library_sizes(complete, described, asked, generator)
            return Chunk(number, complete.given_only(), sizes, own_seed)

        missing = file.missing()
        drawn: Iterator[tuple[int, sparse.csr_matrix]]
        if client is None:
            drawn = ((number, sample_chunk(sampler, chunk(number))) for number in missing)
        else:
            drawn = sample_on(client, sampler, missing, chunk)
        for number, counts in track(drawn, "Generating", disable=silent or len(missing) < 2, total=len(missing)):
            file.write(number, counts)
        file.finish(self._describe(table, encoded, row_of), pd.DataFrame(index=self._gene_names()))
        return file.path


def name_of(library_size: np.ndarray | Callable[..., Any] | None) -> str | None:
    """What stands in a request for library sizes: nothing, a digest, or the name of a function."""
    if callable(library_size):
        return f"{library_size.__module__}.{library_size.__qualname__}"
    return None if library_size is None else digest_of(library_size)
