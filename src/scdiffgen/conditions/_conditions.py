"""Numeric form of conditions, from requests and registered cells to the network and back.

A condition of any kind is a padded set of parts ``(id, value)`` per cell:

- ``category``: one slot with an id;
- ``number``: one slot with id 0 and the number;
- ``set``: the ids of the perturbations with their doses, if any, in as many slots as the largest registered set has;
- ``hierarchy``: the ids of the path from root to leaf, one slot per level.

Three cases are distinct: *padding* (``mask`` is False), *missing* (``given`` is False for the whole condition) and
*absent* (given without a part: the cell is known to be a control). The value NaN on a present part means "no dose
given", which differs from dose 0.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Generic, Literal, NamedTuple, TypeVar

import numpy as np
import torch
from torch import Tensor

from scdiffgen._codes import Code, GroupTable

if TYPE_CHECKING:
    from types import ModuleType

ConditionKind = Literal["category", "number", "set", "hierarchy"]
ConditionRole = Literal["context", "intervention"]
TransformKind = Literal["identity", "log1p", "standardise"]

Array = TypeVar("Array", np.ndarray, Tensor)


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
        return self.kind == "number"

    @property
    def is_path(self) -> bool:
        """Whether the parts form a path in a hierarchy, which may end above a leaf."""
        return self.kind == "hierarchy"

    @property
    def is_intervention(self) -> bool:
        return self.role == "intervention"


def namespace_of(values: np.ndarray | Tensor) -> ModuleType:
    """Return NumPy for arrays and torch for tensors, without importing torch."""
    return np if isinstance(values, np.ndarray) else sys.modules["torch"]


class Condition(NamedTuple, Generic[Array]):
    """One condition of cells, as NumPy arrays (data) or tensors (networks)."""

    ids: Array  # (cells, slots) int64; 0 where masked
    values: Array  # (cells, slots) float32, untransformed; NaN is "no dose given"; 0 where masked or unused
    mask: Array  # (cells, slots) bool; False is padding
    given: Array  # (cells,) bool; False is missing: ids, values and mask are ignored

    def take(self, rows: Array) -> Condition[Array]:  # type: ignore[misc]  # mypy: named tuples of constrained types
        return Condition(*(array[rows] for array in self))

    def widened(self: Condition[np.ndarray], n_slots: int) -> Condition[np.ndarray]:  # type: ignore[misc]
        more = ((0, 0), (0, n_slots - self.ids.shape[1]))
        return Condition(np.pad(self.ids, more), np.pad(self.values, more), np.pad(self.mask, more), self.given)


class Conditions(Mapping[str, Condition[Array]]):
    """Immutable mapping from names to conditions of cells."""

    def __init__(self, by_name: Mapping[str, Condition[Array]], n_cells: int) -> None:
        self._by_name: dict[str, Condition[Array]] = dict(by_name)
        self.n_cells = n_cells

    def __getitem__(self, name: str) -> Condition[Array]:
        return self._by_name[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._by_name)

    def __len__(self) -> int:
        return len(self._by_name)

    def __repr__(self) -> str:
        return f"Conditions of {self.n_cells} cells: {', '.join(self._by_name) or 'none'}"

    @classmethod
    def concatenate(cls, batches: Sequence[Conditions[np.ndarray]]) -> Conditions[np.ndarray]:
        """Concatenate conditions of several sets of cells, with equal names."""
        by_name: dict[str, Condition[np.ndarray]] = {}
        for name in batches[0]:
            arrays = zip(*(batch[name] for batch in batches), strict=True)
            by_name[name] = Condition(*map(np.concatenate, arrays))
        return Conditions(by_name, sum(batch.n_cells for batch in batches))

    def take(self, rows: Array) -> Conditions[Array]:
        return Conditions({name: condition.take(rows) for name, condition in self.items()}, len(rows))

    def replace(self, others: Mapping[str, Condition[Array]]) -> Conditions[Array]:
        return Conditions({**self._by_name, **others}, self.n_cells)

    def only(self, names: Collection[str]) -> Conditions[Array]:
        return Conditions({name: condition for name, condition in self.items() if name in names}, self.n_cells)

    def without(self, names: Collection[str]) -> Conditions[Array]:
        return self.only([name for name in self if name not in names])

    def given_only(self) -> Conditions[Array]:
        """Select conditions that are given for at least one cell."""
        return self.only([name for name, condition in self.items() if condition.given.any()])

    def to(self: Conditions[np.ndarray], device: torch.device) -> Conditions[Tensor]:
        """Convert NumPy arrays to tensors on a device."""
        by_name = {
            name: Condition(*(torch.from_numpy(np.ascontiguousarray(array)).to(device) for array in condition))
            for name, condition in self.items()
        }
        return Conditions(by_name, self.n_cells)

    def numpy(self: Conditions[Tensor]) -> Conditions[np.ndarray]:
        by_name = {name: Condition(*(array.cpu().numpy() for array in condition)) for name, condition in self.items()}
        return Conditions(by_name, self.n_cells)

    def codes(self: Conditions[np.ndarray], specs: Sequence[ConditionSpec], *, open_ended: bool = False) -> np.ndarray:
        """Return category codes ``(cells, slots)``, interventions last; empty slots hold a :class:`Code`."""
        columns = [np.zeros((self.n_cells, 0), dtype=np.int64)]
        for spec in sorted(specs, key=lambda spec: spec.is_intervention):
            if spec.is_number:
                continue
            if spec.name in self:
                ids, _, mask, given = self[spec.name]
                # levels below the end of a path are absent, or missing in requests with open-ended paths
                empty = Code.MISSING if open_ended and spec.is_path else Code.ABSENT
                columns.append(np.where(given[:, None], np.where(mask, ids, empty), Code.MISSING))
            else:
                columns.append(np.full((self.n_cells, spec.n_slots), Code.MISSING))
        return np.concatenate(columns, axis=1)

    def groups(self: Conditions[np.ndarray], specs: Sequence[ConditionSpec], *, open_ended: bool = False) -> GroupTable:
        """Return contexts and treatments of the cells; ids of several interventions follow one another."""
        codes, doses = [np.zeros((self.n_cells, 0), np.int64)], [np.zeros((self.n_cells, 0))]
        n_before = 0
        for spec in (spec for spec in specs if spec.is_intervention):
            own = self.codes([spec])
            has_doses = spec.has_values and spec.name in self
            codes.append(np.where(own >= 0, own + n_before, own))
            doses.append(np.where(own >= 0, self[spec.name].values if has_doses else np.nan, 0.0))
            n_before += spec.n_categories
        context = self.codes([spec for spec in specs if not spec.is_intervention], open_ended=open_ended)
        return GroupTable.of(context, np.concatenate(codes, axis=1), np.concatenate(doses, axis=1))

    def numbers(self: Conditions[np.ndarray], specs: Sequence[ConditionSpec]) -> np.ndarray:
        """Return transformed numbers ``(cells, numbers)``: covariates and summed doses, NaN where missing."""
        columns = []
        for spec in specs:
            if not (spec.is_number or spec.has_values):
                continue
            if spec.name in self:
                _, values, mask, given = self[spec.name]
                has_value = mask & np.isfinite(values)
                total = np.where(has_value, spec.transform(np.where(has_value, values, 0.0)), 0.0).sum(1)
                columns.append(np.where(given & has_value.any(1), total, np.nan))
            else:
                columns.append(np.full(self.n_cells, np.nan))
        return np.stack(columns, axis=1) if columns else np.zeros((self.n_cells, 0))

    def complete_from(
        self: Conditions[np.ndarray], others: Conditions[np.ndarray], rows: np.ndarray, which: Mapping[str, np.ndarray]
    ) -> Conditions[np.ndarray]:
        """Fill missing conditions of cell ``i`` from row ``rows[i]`` of ``others``, if ``which`` allows it."""
        completed = {}
        for name, chosen in which.items():
            own, other = self[name], others[name].take(rows)
            n_slots = max(own.ids.shape[1], other.ids.shape[1])
            parts = zip(own.widened(n_slots)[:3], other.widened(n_slots)[:3], strict=True)
            stays = (own.given | ~chosen)[:, None]
            ids, values, mask = (np.where(stays, *pair) for pair in parts)
            completed[name] = Condition(ids, values, mask, own.given | (chosen & other.given))
        return self.replace(completed)

    def drop(
        self: Conditions[Tensor], rate: float, generator: torch.Generator | None = None, together: Collection[str] = ()
    ) -> Conditions[Tensor]:
        """Apply condition dropout: each condition of each cell becomes missing with probability ``rate``."""
        if not 0 <= rate <= 1:
            raise ValueError(f"`rate` is {rate}, but it is a probability. Pass a number between 0 and 1.")
        joint = [name for name in self if name in together]
        # jointly for rate / 2 of the cells, independently otherwise, so that each marginal probability is `rate`
        joint_rate = rate / 2 if len(joint) > 1 else 0.0
        single_rate = (rate - joint_rate) / (1 - joint_rate)

        def kept(given: Tensor, rate: float) -> Tensor:
            device = given.device if generator is None else generator.device
            return (torch.rand(given.shape, generator=generator, device=device) >= rate).to(given.device)

        joint_kept = kept(self[joint[0]].given, joint_rate) if joint_rate else True
        remaining = {}
        for name, condition in self.items():
            given = condition.given & kept(condition.given, single_rate if name in joint else rate)
            remaining[name] = condition._replace(given=given & joint_kept if name in joint else given)
        return Conditions(remaining, self.n_cells)

    def to_plain(self: Conditions[np.ndarray]) -> dict[str, tuple[np.ndarray, ...]]:
        """Convert to arrays by name, for saving with a model."""
        return {name: tuple(condition) for name, condition in self.items()}

    @classmethod
    def from_plain(cls, arrays: Mapping[str, Sequence[np.ndarray]], n_cells: int) -> Conditions[np.ndarray]:
        """Undo :meth:`to_plain`."""
        by_name: dict[str, Condition[np.ndarray]] = {name: Condition(*arrays[name]) for name in arrays}
        return Conditions(by_name, n_cells)


def conditions_from_batch(tensors: Mapping[str, Array], specs: Sequence[ConditionSpec]) -> Conditions[Array]:
    """Decode codes ``(cells, columns)`` by registry key (integers or whole floats; :class:`Code` if negative)."""
    readers = {"category": _category, "number": _number, "set": _set, "hierarchy": _hierarchy}
    by_name = {spec.name: readers[spec.kind](tensors[spec.registry_key], spec) for spec in specs}
    return Conditions(by_name, len(next(iter(tensors.values()))) if tensors else 0)


def _category(codes: Array, spec: ConditionSpec) -> Condition[Array]:
    return _hierarchy(codes[:, spec.column : spec.column + 1], spec)


def _hierarchy(codes: Array, spec: ConditionSpec) -> Condition[Array]:
    xp = namespace_of(codes)
    ids = xp.asarray(codes, dtype=xp.int64)
    mask = ids >= 0
    return Condition(ids.clip(0), xp.zeros_like(ids, dtype=xp.float32), mask, mask[:, 0])


def _number(numbers: Array, spec: ConditionSpec) -> Condition[Array]:
    xp = namespace_of(numbers)
    values = xp.asarray(numbers[:, spec.column : spec.column + 1], dtype=xp.float32)
    mask = ~xp.isnan(values)
    return Condition(xp.zeros_like(mask, dtype=xp.int64), xp.nan_to_num(values, nan=0.0), mask, mask[:, 0])


def _set(ids_and_doses: Array, spec: ConditionSpec) -> Condition[Array]:
    xp = namespace_of(ids_and_doses)
    n_slots = ids_and_doses.shape[1] // 2
    ids = xp.asarray(ids_and_doses[:, :n_slots], dtype=xp.int64)
    doses = xp.asarray(ids_and_doses[:, n_slots:], dtype=xp.float32)
    mask = ids >= 0
    return Condition(ids.clip(0), doses * mask, mask, ids[:, 0] != Code.MISSING)


class MixedConditions(Conditions[Array]):
    """Conditions of cells between a start (weight 0) and an end (weight 1); all embeddings are mixed linearly."""

    start: Conditions[Array]
    end: Conditions[Array]

    def __init__(self, start: Conditions[Array], end: Conditions[Array], weight: float) -> None:
        super().__init__(start, start.n_cells)  # type: ignore[arg-type]  # mypy: subclasses of constrained types
        self.start, self.end, self.weight = start, end, weight

    def mix(self: MixedConditions[Tensor], embed: Callable[[Conditions[Tensor]], Tensor]) -> Tensor:
        """Interpolate what is computed from the start and from the end; exact at both."""
        return torch.lerp(embed(self.start), embed(self.end), self.weight)

    def take(self, rows: Array) -> MixedConditions[Array]:
        return MixedConditions(self.start.take(rows), self.end.take(rows), self.weight)

    def to(self: MixedConditions[np.ndarray], device: torch.device) -> MixedConditions[Tensor]:
        return MixedConditions(self.start.to(device), self.end.to(device), self.weight)

    def only(self, names: Collection[str]) -> MixedConditions[Array]:
        return MixedConditions(self.start.only(names), self.end.only(names), self.weight)

    def without(self, names: Collection[str]) -> MixedConditions[Array]:
        return MixedConditions(self.start.without(names), self.end.without(names), self.weight)

    def replace(self, others: Mapping[str, Condition[Array]]) -> MixedConditions[Array]:
        start, end = (others.start, others.end) if isinstance(others, MixedConditions) else (others, others)
        return MixedConditions(self.start.replace(start), self.end.replace(end), self.weight)
