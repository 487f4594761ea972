"""What one contender measured with one seed under one budget, kept in a file, so that a long run can stop and go on."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from benchmarks._record import read_result, write_result
from benchmarks._token_parts import part_name

Budget = Literal["both", "steps", "time"]
"""As many steps as the first contender, as much time as it, or both: then it is the first contender, or real cells."""


@dataclass(frozen=True)
class ProcessPart:
    """A trained model, and the cells that it drew.

    Parameters
    ----------
    method, budget, seed
        Which.
    settings
        What the numbers depend on beside these.
    environment
        What it was measured with.
    training
        Epochs, seconds and cells a second; nothing of real cells.
    nll
        Held-out nats per molecule, where the process has a likelihood.
    rows
        For each number of evaluations: the number of cells drawn, cells a second, and scores.
    """

    method: str
    budget: Budget
    seed: int
    settings: Mapping[str, Any]
    environment: Mapping[str, Any]
    training: Mapping[str, float] | None
    nll: float | None
    rows: Sequence[Mapping[str, Any]]


def write_process_part(folder: Path, part: ProcessPart) -> None:
    """Write a part into a file of its own."""
    write_result(folder, part_name(f"{part.method} {part.budget}", part.seed), dict(vars(part)))


def read_process_parts(folder: Path, settings: Mapping[str, Any]) -> Iterator[ProcessPart]:
    """Condition that were measured with such settings."""
    for path in sorted(folder.glob("*.json")):
        part = ProcessPart(**read_result(path))
        if part.settings == settings:
            yield part
