"""Which of the requested conditions no training cell had: their parts, or their combination."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import torch

from scdiffgen.conditions import Code, Condition, Conditions, conditions_from_batch
from scdiffgen.data._specs import condition_specs

if TYPE_CHECKING:
    from collections.abc import Sequence

    from scvi.data import AnnDataManager

    from scdiffgen.conditions import ConditionSpec


class Unseen(NamedTuple):
    """What the training cells did not have, for each requested row."""

    parts: dict[str, np.ndarray]  # condition -> (rows,) bool: no training cell has all the given parts of the condition
    combination: np.ndarray  # (rows,) bool: no training cell has everything that is given


def registered_conditions(
    manager: AnnDataManager, indices: Sequence[int] | np.ndarray | None = None
) -> Conditions[np.ndarray]:
    """Conditions of registered cells, all or some."""
    specs = condition_specs(manager)
    tensors = {}
    for key in dict.fromkeys(spec.registry_key for spec in specs):
        codes = np.asarray(manager.get_from_registry(key))
        tensors[key] = torch.tensor(codes if indices is None else codes[np.asarray(indices)])
    return conditions_from_batch(tensors, specs).numpy()


def unseen_in_training(
    specs: Sequence[ConditionSpec], requested: Conditions[np.ndarray], trained: Conditions[np.ndarray]
) -> Unseen:
    """Compare what is requested with what the training cells had; numbers and doses are not compared."""
    compared = [spec for spec in specs if not spec.is_number]
    if not compared:
        return Unseen({}, np.zeros(requested.n_cells, dtype=bool))
    codes = [_same_width(_codes(requested[spec.name], spec), _codes(trained[spec.name], spec)) for spec in compared]
    parts = {
        spec.name: np.asarray(np.isin(wanted, [*np.unique(known), *Code], invert=True).any(axis=1))
        for spec, (wanted, known) in zip(compared, codes, strict=True)
    }
    widths = [known.shape[1] for _, known in codes]
    prefix = np.repeat([spec.kind == "hierarchy" for spec in compared], widths)
    rows = np.hstack([wanted for wanted, _ in codes])
    left_open = (rows == Code.MISSING) | (prefix & (rows == Code.ABSENT))
    return Unseen(parts, _are_new(rows, left_open, np.unique(np.hstack([known for _, known in codes]), axis=0)))


def _are_new(rows: np.ndarray, left_open: np.ndarray, known_rows: np.ndarray) -> np.ndarray:
    """Which rows agree with no known row where they are not left open."""
    are_new = np.zeros(len(rows), dtype=bool)
    patterns, pattern_of = np.unique(left_open, axis=0, return_inverse=True)
    for which, pattern in enumerate(patterns):
        known = set(map(tuple, known_rows[:, ~pattern].tolist()))
        same_pattern = np.flatnonzero(pattern_of.ravel() == which)
        are_new[same_pattern] = [tuple(row) not in known for row in rows[same_pattern][:, ~pattern].tolist()]
    return are_new


def _codes(condition: Condition[np.ndarray], spec: ConditionSpec) -> np.ndarray:
    """Codes of the parts ``(rows, slots)``, those of a set in descending order."""
    codes = Conditions({spec.name: condition}, len(condition.given)).codes([spec])
    return -np.sort(-codes, axis=1) if spec.kind == "set" else codes


def _same_width(wanted: np.ndarray, known: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Give two sets of rows the same number of slots."""
    width = max(wanted.shape[1], known.shape[1])
    return _widened(wanted, width), _widened(known, width)


def _widened(codes: np.ndarray, width: int) -> np.ndarray:
    fill = np.where(codes[:, :1] == Code.MISSING, Code.MISSING, Code.ABSENT)
    return np.hstack([codes, np.repeat(fill, width - codes.shape[1], axis=1)])
