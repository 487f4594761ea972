"""Atomic writes: a process killed at any moment leaves the previous files and the finished chunks intact."""

import json
import os
import platform
import shutil
import struct
import sys
import warnings
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from hashlib import sha256
from io import BytesIO
from pathlib import Path
from typing import IO, Any, Self
from uuid import uuid4

import anndata as ad
import h5py
import numpy as np
import pandas as pd
import zarr
from anndata import AnnData
from mudata import MuData
from scipy import sparse

if sys.platform == "win32":
    import msvcrt
else:
    import fcntl

REQUEST, LOCK = "request.json", "lock"
UNS_KEY = "generated"
DIGEST = "sha256:"
COMPLETE = ".complete"
CSR, MARK = ("data", "indices", "indptr", "shape"), ":"  # parts of a CSR matrix, after its name and the mark

UNREADABLE = (
    *(ArithmeticError, AssertionError, AttributeError, EOFError, LookupError, OSError, RuntimeError, TypeError),
    *(ValueError, struct.error, zipfile.BadZipFile),
)
"""Exceptions of Python, NumPy and PyTorch when they read invalid files."""


@contextmanager
def all_or_nothing(folder: Path) -> Iterator[Path]:
    """Yield an empty folder; its files are moved to ``folder`` atomically once all of them are on disk."""
    # A new folder is renamed as a whole, and its parents are created. In an existing folder, each file replaces the
    # file of its name; other files stay. The hidden folder of the written files is first renamed to end in `.complete`,
    # so that `finish_moves` can move the rest after a kill. If the block raises, nothing is moved. A kill before that
    # leaves a hidden folder with a name that ends in `.partial`, which may be deleted.
    folder = folder.resolve()
    exists = folder.is_dir()
    finish_moves(folder)
    above = folder if exists else folder.parent  # on the same file system, so that renaming copies no data
    above.mkdir(parents=True, exist_ok=True)
    partial = above / f".{folder.name}-{uuid4().hex[:8]}.partial"
    partial.mkdir()
    try:
        yield partial
        reach_the_disk(*partial.iterdir(), partial)
        if exists:
            partial.rename(partial.with_suffix(COMPLETE))
            finish_moves(folder)
        else:
            partial.rename(folder)
            reach_the_disk(above)
    finally:
        shutil.rmtree(partial, ignore_errors=True)


def finish_moves(folder: Path) -> None:
    """Move the files of complete writes into their folder, after which a process may have been killed."""
    for complete in sorted(folder.glob(f".*-????????{COMPLETE}"), key=lambda path: path.stat().st_mtime_ns):
        for file in complete.iterdir():
            with suppress(FileNotFoundError):  # moved by another process
                file.replace(folder / file.name)
        reach_the_disk(folder)
        shutil.rmtree(complete, ignore_errors=True)


def reach_the_disk(*paths: Path) -> None:
    """Flush files and folders to the disk (fsync), so that they survive a power failure."""
    for path in paths:
        if not path.is_dir():
            with path.open("rb+") as file:
                os.fsync(file.fileno())
        elif os.name != "nt":  # Windows cannot flush folders
            handle = os.open(path, os.O_RDONLY)
            try:
                os.fsync(handle)
            finally:
                os.close(handle)


