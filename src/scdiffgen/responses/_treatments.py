"""Groups of cells that share their conditions, those of interventions with their doses."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from scdiffgen.conditions import Code, Conditions, ConditionSpec

NO_DOSE = 1.0
"""Of an intervention where doses were not registered."""


class TreatmentCodes(NamedTuple):
    """Conditions of cells, or of groups of cells."""

    codes: np.ndarray
    """Categories ``(rows, columns)``, as of :meth:`Conditions.codes`; the last columns are the interventions."""
    doses: np.ndarray
    """Of the interventions ``(rows, slots)``; 0 where there is none, infinite where none was given."""

    @property
    def slots(self) -> np.ndarray:
        """Ids of the interventions ``(rows, slots)``."""
        return self.codes[:, self.codes.shape[1] - self.doses.shape[1] :]

    @property
    def identity(self) -> np.ndarray:
        """Codes of all other conditions ``(rows, columns)``."""
        return self.codes[:, : self.codes.shape[1] - self.doses.shape[1]]


def treatment_codes(conditions: Conditions[np.ndarray], specs: Sequence[ConditionSpec]) -> TreatmentCodes:
    """Codes of cells, the interventions last, as ``specs`` have them; what is given at dose 0 is absent."""
    codes = conditions.codes(specs)
    given = conditions[specs[-1].name]
    treated = codes[:, codes.shape[1] - given.ids.shape[1] :]
    doses = given.values.astype(np.float64) if specs[-1].has_values else np.full(treated.shape, NO_DOSE)
    doses = np.where(treated >= 0, np.nan_to_num(doses, nan=np.inf), 0.0)
    treated[(treated >= 0) & (doses == 0)] = Code.ABSENT
    return TreatmentCodes(codes, doses)


def in_frequent_treatments(groups: TreatmentCodes, n_cells: np.ndarray, least: int) -> np.ndarray:
    """Which groups ``(groups,)`` are untreated, or had a treatment that at least so many of the ``n_cells`` had."""
    _, treatment = np.unique(np.hstack([groups.slots, groups.doses]), axis=0, return_inverse=True)
    n_treated = np.bincount(treatment.ravel(), n_cells)[treatment.ravel()]
    return (n_treated >= least) | ~(groups.slots >= 0).any(1)


def distinct_groups(cells: TreatmentCodes) -> tuple[TreatmentCodes, np.ndarray]:
    """Groups with the same conditions, whatever the order of their interventions, and the group of each cell."""
    order = np.argsort(-cells.slots, axis=1, kind="stable")
    ids, doses = (np.take_along_axis(array, order, axis=1) for array in (cells.slots, cells.doses))
    groups, group_of = np.unique(np.hstack([cells.identity, ids, doses]), axis=0, return_inverse=True)
    n_codes = cells.codes.shape[1]
    return TreatmentCodes(groups[:, :n_codes].astype(np.int64), groups[:, n_codes:]), group_of.ravel()
