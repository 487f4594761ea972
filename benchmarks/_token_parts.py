"""What one method measured with one seed, kept in files of its own, so that a long run can stop and go on."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from benchmarks._record import read_result, write_result


@dataclass(frozen=True)
class Part:
    """Loadings of one method with one seed, and their scores.

    Parameters
    ----------
    method, kind, seed
        Which; the kind is ``"ours"`` or ``"other"``.
    settings
        What the scores depend on beside the seed.
    scores
        By metric.
    environment
        What it was measured with.
    loadings
        Loadings ``(genes, programs)``.
    """

    method: str
    kind: str
    seed: int
    settings: Mapping[str, Any]
    scores: Mapping[str, float]
    environment: Mapping[str, Any]
    loadings: pd.DataFrame


def write_part(folder: Path, part: Part) -> None:
    """Write loadings, then the rest: a part without its JSON file was not finished."""
    folder.mkdir(parents=True, exist_ok=True)
    name = part_name(part.method, part.seed)
    np.savez_compressed(
        folder / f"{name}.npz",
        values=part.loadings.to_numpy(dtype=np.float32),
        genes=part.loadings.index.to_numpy(dtype=str),
        programs=part.loadings.columns.to_numpy(dtype=str),
    )
    rest = {key: value for key, value in vars(part).items() if key != "loadings"}
    write_result(folder, name, rest)


def read_parts(folder: Path) -> Iterator[Part]:
    """Condition that are finished."""
    for path in sorted(folder.glob("*.json")):
        with np.load(path.with_suffix(".npz")) as stored:
            loadings = pd.DataFrame(stored["values"], index=stored["genes"], columns=stored["programs"])
        yield Part(**read_result(path), loadings=loadings)


def part_name(method: str, seed: int) -> str:
    """Name of a part's files, without the ending."""
    return f"{method.replace(' ', '_')}-seed{seed}"