class ChunkedFile:
    """File of cells that is written in chunks, in any order and by several processes, and joined at the end.

    Each chunk is written atomically as a separate file in the folder ``<path>.partial``. Once all chunks exist they are
    joined, the result is renamed to ``path`` and the folder is removed; after an interruption, the same request resumes
    with the missing chunks. ``request``, plain values that identify the cells, is saved in the folder. The context
    manager locks out other processes.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        n_chunks: int,
        request: Mapping[str, Any],
        suffixes: Sequence[str] = (".h5ad", ".zarr"),
    ) -> None:
        self.path = Path(path)
        if self.path.suffix not in suffixes:
            ends = " or ".join(map(repr, suffixes))
            raise ValueError(f"`path` is {str(path)!r}: pass the name of a file that ends with {ends}.")
        self.n_chunks = n_chunks
        self.request = json.loads(json.dumps(dict(request), default=lambda number: number.item()))
        self._folder = self.path.with_name(f"{self.path.name}.partial")

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            while not self.is_whole:
                self._folder.mkdir(parents=True, exist_ok=True)
                with suppress(FileNotFoundError):  # the process with the lock has finished and removed the folder
                    self._take(stack.enter_context((self._folder / LOCK).open("a+")))
                    break
            begun = self._folder / REQUEST
            if self.is_whole:
                self._raise_unless_the_same(_request_of(self.path), self.path)
            elif begun.exists():
                self._raise_unless_the_same(_begun_request(begun), self._folder)
            else:
                partial = self._folder / f".{uuid4().hex[:8]}.json"
                partial.write_text(json.dumps(self.request))
                self._put(partial, begun)
            self._open = stack.pop_all()
        return self

    def __exit__(self, *raised: object) -> None:
        self._open.close()  # Windows cannot remove open files
        if self.is_whole:
            shutil.rmtree(self._folder, ignore_errors=True)

    @property
    def is_whole(self) -> bool:
        return self.path.exists()

    def missing(self) -> list[int]:
        """List the chunks that are absent or damaged."""
        return [chunk for chunk in range(self.n_chunks) if not is_whole_archive(self._file(chunk))]

    def read(self, chunk: int, name: str) -> np.ndarray | None:
        """Read a dense element of a chunk; ``None`` if the chunk is absent or damaged."""
        return rows_of(self._file(chunk), name) if is_whole_archive(self._file(chunk)) else None

    def write(self, chunk: int, rows: Mapping[str, Any]) -> None:
        """Write rows of elements, such as ``"X"``, dense or CSR, as a chunk, atomically and durably."""
        partial = self._folder / f".{uuid4().hex[:8]}.npz"
        arrays: dict[str, Any] = {}
        for name, values in rows.items():
            parts = {f"{name}{MARK}{part}": getattr(values, part) for part in CSR} if sparse.issparse(values) else {}
            arrays |= parts or {name: values}
        try:
            np.savez(partial, **arrays)
            self._put(partial, self._file(chunk))
        finally:  # in case writing failed, such as on a full disk
            partial.unlink(missing_ok=True)

    def finish(self, cells: AnnData | MuData, elements: Sequence[str]) -> None:
        """Add elements, which are joined with one chunk in memory at a time, to annotated cells without them."""
        joined = self._folder / f"joined{self.path.suffix}"
        if self.path.suffix != ".zarr":
            with warnings.catch_warnings(action="ignore", category=FutureWarning):
                cells.write_h5mu(joined) if isinstance(cells, MuData) else cells.write_h5ad(joined)
            with h5py.File(joined, "r+") as file:
                self._join(file, elements)
            reach_the_disk(joined)
        else:
            shutil.rmtree(joined, ignore_errors=True)  # from an interrupted run
            write_quietly(group := new_zarr(joined), "/", cells)
            self._join(group, elements)
            reach_the_disk(*joined.rglob("*"))
        joined.rename(self.path)
        reach_the_disk(self.path.absolute().parent)

    def _join(self, file: h5py.File | zarr.Group, elements: Sequence[str]) -> None:
        for name in elements:
            if name in file:
                del file[name]
            for chunk in range(self.n_chunks):
                append_rows(file, name, rows_of(self._file(chunk), name))

    def check_columns(self, obs: pd.DataFrame) -> None:
        """Raise if the format does not support a column of ``.obs``."""
        for name, column in obs.items():
            rows = slice(None) if column.dtype == object else slice(1)  # other types are the same in all rows
            if self.path.suffix != ".zarr":
                store = h5py.File(BytesIO(), "w")
            else:
                store = zarr.open_group(zarr.storage.MemoryStore(), mode="w")
            try:
                write_quietly(store, "obs", obs[[name]][rows])
            except Exception as error:  # anndata and the formats raise errors of many types
                raise ValueError(
                    f"`path` is {str(self.path)!r}, and a {self.path.suffix} cannot hold the column {name!r} ({error}):"
                    " pass another format if there is one ('.h5ad' or '.zarr'), or rename or convert the column."
                ) from error

    def _take(self, lock: IO[str]) -> None:
        """Lock a file until it is closed or the process ends; raise if another process holds the lock."""
        try:
            if sys.platform == "win32":
                lock.seek(2**30)  # lock a byte beyond the text, which stays readable
                msvcrt.locking(lock.fileno(), msvcrt.LK_NBLCK, 1)
            else:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except (BlockingIOError, PermissionError) as error:
            lock.seek(0)
            raise RuntimeError(
                f"`path`: {lock.read() or 'another process'} is generating {self.path}. Wait until it has ended, or "
                "pass another path."
            ) from error
        except OSError:  # a file system without locks
            return
        lock.truncate(0)
        lock.write(f"process {os.getpid()} on {platform.node()}")
        lock.flush()

    def _file(self, chunk: int) -> Path:
        return self._folder / f"{chunk}.npz"

    def _put(self, partial: Path, final: Path) -> None:
        reach_the_disk(partial)
        partial.replace(final)
        reach_the_disk(self._folder)

    def _raise_unless_the_same(self, saved: Mapping[str, Any] | None, where: Path) -> None:
        if not isinstance(saved, Mapping):
            raise ValueError(f"`path`: {where} exists, and was not made by `generate_to`. Pass another path.")
        pairs = {name: (saved.get(name), value) for name, value in self.request.items() if saved.get(name) != value}
        if pairs:
            names = {"model": "weights", "training_cells": "training cells"}
            shown = {name: name if DIGEST in str(pair) else f"{name} (was {pair[0]})" for name, pair in pairs.items()}
            by = "model" if pairs.keys() & {*names, "genes", "categories"} else "call"
            raise ValueError(
                f"`path`: {where} was begun by another {by}, with other {', '.join((shown | names)[n] for n in pairs)}."
                " Repeat the original call, pass another path, or delete it."
            )


def rows_of(file: Path, name: str) -> Any:
    """Read the rows of an element, dense or CSR, from a chunk."""
    with np.load(file) as arrays:
        if name in arrays:
            return arrays[name]
        data, indices, indptr, shape = (arrays[f"{name}{MARK}{part}"] for part in CSR)
        return sparse.csr_matrix((data, indices, indptr), shape=tuple(shape))


def new_zarr(folder: Path) -> zarr.Group:
    """Create a zarr folder in format 3, which supports shards."""
    return zarr.open_group(str(folder), mode="w", zarr_format=3)


def write_quietly(file: h5py.File | zarr.Group, name: str, value: Any, how: Mapping[str, Any] | None = None) -> None:
    """Write an element of an AnnData without anndata's warnings of future formats."""
    folder, _, key = name.rpartition("/")  # anndata 0.13 refuses paths of zarr
    with warnings.catch_warnings(action="ignore"):
        ad.io.write_elem(file[folder] if folder else file, key or "/", value, dataset_kwargs=how or {})


