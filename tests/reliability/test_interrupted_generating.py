"""Generation that is interrupted, runs into a full disk, or finds its own chunks damaged, goes on to the same file."""

import errno
from collections.abc import Callable
from pathlib import Path
from typing import Any

import anndata as ad
import numpy as np
import pandas as pd
import pytest

from scdiffgen.io import _whole_files
from scdiffgen.model import TokenDiffusion, _chunked_generation

pytestmark = pytest.mark.filterwarnings("ignore:Writing zarr v2")
SUFFIXES = (".h5ad", ".zarr")


def generate(model: TokenDiffusion, path: Path, **options: Any) -> ad.AnnData:
    model.generate_to(path, {"cell_type": "a"}, 12, **{"chunk_size": 3, "n_steps": 2, "silent": True, **options})
    return ad.read_h5ad(path) if path.suffix == ".h5ad" else ad.io.read_zarr(path)


def fail_at(n: int, function: Callable[..., Any], error: BaseException) -> Callable[..., Any]:
    """The function, but at its so-many-th call it raises."""
    calls = []

    def failing(*arguments: Any, **options: Any) -> Any:
        calls.append(None)
        if len(calls) == n:
            raise error
        return function(*arguments, **options)

    return failing


FULL = OSError(errno.ENOSPC, "No space left on device")
FAILURES = {
    "Control-C": (_chunked_generation, "sample_chunk", KeyboardInterrupt()),
    "a full disk, at a chunk": (np, "savez", FULL),
    "a full disk, at the end": (_whole_files, "append_rows", FULL),
    "a full disk, in joining": (_whole_files, "rows_of", FULL),
}


@pytest.mark.parametrize("suffix", SUFFIXES)
@pytest.mark.parametrize("failure", FAILURES)
def test_what_failed_goes_on(
    failure: str, suffix: str, tiny: TokenDiffusion, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected, path = generate(tiny, tmp_path / f"whole{suffix}"), tmp_path / f"cells{suffix}"
    place, name, error = FAILURES[failure]
    n = 1 if "end" in failure else 2
    with monkeypatch.context() as patch:
        patch.setattr(place, name, fail_at(n, getattr(place, name), error))
        with pytest.raises(type(error)):
            generate(tiny, path)
    assert not path.exists()
    assert not list((tmp_path / f"cells{suffix}.partial").glob(".*"))  # nothing half-written takes place
    np.testing.assert_array_equal(generate(tiny, path).X.toarray(), expected.X.toarray())


DAMAGE: dict[str, Callable[[bytes], bytes]] = {
    "empty": lambda _: b"",
    "cut short": lambda content: content[: len(content) // 2],
    "without its end": lambda content: content[:-1],
    "one bit": lambda content: content[:200] + bytes([content[200] ^ 1]) + content[201:],
    "text": lambda _: b"hello",
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_a_damaged_chunk_is_generated_again(
    damage: str, tiny: TokenDiffusion, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected, path = generate(tiny, tmp_path / "whole.h5ad"), tmp_path / "cells.h5ad"
    with monkeypatch.context() as patch:
        patch.setattr(_whole_files.ChunkedFile, "finish", fail_at(1, lambda *_: None, KeyboardInterrupt()))
        with pytest.raises(KeyboardInterrupt):
            generate(tiny, path)
    chunk = tmp_path / "cells.h5ad.partial" / "1.npz"
    chunk.write_bytes(DAMAGE[damage](chunk.read_bytes()))
    np.testing.assert_array_equal(generate(tiny, path).X.toarray(), expected.X.toarray())


@pytest.mark.parametrize("content", ["", "{", "[]", "null"])
def test_a_damaged_request_is_named(content: str, tiny: TokenDiffusion, tmp_path: Path) -> None:
    folder = tmp_path / "cells.h5ad.partial"
    folder.mkdir()
    (folder / "request.json").write_text(content)
    with pytest.raises(ValueError, match=r"`path`: .*cells.h5ad.partial .* Pass another path"):
        generate(tiny, tmp_path / "cells.h5ad")


SIZES = 100


def by_global(table: pd.DataFrame, rng: np.random.Generator) -> int:
    return SIZES


def closed_over(n: int) -> Callable[..., int]:
    return lambda table, rng: n


class Callable_:
    """A function that is an object."""

    def __init__(self, n: int) -> None:
        self.n = n

    def __call__(self, table: pd.DataFrame, rng: np.random.Generator) -> np.ndarray:
        return rng.poisson(self.n, len(table)) + 1


FUNCTIONS: dict[str, Callable[[int], Any]] = {
    "a lambda": lambda n: eval(f"lambda table, rng: {n}"),
    "a closure": closed_over,
    "an object": Callable_,
    "a default": lambda n: lambda table, rng, size=n: size,
}


@pytest.mark.parametrize("begun", [False, True])
@pytest.mark.parametrize("kind", [*FUNCTIONS, "a global"])
def test_functions_are_known_by_what_they_return(
    kind: str, begun: bool, tiny: TokenDiffusion, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def sizes(n: int) -> Any:
        if kind == "a global":
            monkeypatch.setitem(globals(), "SIZES", n)
            return by_global
        return FUNCTIONS[kind](n)

    path = tmp_path / "cells.h5ad"
    if begun:
        with monkeypatch.context() as patch:
            patch.setattr(_chunked_generation, "sample_chunk", fail_at(3, _chunked_generation.sample_chunk, FULL))
            with pytest.raises(OSError, match="No space"):
                generate(tiny, path, library_size=sizes(100))
    else:
        generate(tiny, path, library_size=sizes(100))
    with pytest.raises(ValueError, match="other library_size"):
        generate(tiny, path, library_size=sizes(200))
    assert np.median(generate(tiny, path, library_size=sizes(100)).X.toarray().sum(1)) == pytest.approx(100, abs=20)


@pytest.mark.parametrize("sizes", [lambda t, r: -3, lambda t, r: [1], lambda t, r: "deep", lambda t, r: 1 / 0])
def test_a_function_that_is_refused_leaves_nothing(sizes: Any, tiny: TokenDiffusion, tmp_path: Path) -> None:
    with pytest.raises((ValueError, ZeroDivisionError)):
        generate(tiny, tmp_path / "cells.h5ad", library_size=sizes)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("path", [None, "", "a\0.h5ad", 3])
def test_a_path_that_is_none_is_named(path: Any, tiny: TokenDiffusion) -> None:
    with pytest.raises(ValueError, match=r"`path` is .*: pass the path of a file or folder"):
        tiny.generate_to(path, n_cells=2)


def test_seeds_are_the_same_for_files_and_for_memory(tiny: TokenDiffusion, tmp_path: Path) -> None:
    for act in (lambda: tiny.generate(seed=2**63), lambda: generate(tiny, tmp_path / "cells.h5ad", seed=2**63)):
        with pytest.raises(ValueError, match="`seed` is 9223372036854775808: pass a whole number of at most"):
            act()


@pytest.mark.parametrize("old", [False, True])
def test_a_full_disk_leaves_the_model_that_was_there(
    old: bool, tiny: TokenDiffusion, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "model"
    if old:
        tiny.save(folder)
    before = [path.read_bytes() for path in tmp_path.rglob("*.pt")]
    with monkeypatch.context() as patch:
        patch.setattr(_whole_files, "reach_the_disk", fail_at(1, lambda *_: None, FULL))
        with pytest.raises(OSError, match="No space left"):
            tiny.save(folder, overwrite=True)
    assert [path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()] == before
    assert len(list(tmp_path.iterdir())) == old
