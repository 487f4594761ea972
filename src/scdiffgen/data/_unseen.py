"""Which of the asked conditions no training cell had: their parts, or their combination."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import torch

from scdiffgen._batch import parts_from_batch
from scdiffgen.data._specs import condition_specs

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from scvi.data import AnnDataManager

    from scdiffgen._conditions import ConditionSpec, Parts

NO_PART = -1
NOT_TOLD = -2


class Unseen(NamedTuple):
    """What the training cells did not have, for each asked row."""

    parts: dict[str, np.ndarray]  # condition -> (rows,) bool: no training cell has all the told parts of the condition
    combination: np.ndarray  # (rows,) bool: no training cell has everything that is told


def registered_parts(manager: AnnDataManager, indices: Sequence[int] | np.ndarray | None = None) -> dict[str, Parts]:
    """Conditions of registered cells.

    Parameters
    ----------
    manager
        Registration of the cells.
    indices
        Which cells; None for all.

    Returns
    -------
    NumPy arrays of each condition by its name.

    Examples
    --------
    >>> import anndata as ad, pandas as pd
    >>> from scdiffgen.data import Manager, fields_for
    >>> manager = Manager(fields=fields_for(labels_key="type"))
    >>> manager.register_fields(ad.AnnData(np.ones((4, 1)), obs=pd.DataFrame({"type": [*"TBTB"]}, index=[*"abcd"])))
    >>> registered_parts(manager, indices=[0, 1])["type"].ids.tolist()
    [[1], [0]]
    """
    specs = condition_specs(manager)
    tensors = {}
    for key in dict.fromkeys(spec.registry_key for spec in specs):
        codes = np.asarray(manager.get_from_registry(key))
        tensors[key] = torch.tensor(codes if indices is None else codes[np.asarray(indices)])
    parts = parts_from_batch(tensors, specs)
    return {name: type(each)(*(tensor.numpy() for tensor in each)) for name, each in parts.items()}


def unseen_in_training(
    specs: Sequence[ConditionSpec], asked: Mapping[str, Parts], trained: Mapping[str, Parts]
) -> Unseen:
    """Compare what is asked for with what the training cells had; numbers and doses are not compared.

    Parameters
    ----------
    specs
        The registered conditions.
    asked
        NumPy arrays of what is asked for, as :func:`encode_conditions` gives them.
    trained
        NumPy arrays of the training cells, as :func:`registered_parts` gives them.

    Returns
    -------
    For each row of ``asked``, and each condition, whether it is new; and whether the row as a whole is.

    Examples
    --------
    >>> from scdiffgen._conditions import ConditionSpec, Parts
    >>> spec = ConditionSpec("type", "category", n_categories=2)
    >>> def category(*ids):
    ...     ids = np.array(ids)[:, None]
    ...     return {"type": Parts(ids, ids * 0.0, ids >= 0, np.ones(len(ids), dtype=bool))}
    >>> unseen_in_training([spec], category(0, 1), category(0, 0, 0)).combination.tolist()
    [False, True]
    """
    compared = [spec for spec in specs if spec.kind != "number"]
    if not compared:
        n_rows = len(next(iter(asked.values())).told) if asked else 0
        return Unseen({}, np.zeros(n_rows, dtype=bool))
    codes = [_aligned(_codes(asked[spec.name], spec), _codes(trained[spec.name], spec)) for spec in compared]
    parts = {
        spec.name: np.asarray(np.isin(wanted, [*np.unique(known), NO_PART, NOT_TOLD], invert=True).any(axis=1))
        for spec, (wanted, known) in zip(compared, codes, strict=True)
    }
    widths = [known.shape[1] for _, known in codes]
    prefix = np.repeat([spec.kind == "hierarchy" for spec in compared], widths)
    rows = np.hstack([wanted for wanted, _ in codes])
    left_open = (rows == NOT_TOLD) | (prefix & (rows == NO_PART))
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


def _codes(parts: Parts, spec: ConditionSpec) -> np.ndarray:
    """Ids of the parts, those of a set in descending order."""
    codes = np.where(parts.mask, parts.ids, NO_PART)
    codes = np.where(parts.told[:, None], codes, NOT_TOLD)
    return -np.sort(-codes, axis=1) if spec.kind == "set" else codes


def _aligned(wanted: np.ndarray, known: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Give two sets of rows the same number of slots."""
    width = max(wanted.shape[1], known.shape[1])
    return _widened(wanted, width), _widened(known, width)


def _widened(codes: np.ndarray, width: int) -> np.ndarray:
    fill = np.where(codes[:, :1] == NOT_TOLD, NOT_TOLD, NO_PART)
    return np.hstack([codes, np.repeat(fill, width - codes.shape[1], axis=1)])