def append_rows(file: Any, name: str, rows: Any, n_cells: int = 64, n_chunks: int = 128) -> None:
    """Append rows to an element; zarr CSR gets chunks of about ``n_cells`` cells and ``n_chunks`` chunks per shard."""
    if name in file:
        (ad.io.sparse_dataset(file[name]) if sparse.issparse(rows) else file[name]).append(rows)
    elif sparse.issparse(rows):
        rows.indptr = rows.indptr.astype(np.int64)  # the element may grow beyond 2**31 values
        chunk = max(n_cells * rows.nnz // rows.shape[0], 1)
        sizes = {"chunks": (chunk,), "shards": (n_chunks * chunk,)} if isinstance(file, zarr.Group) else {}
        write_quietly(file, name, rows, sizes)
    else:
        write_quietly(file, name, rows)


def is_whole_archive(file: Path) -> bool:
    """Check that an ``.npz`` file exists and passes its checksums."""
    try:
        with zipfile.ZipFile(file) as archive:
            return archive.testzip() is None
    except UNREADABLE:
        return False


def _begun_request(file: Path) -> dict[str, Any] | None:
    try:
        return json.loads(file.read_text())
    except ValueError:  # damaged
        return None


def _request_of(path: Path) -> dict[str, Any] | None:
    """Read the request of a joined file; ``None`` if it has none."""
    try:
        file = zarr.open_group(str(path), mode="r") if path.suffix == ".zarr" else h5py.File(path, "r")
    except (OSError, ValueError):  # not a file of this format
        return None
    try:
        return json.loads(ad.io.read_elem(file[f"uns/{UNS_KEY}/request"]))
    except KeyError:
        return None
    finally:
        if isinstance(file, h5py.File):
            file.close()


def digest_of(value: object) -> str:
    """Hash a table, an array, or plain values that contain some, as a short entry of a request."""
    digest = sha256()
    for part in _content(value):
        digest.update(part)
    return f"{DIGEST}{digest.hexdigest()}"


def _content(value: object) -> Iterator[bytes]:
    """Yield bytes that depend only on the values, and not on whether they were saved and loaded."""
    if isinstance(value, pd.DataFrame):
        yield value.to_json(orient="split", double_precision=15).encode()
    elif isinstance(value, np.ndarray) and value.dtype.kind in "biuf":
        yield f"{value.dtype.str} {value.shape} ".encode() + value.tobytes()
    elif isinstance(value, Mapping):
        for key in sorted(value, key=repr):
            yield from _content((key, value[key]))
    elif isinstance(value, list | tuple | np.ndarray):
        yield f"{len(value)}: ".encode()
        for item in value:
            yield from _content(item)
    else:
        yield f"{value.item() if isinstance(value, np.generic) else value!r} ".encode()
