"""Pin what the package computes before its code is moved, and compare afterwards.

    python scripts/pin_results.py --write pins.pkl
    python scripts/pin_results.py --compare pins.pkl --only labels --verb generate

Seven small models are trained, saved, and loaded anew for every call of a public method, with a fresh copy of the
cells, so that no call can influence another. ``--compare`` says of each call ``same`` (bit for bit), ``renamed`` (the
same arrays by other names) or how much differs, and fails unless all are the first two. Results depend on the processor
and the versions of the libraries: compare on the machine that wrote.
"""

from __future__ import annotations

import os

os.environ["TQDM_DISABLE"] = "1"
os.environ["CUDA_VISIBLE_DEVICES"] = ""

import argparse
import logging
import pickle
import sys
import tempfile
import time
import warnings
from collections.abc import Iterator, Mapping
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import scvi
import torch
from _pin_calls import calls_of
from _pin_setups import SETUPS
from anndata import AnnData
from mudata import MuData
from scipy import sparse

from scdiffgen.metrics import Evaluation
from scdiffgen.model import TokenDiffusion

Result = dict[str, Any]  # arrays and sparse matrices by name
NOT_PINNED = ("_scvi", "model_id", "generated")  # entries of obs, obsm and uns that name a registry or a file


def main() -> None:
    options = parsed()
    torch.set_num_threads(1)
    logging.disable(logging.WARNING)
    warnings.simplefilter("ignore")
    start = time.perf_counter()
    before = pickle.loads(options.compare.read_bytes()) if options.compare else {}
    found, all_the_same = {}, True
    for name, result in results(options.only, options.verb):
        found[name] = result
        status = compared(before.get(name, {}).get("arrays"), result["arrays"]) if options.compare else ""
        status = result["failure"] or status or result["digest"][:16]
        all_the_same &= not result["failure"] and (not options.compare or status.startswith(("same", "renamed")))
        print(f"{name:62} {result['seconds']:5.1f} s  {status}", flush=True)
    for name in before:
        if chosen(*name.split(": ", 1), options.only, options.verb) and name not in found:
            all_the_same = False
            print(f"{name:71}  differs: no longer called")
    if options.write:
        options.write.parent.mkdir(parents=True, exist_ok=True)
        options.write.write_bytes(pickle.dumps(found))
    print(f"{len(found)} calls in {time.perf_counter() - start:.0f} s")
    sys.exit(not all_the_same)


def parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--write", type=Path, metavar="FILE", help="store results, outside of the repository")
    what.add_argument("--compare", type=Path, metavar="FILE", help="compare with what was stored")
    parser.add_argument("--only", default="", metavar="SETUP", help=f"part of a name among {list(SETUPS)}")
    parser.add_argument("--verb", default="", help="part of the name of a call")
    return parser.parse_args()


def chosen(setup: str, call: str, only: str, verb: str) -> bool:
    return only in setup and verb in call


