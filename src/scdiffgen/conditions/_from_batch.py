"""Decode stored codes of registered cells or a minibatch to conditions."""

from collections.abc import Mapping, Sequence

from scdiffgen._codes import Code

from ._conditions import Array, Condition, Conditions
from ._spec import ConditionSpec, namespace_of


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
