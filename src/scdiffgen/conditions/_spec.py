"""Specification of a registered condition: plain values that are saved with the model."""

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
    """Transform of a number to order one: ``(value - mean) / scale``, or ``log1p(value / scale)``."""

    kind: TransformKind = "identity"
    mean: float = 0.0
    scale: float = 1.0
    unit: str | None = None  # unit ("uM", "h"), for display only

    @classmethod
    def fit(cls, values: np.ndarray, kind: TransformKind, unit: str | None = None) -> NumberTransform:
        """Fit to numbers without NaN; ``scale`` is the median of positive numbers (log1p) or the standard deviation."""
        numbers = np.asarray(values, dtype=np.float64)
        numbers = numbers[~np.isnan(numbers)]
        if kind == "log1p":
            positive = numbers[numbers > 0]
            return cls(kind, scale=float(np.median(positive)) if positive.size else 1.0, unit=unit)
        if kind == "standardise":
            return cls(kind, mean=float(numbers.mean()), scale=float(numbers.std()) or 1.0, unit=unit)
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
    """Specification of one registered condition for the network."""

    name: str  # name of the obs column, such as "cell_type"
    kind: ConditionKind
    role: ConditionRole = "context"
    registry_key: str = ""  # key of the scvi-tools field
    column: int = 0  # column within a joint field
    n_categories: int = 0  # ids are 0 to n_categories - 1 (hierarchy: over all levels)
    n_slots: int = 1
    has_values: bool = False  # whether parts have values: the number, or the doses of a set
    transform: NumberTransform = field(default_factory=NumberTransform)
    n_features: int = 0  # length of the feature vectors of categories; 0 for a learned table
    components: tuple[int, ...] = ()  # component (knock-out, drug) of each category of a set

    @property
    def is_number(self) -> bool:
        """Whether the condition is a number, without categories."""
        return self.kind == "number"

    @property
    def is_path(self) -> bool:
        """Whether the parts form a path in a hierarchy, which may end above a leaf."""
        return self.kind == "hierarchy"

    @property
    def is_intervention(self) -> bool:
        """Whether the condition is an intervention, such as a perturbation."""
        return self.role == "intervention"


def namespace_of(values: np.ndarray | Tensor) -> ModuleType:
    """Return NumPy for arrays and torch for tensors, without importing torch."""
    return np if isinstance(values, np.ndarray) else sys.modules["torch"]
