"""What a condition is, for everyone who handles one: the data layer, the networks and the model.

Every condition of a cell, whatever its kind, is a padded set of parts ``(id, value)``:

========== ============================ ==================== =====================
kind       ids                          values               slots
========== ============================ ==================== =====================
category   one                          unused               1
number     0                            the number itself    1
set        one per perturbation         its dose, if any     largest set seen
hierarchy  the path from root to leaf   unused               number of levels
========== ============================ ==================== =====================

Three things stay distinct: *padding* (``mask`` is False), *not told* (``told`` is False for the whole condition) and
*none* (a set that is told and empty: the cell is known to be a control). A value of NaN on a part that is present means
"no dose given", which is not dose 0.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Generic, Literal, NamedTuple, TypeVar

import numpy as np

if TYPE_CHECKING:
    from types import ModuleType

    from torch import Tensor

ConditionKind = Literal["category", "number", "set", "hierarchy"]
ConditionRole = Literal["identity", "intervention"]
TransformKind = Literal["identity", "log1p", "log10", "tanh", "standardise"]

Array = TypeVar("Array", np.ndarray, "Tensor")


class Parts(NamedTuple, Generic[Array]):
    """One condition of many cells; NumPy arrays in the data layer, tensors in the networks."""

    ids: Array  # (cells, slots) int64; 0 where masked
    values: Array  # (cells, slots) float32, untransformed; NaN is "no dose given"; 0 where masked or unused
    mask: Array  # (cells, slots) bool; False is padding
    told: Array  # (cells,) bool; False is "not told": whatever ids, values and mask hold is not looked at


@dataclass(frozen=True)
class NumberTransform:
    """How a number with a unit becomes a number of order one, with the statistics that this takes.

    Parameters
    ----------
    kind
        ``"identity"``, ``"log1p"`` (of value / scale), ``"log10"`` (of value / scale, with a floor at ``floor``),
        ``"tanh"`` (of value / scale) or ``"standardise"`` (value minus ``mean``, over ``scale``).
    mean, scale, floor
        Statistics fitted on the registered cells.
    unit
        What the user measures in (``"uM"``, ``"h"``); shown, never computed with.
    """

    kind: TransformKind = "identity"
    mean: float = 0.0
    scale: float = 1.0
    floor: float = 0.0
    unit: str | None = None

    @classmethod
    def fit(cls, values: np.ndarray, kind: TransformKind, unit: str | None = None) -> NumberTransform:
        """Fit the statistics that a kind of transform takes.

        ``scale`` is the median of the positive values for the two logarithms, the largest magnitude for ``"tanh"`` and
        the standard deviation for ``"standardise"``; 1 where that is 0. ``floor`` is half the smallest positive value.

        Parameters
        ----------
        values
            Numbers of any shape; NaN is left out.
        kind
            Kind of transform.
        unit
            What the values are measured in.

        Returns
        -------
        The fitted transform.

        Raises
        ------
        ValueError
            If there is no number to fit on, or a logarithm is asked for and there are negative values.

        Examples
        --------
        >>> NumberTransform.fit(np.array([0.0, 1.0, 10.0, 100.0]), "log1p", unit="uM")
        NumberTransform(kind='log1p', mean=0.0, scale=10.0, floor=0.0, unit='uM')
        """
        known = np.asarray(values, dtype=np.float64)
        known = known[~np.isnan(known)]
        if not known.size:
            raise ValueError(f"no number to fit the transform {kind!r} on")
        if kind in ("log1p", "log10") and known.min() < 0:
            raise ValueError(
                f"the transform {kind!r} needs values of at least 0, got {known.min():g}; use 'standardise'"
            )
        positive = known[known > 0]
        if kind == "log1p":
            return cls(kind, scale=float(np.median(positive)) if positive.size else 1.0, unit=unit)
        if kind == "log10":
            scale, smallest = (float(np.median(positive)), float(positive.min())) if positive.size else (1.0, 1.0)
            return cls(kind, scale=scale, floor=smallest / 2, unit=unit)
        if kind == "tanh":
            return cls(kind, scale=float(np.abs(known).max()) or 1.0, unit=unit)
        if kind == "standardise":
            return cls(kind, mean=float(known.mean()), scale=float(known.std()) or 1.0, unit=unit)
        return cls(kind, unit=unit)

    def __call__(self, values: Array) -> Array:
        """Transform numbers.

        Parameters
        ----------
        values
            Numbers in ``unit``, any shape.

        Returns
        -------
        Numbers of order one, same shape; NaN stays NaN.

        Examples
        --------
        >>> NumberTransform("standardise", mean=2.0, scale=4.0)(np.array([2.0, 6.0]))
        array([0., 1.])
        """
        xp = _namespace_of(values)
        if self.kind == "log1p":
            return xp.log1p(values / self.scale)
        if self.kind == "log10":
            return xp.log10(xp.clip(values, self.floor, None) / self.scale)
        if self.kind == "tanh":
            return xp.tanh(values / self.scale)
        if self.kind == "standardise":
            return (values - self.mean) / self.scale
        return values

    def inverse(self, transformed: Array) -> Array:
        """Undo the transform (values below ``floor`` come back as ``floor``).

        Parameters
        ----------
        transformed
            Numbers of order one, any shape.

        Returns
        -------
        Numbers in ``unit``, same shape.

        Examples
        --------
        >>> NumberTransform("standardise", mean=2.0, scale=4.0).inverse(np.array([0.0, 1.0]))
        array([2., 6.])
        """
        xp = _namespace_of(transformed)
        if self.kind == "log1p":
            return xp.expm1(transformed) * self.scale
        if self.kind == "log10":
            return 10.0**transformed * self.scale
        if self.kind == "tanh":
            return xp.arctanh(transformed) * self.scale
        if self.kind == "standardise":
            return transformed * self.scale + self.mean
        return transformed


@dataclass(frozen=True)
class ConditionSpec:
    """What the network must know about one registered condition: plain values only, saved with the model."""

    name: str  # what users write: the obs column, "cell_type"
    kind: ConditionKind
    role: ConditionRole = "identity"
    registry_key: str = ""  # the scvi field that holds it
    column: int = 0  # the column within a joint field
    n_categories: int = 0  # ids run from 0 to n_categories - 1 (hierarchy: over all levels together)
    n_slots: int = 1
    has_values: bool = False  # the values of the parts mean something: a number, or the dose of a set's part
    transform: NumberTransform = field(default_factory=NumberTransform)
    n_features: int = 0  # length of each category's feature vector; 0 means a learned table instead
    components: tuple[int, ...] = ()  # of a set with kinds of parts (knock-outs, drugs): the kind of each category


def _namespace_of(values: np.ndarray | Tensor) -> ModuleType:
    """NumPy for arrays, torch for tensors (whose functions have the same names), without importing torch."""
    return np if isinstance(values, np.ndarray) else sys.modules["torch"]
