"""What was registered of a condition: plain values only, saved with the model."""

from __future__ import annotations

import sys
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, TypeVar

import numpy as np

if TYPE_CHECKING:
    from types import ModuleType

    from torch import Tensor

ConditionKind = Literal["category", "number", "set", "hierarchy"]
ConditionRole = Literal["context", "intervention"]
TransformKind = Literal["identity", "log1p", "standardise"]

Array = TypeVar("Array", np.ndarray, "Tensor")


@dataclass(frozen=True)
class NumberTransform:
    """How a number becomes one of order one: ``(value - mean) / scale``, or ``log1p(value / scale)``."""

    kind: TransformKind = "identity"
    mean: float = 0.0
    scale: float = 1.0
    unit: str | None = None  # what the user measures in ("uM", "h"); shown, never computed with

    @classmethod
    def fit(cls, values: np.ndarray, kind: TransformKind, unit: str | None = None) -> NumberTransform:
        """Fit to numbers, NaN left out; ``scale`` is the median of positive ones (log1p) or the standard deviation."""
        known = np.asarray(values, dtype=np.float64)
        known = known[~np.isnan(known)]
        if kind == "log1p":
            positive = known[known > 0]
            return cls(kind, scale=float(np.median(positive)) if positive.size else 1.0, unit=unit)
        if kind == "standardise":
            return cls(kind, mean=float(known.mean()), scale=float(known.std()) or 1.0, unit=unit)
        return cls(kind, unit=unit)

    def __call__(self, values: Array) -> Array:
        """Transform numbers of any shape; NaN stays NaN."""
        if self.kind == "log1p":
            return namespace_of(values).log1p(values / self.scale)
        if self.kind == "standardise":
            return (values - self.mean) / self.scale
        return values


@dataclass(frozen=True)
class ConditionSpec:
    """What the network must know about one registered condition."""

    name: str  # what users write: the obs column, "cell_type"
    kind: ConditionKind
    role: ConditionRole = "context"
    registry_key: str = ""  # the scvi field that holds it
    column: int = 0  # the column within a joint field
    n_categories: int = 0  # ids run from 0 to n_categories - 1 (hierarchy: over all levels together)
    n_slots: int = 1
    has_values: bool = False  # the values of the parts mean something: a number, or the dose of a set's part
    transform: NumberTransform = field(default_factory=NumberTransform)
    n_features: int = 0  # length of each category's feature vector; 0 means a learned table instead
    components: tuple[int, ...] = ()  # of a set with components (knock-outs, drugs): the component of each category

    @property
    def is_number(self) -> bool:
        """Whether there are no categories to compare cells by."""
        return self.kind == "number"

    @property
    def is_path(self) -> bool:
        """Whether the parts stand in an order, from the root of a hierarchy to a leaf, and may end above it."""
        return self.kind == "hierarchy"

    @property
    def is_intervention(self) -> bool:
        """Whether it is something that was done to the cells."""
        return self.role == "intervention"


def namespace_of(values: np.ndarray | Tensor) -> ModuleType:
    """NumPy for arrays, torch for tensors (whose functions have the same names), without importing torch."""
    return np if isinstance(values, np.ndarray) else sys.modules["torch"]