def results(only: str, verb: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """Name, arrays, digest and seconds of every call that is chosen."""
    for name, setup in SETUPS.items():
        calls = {call: ask for call, ask in calls_of(name).items() if chosen(name, call, only, verb)}
        if not calls:
            continue
        made = setup.cells()
        with tempfile.TemporaryDirectory() as folder:
            setup.trained().save(f"{folder}/model")
            for call, ask in calls.items():
                start, cells = time.perf_counter(), made.copy()
                model = TokenDiffusion.load(f"{folder}/model", cells, accelerator="cpu")
                scvi.settings.seed = 0
                arrays, failure = {}, ""
                try:
                    arrays = dict(flat(ask(model, cells)))
                except Exception as error:  # noqa: BLE001  the other calls are asked all the same
                    failure = f"fails: {type(error).__name__}: {error}"
                seconds = time.perf_counter() - start
                yield (
                    f"{name}: {call}",
                    {"arrays": arrays, "digest": digest(arrays), "failure": failure, "seconds": seconds},
                )


def flat(value: Any, name: str = "") -> Iterator[tuple[str, Any]]:
    """Arrays and sparse matrices by name, whatever a method returns."""
    value = value.frame if isinstance(value, Evaluation) else value
    if isinstance(value, AnnData):
        slots = ("layers", "obsm", "varm", "obsp", "uns")
        value = {"X": value.X, "obs": value.obs, "var": value.var} | {s: dict(getattr(value, s)) for s in slots}
    elif isinstance(value, MuData):
        value = {"obs": value.obs, "obsm": dict(value.obsm), "uns": dict(value.uns)} | dict(value.mod)
    elif isinstance(value, pd.DataFrame):
        columns = {str(column): value.iloc[:, place] for place, column in enumerate(value.columns)}
        value = {"index": value.index, **columns, **({"attrs": value.attrs} if value.attrs else {})}
    elif isinstance(value, tuple) and hasattr(value, "_asdict"):
        value = value._asdict()
    if isinstance(value, Mapping):
        for key, entry in value.items():
            if not str(key).startswith(NOT_PINNED):
                yield from flat(entry, f"{name}/{key}" if name else str(key))
    elif sparse.issparse(value):
        yield name, sparse.csr_matrix(value)
    elif value is not None:
        array = value.to_numpy() if isinstance(value, pd.Index | pd.Series) else np.asarray(value)
        yield name, array if array.dtype.kind in "biuf" else np.asarray([str(entry) for entry in array.ravel()])


def digest(arrays: Result) -> str:
    return sha256("".join(f"{name} {digest_of(array)}" for name, array in sorted(arrays.items())).encode()).hexdigest()


def digest_of(array: Any) -> str:
    """Of shape, type and values."""
    dense = as_dense(array)
    text = f"{type(array).__name__} {dense.dtype} {dense.shape}"
    return sha256(text.encode() + np.ascontiguousarray(dense).tobytes()).hexdigest()


def as_dense(array: Any) -> np.ndarray:
    return array.toarray() if sparse.issparse(array) else np.asarray(array)


def compared(before: Result | None, now: Result) -> str:
    """Say in a line how results differ."""
    if before is None:
        return "differs: not stored"
    pairs = dict(paired(before, now))
    lost, new = [name for name in before if name not in pairs], [name for name in now if name not in pairs.values()]
    n_entries, n_differing, largest, where = 0, 0, 0.0, []
    for old_name, new_name in pairs.items():
        old, new_array = as_dense(before[old_name]), as_dense(now[new_name])
        n_entries += old.size
        if digest_of(before[old_name]) == digest_of(now[new_name]):
            continue
        if old.shape != new_array.shape or old.dtype.kind != new_array.dtype.kind:
            where.append(f"{old_name} ({old.dtype} {old.shape} -> {new_array.dtype} {new_array.shape})")
            n_differing += old.size
            continue
        kinds = [
            f"{type(array).__name__} of {dense.dtype}"
            for array, dense in ((before[old_name], old), (now[new_name], new_array))
        ]
        note = f" ({kinds[0]} -> {kinds[1]})" if kinds[0] != kinds[1] and old.dtype.kind != "U" else ""
        differing = old != new_array
        if old.dtype.kind == "f":
            differing &= ~(np.isnan(old) & np.isnan(new_array))
        if old.dtype.kind in "biuf" and differing.any():
            gaps = np.abs(old[differing].astype(float) - new_array[differing].astype(float))
            largest = max(largest, np.inf if np.isnan(gaps).any() else float(gaps.max()))
        n_differing += int(differing.sum())
        where.append(old_name + (note or ("" if differing.any() else " (sign of zeros)")))
    where += [f"{name} is gone" for name in lost] + [f"{name} is new" for name in new]
    if where:
        shown = "; ".join(where[:6]) + (f"; {len(where) - 6} more" if len(where) > 6 else "")
        share = n_differing / max(n_entries, 1)
        return f"differs: max abs difference {largest:.3g}, {share:.2%} of the entries ({shown})"
    renamed = [f"{old} -> {new}" for old, new in pairs.items() if old != new]
    return f"renamed: {len(renamed)} arrays ({'; '.join(renamed[:3])})" if renamed else "same"


def paired(before: Result, now: Result) -> Iterator[tuple[str, str]]:
    """Names of what is compared with each other: those of the same name, then those of the same values."""
    yield from ((name, name) for name in before if name in now)
    left = {}
    for name in now:
        if name not in before:
            left.setdefault(digest_of(now[name]), []).append(name)
    for name in before:
        if name not in now and left.get(digest_of(before[name])):
            yield name, left[digest_of(before[name])].pop(0)


if __name__ == "__main__":
    main()
