"""A file of cells that is written chunk by chunk, and goes on after a kill where it was."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Mapping
from hashlib import sha256
from pathlib import Path
from typing import Any
from uuid import uuid4

import anndata as ad
import h5py
import numpy as np
import pandas as pd
import zarr
from anndata import AnnData
from scipy import sparse

from ._whole_files import reach_the_disk

REQUEST = "request.json"
FORMATS = (".h5ad", ".zarr")
UNS_KEY = "generated"
DIGEST = "sha256:"


class ChunkedFile:
    """Counts that arrive in chunks, in any order and from several processes, and become one file at the end.

    Each chunk is a file of its own in the folder ``<path>.partial``, which is whole or not there. When all are there
    they are joined, the result takes its name at once, and the folder goes. So after a kill at any moment every chunk
    is either there or missing, and beginning again with the same request goes on with those that are missing.
    ``request``, plain values, tells these cells from others, and is kept in ``.uns["generated"]``.
    """

    def __init__(self, path: str | os.PathLike[str], n_chunks: int, request: Mapping[str, Any]) -> None:
        self.path = Path(path)
        if self.path.suffix not in FORMATS:
            raise ValueError(f"`path` is {str(path)!r}: pass the name of a file that ends with '.h5ad' or '.zarr'.")
        self.n_chunks = n_chunks
        self.request = json.loads(json.dumps(dict(request), default=lambda number: number.item()))
        self._folder = self.path.with_name(f"{self.path.name}.partial")
        if self.is_whole:
            self._raise_unless_the_same(read_request(self.path), self.path)
            shutil.rmtree(self._folder, ignore_errors=True)
        elif self._begun:
            self._raise_unless_the_same(json.loads((self._folder / REQUEST).read_text()), self._folder)
        else:
            self._folder.mkdir(parents=True, exist_ok=True)
            self._write_request()

    @property
    def is_whole(self) -> bool:
        """Whether the file is there, under its name."""
        return self.path.exists()

    def missing(self) -> list[int]:
        """Chunks that are not there yet."""
        return [chunk for chunk in range(self.n_chunks) if not self._file(chunk).exists()]

    def write(self, chunk: int, counts: sparse.csr_matrix) -> None:
        """Put a chunk on the disk; when this returns, it would survive a power cut."""
        partial = self._folder / f".{uuid4().hex[:8]}.npz"
        sparse.save_npz(partial, counts, compressed=False)
        self._put(partial, self._file(chunk))

    def finish(self, obs: pd.DataFrame, var: pd.DataFrame) -> None:
        """Join the chunks, a chunk in memory at a time, with the annotation of all cells and of the genes."""
        joined = self._folder / f"joined{self.path.suffix}"
        cells = AnnData(obs=obs, var=var, uns={UNS_KEY: {"request": json.dumps(self.request)}})
        if self.path.suffix == ".h5ad":
            cells.write_h5ad(joined)
            with h5py.File(joined, "r+") as file:
                self._join(file)
            reach_the_disk(joined)
        else:
            shutil.rmtree(joined, ignore_errors=True)  # begun before a kill
            cells.write_zarr(joined)
            self._join(zarr.open_group(str(joined), mode="r+", use_consolidated=False))
            zarr.consolidate_metadata(str(joined))
            for part in joined.rglob("*"):
                reach_the_disk(part)
        joined.rename(self.path)
        reach_the_disk(self.path.absolute().parent)
        shutil.rmtree(self._folder, ignore_errors=True)

    def _join(self, file: h5py.File | zarr.Group) -> None:
        if "X" in file:
            del file["X"]
        for chunk in range(self.n_chunks):
            counts = sparse.load_npz(self._file(chunk))
            if chunk:
                ad.io.sparse_dataset(file["X"]).append(counts)
            else:
                counts.indptr = counts.indptr.astype(np.int64)  # all chunks may hold more than 2**31 values
                ad.io.write_elem(file, "X", counts)

    @property
    def _begun(self) -> bool:
        return (self._folder / REQUEST).exists()

    def _file(self, chunk: int) -> Path:
        return self._folder / f"{chunk}.npz"

    def _write_request(self) -> None:
        partial = self._folder / f".{uuid4().hex[:8]}.json"
        partial.write_text(json.dumps(self.request))
        self._put(partial, self._folder / REQUEST)

    def _put(self, partial: Path, final: Path) -> None:
        reach_the_disk(partial)
        partial.replace(final)
        reach_the_disk(self._folder)

    def _raise_unless_the_same(self, there: Mapping[str, Any] | None, where: Path) -> None:
        if there is None:
            raise ValueError(f"`path`: {where} exists, and was not made by `generate_to`. Pass another path.")
        other = [name for name, value in self.request.items() if there.get(name) != value]
        if other:
            values = {name: (there.get(name), self.request[name]) for name in other}
            shown = [name if DIGEST in str(pair) else f"{name} ({pair[0]} there)" for name, pair in values.items()]
            raise ValueError(
                f"`path`: {where} holds cells that were asked for with other {', '.join(shown)}. Ask for the same, "
                "pass another path, or remove it."
            )


def read_request(path: Path) -> dict[str, Any] | None:
    """The request of a file that is whole; ``None`` if it has none."""
    try:
        file = h5py.File(path, "r") if path.suffix == ".h5ad" else zarr.open_group(str(path), mode="r")
    except (OSError, ValueError):  # another kind of file
        return None
    try:
        return json.loads(ad.io.read_elem(file[f"uns/{UNS_KEY}/request"]))
    except KeyError:
        return None
    finally:
        if isinstance(file, h5py.File):
            file.close()


def digest_of(value: pd.DataFrame | np.ndarray) -> str:
    """What stands in a request for something long."""
    if isinstance(value, np.ndarray):
        content = value.tobytes()
    else:
        content = value.to_json(orient="split", double_precision=15).encode()
    return f"{DIGEST}{sha256(content).hexdigest()}"
