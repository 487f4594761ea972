"""Groups of cells that share their conditions, those of interventions with their doses."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from scdiffgen._conditions import ConditionSpec, Parts

from ._library_size import ABSENT, condition_codes

NO_DOSE = 1.0
"""Of an intervention where doses were not registered."""


class Groups(NamedTuple):
    """Conditions of groups of cells."""

    codes: np.ndarray
    """Categories ``(groups, conditions)``, as of :func:`condition_codes`; the last ones are the interventions."""
    doses: np.ndarray
    """Of the interventions ``(groups, slots)``; 0 where there is none, infinite where none was given."""


def treatment_codes(
    conditions: Mapping[str, Parts[np.ndarray]], specs: Sequence[ConditionSpec], n_cells: int
) -> Groups:
    """Conditions of some cells, one group each; what is given at dose 0 is not there.

    Parameters
    ----------
    conditions
        Conditions by name, the interventions among them.
    specs
        The registered conditions, the interventions last.
    n_cells
        Number of cells.
    """
    codes = condition_codes(conditions, specs, n_cells)
    given = conditions[specs[-1].name]
    treated = codes[:, codes.shape[1] - given.ids.shape[1] :]
    doses = given.values.astype(np.float64) if specs[-1].has_values else np.full(treated.shape, NO_DOSE)
    doses = np.where(treated >= 0, np.nan_to_num(doses, nan=np.inf), 0.0)
    treated[(treated >= 0) & (doses == 0)] = ABSENT
    return Groups(codes, doses)


def in_frequent_treatments(groups: Groups, n_cells: np.ndarray, least: int) -> np.ndarray:
    """Which groups ``(groups,)`` had interventions, with these doses, that at least so many cells had, or none.

    Parameters
    ----------
    groups
        The groups.
    n_cells
        Cells in each ``(groups,)``.
    least
        Number of cells.
    """
    slots = groups.codes[:, groups.codes.shape[1] - groups.doses.shape[1] :]
    _, treatment = np.unique(np.hstack([slots, groups.doses]), axis=0, return_inverse=True)
    return (np.bincount(treatment.ravel(), n_cells)[treatment.ravel()] >= least) | ~(slots >= 0).any(1)


def distinct_groups(cells: Groups) -> tuple[Groups, np.ndarray]:
    """Groups of cells with the same conditions, whatever the order of their interventions.

    Parameters
    ----------
    cells
        Conditions of the cells.

    Returns
    -------
    The groups, and the group of each cell ``(cells,)``.
    """
    n_codes, n_slots = cells.codes.shape[1], cells.doses.shape[1]
    split = n_codes - n_slots
    order = np.argsort(-cells.codes[:, split:], axis=1, kind="stable")
    ids, doses = (np.take_along_axis(a, order, axis=1) for a in (cells.codes[:, split:], cells.doses))
    groups, group_of = np.unique(np.hstack([cells.codes[:, :split], ids, doses]), axis=0, return_inverse=True)
    return Groups(groups[:, :n_codes].astype(np.int64), groups[:, n_codes:]), group_of.ravel()
