"""What one training measured with one seed, kept in files of its own, so that a long run can stop and go on."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypeVar

import numpy as np
import pandas as pd

from benchmarks._record import read_result, write_result

Budget = Literal["both", "steps", "time"]
"""As many steps as the first contender, as much time as it, or both: then it is the first contender, or real cells."""


@dataclass(frozen=True)
class TokenPart:
    """Loadings of one method with one seed, and their scores."""

    method: str
    kind: str  # "ours" or "other"
    seed: int
    settings: Mapping[str, Any]  # what the scores depend on beside the seed
    scores: Mapping[str, float]  # by metric
    environment: Mapping[str, Any]
    loadings: pd.DataFrame  # (genes, programs)


@dataclass(frozen=True)
class ProcessPart:
    """A model trained under a budget, and the cells that it drew."""

    method: str
    budget: Budget
    seed: int
    settings: Mapping[str, Any]  # what the numbers depend on beside these
    environment: Mapping[str, Any]
    training: Mapping[str, float] | None  # epochs, seconds and cells a second; nothing of real cells
    nll: float | None  # held-out nats per molecule, where the process has a likelihood
    rows: Sequence[Mapping[str, Any]]  # by number of evaluations: numbers of cells, cells a second, and scores


Part = TypeVar("Part", TokenPart, ProcessPart)


def write_part(folder: Path, part: TokenPart | ProcessPart) -> None:
    """Write tables, then the rest: a part without its JSON file was not finished."""
    folder.mkdir(parents=True, exist_ok=True)
    fields = dict(vars(part))
    name = "_".join([*fields["method"].split(" "), *([fields["budget"]] if "budget" in fields else [])])
    name += f"-seed{part.seed}"
    if (loadings := fields.pop("loadings", None)) is not None:
        index = {"genes": loadings.index.to_numpy(dtype=str), "programs": loadings.columns.to_numpy(dtype=str)}
        np.savez_compressed(folder / f"{name}.npz", values=loadings.to_numpy(dtype=np.float32), **index)
    write_result(folder, name, fields)


def read_parts(kind: type[Part], folder: Path) -> Iterator[Part]:
    """Parts that are finished."""
    for path in sorted(folder.glob("*.json")):
        fields = read_result(path)
        if path.with_suffix(".npz").exists():
            with np.load(path.with_suffix(".npz")) as stored:
                fields["loadings"] = pd.DataFrame(stored["values"], stored["genes"], stored["programs"])
        yield kind(**fields)
