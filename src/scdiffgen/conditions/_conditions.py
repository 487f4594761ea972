"""The conditions of some cells, from a user's request and the registered cells to the network and back.

Every condition of a cell, whatever its kind, is a padded set of parts ``(id, value)``:

- ``category``: one slot, with an id;
- ``number``: one slot, with id 0 and the number itself;
- ``set``: the ids of the perturbations with their doses, if any, in as many slots as the largest set seen has;
- ``hierarchy``: the ids of the path from root to leaf, a slot a level.

Three things stay distinct: *padding* (``mask`` is False), *missing* (``given`` is False for the whole condition) and
*absent* (given, and no part is there: the cell is known to be a control). A value of NaN on a part that is present
means "no dose given", which is not dose 0.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Generic, NamedTuple, TypeVar

import numpy as np
import torch
from torch import Tensor

from scdiffgen._codes import Code

from ._spec import ConditionSpec

Array = TypeVar("Array", np.ndarray, Tensor)


class Condition(NamedTuple, Generic[Array]):
    """One condition of some cells: NumPy arrays beside the data, tensors in the networks."""

    ids: Array  # (cells, slots) int64; 0 where masked
    values: Array  # (cells, slots) float32, untransformed; NaN is "no dose given"; 0 where masked or unused
    mask: Array  # (cells, slots) bool; False is padding
    given: Array  # (cells,) bool; False is missing: whatever ids, values and mask hold is not looked at

    def take(self, rows: Array) -> Condition[Array]:  # type: ignore[misc]  # mypy: named tuples of constrained types
        """Some rows, in any order, also several times."""
        return Condition(*(array[rows] for array in self))

    def widened(self: Condition[np.ndarray], n_slots: int) -> Condition[np.ndarray]:  # type: ignore[misc]
        """The same with more slots, which are padding."""
        more = ((0, 0), (0, n_slots - self.ids.shape[1]))
        return Condition(np.pad(self.ids, more), np.pad(self.values, more), np.pad(self.mask, more), self.given)


class Conditions(Mapping[str, Condition[Array]]):
    """Conditions of some cells by name; it does not change, its methods return others."""

    def __init__(self, by_name: Mapping[str, Condition[Array]], n_cells: int) -> None:
        self._by_name: dict[str, Condition[Array]] = dict(by_name)
        self.n_cells = n_cells

    def __getitem__(self, name: str) -> Condition[Array]:
        return self._by_name[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._by_name)

    def __len__(self) -> int:
        """Number of conditions."""
        return len(self._by_name)

    def __repr__(self) -> str:
        return f"Conditions of {self.n_cells} cells: {', '.join(self._by_name) or 'none'}"

    @classmethod
    def concatenate(cls, batches: Sequence[Conditions[np.ndarray]]) -> Conditions[np.ndarray]:
        """Conditions of several sets of cells, one below the other; all have the same names."""
        by_name: dict[str, Condition[np.ndarray]] = {}
        for name in batches[0]:
            arrays = zip(*(batch[name] for batch in batches), strict=True)
            by_name[name] = Condition(*map(np.concatenate, arrays))
        return Conditions(by_name, sum(batch.n_cells for batch in batches))

    def take(self, rows: Array) -> Conditions[Array]:
        """Conditions of some rows, in any order, also several times."""
        return Conditions({name: condition.take(rows) for name, condition in self.items()}, len(rows))

    def replace(self, others: Mapping[str, Condition[Array]]) -> Conditions[Array]:
        """The same with some conditions replaced, or added."""
        return Conditions({**self._by_name, **others}, self.n_cells)

    def only(self, names: Collection[str]) -> Conditions[Array]:
        """Those of these names that are there."""
        return Conditions({name: condition for name, condition in self.items() if name in names}, self.n_cells)

    def without(self, names: Collection[str]) -> Conditions[Array]:
        """All but those of these names."""
        return self.only([name for name in self if name not in names])

    def given_only(self) -> Conditions[Array]:
        """Conditions that some cell is given."""
        return self.only([name for name, condition in self.items() if condition.given.any()])

    def to(self: Conditions[np.ndarray], device: torch.device) -> Conditions[Tensor]:
        """NumPy arrays as tensors on a device."""
        by_name = {
            name: Condition(*(torch.from_numpy(np.ascontiguousarray(array)).to(device) for array in condition))
            for name, condition in self.items()
        }
        return Conditions(by_name, self.n_cells)

    def numpy(self: Conditions[Tensor]) -> Conditions[np.ndarray]:
        """Tensors as NumPy arrays."""
        by_name = {name: Condition(*(array.cpu().numpy() for array in condition)) for name, condition in self.items()}
        return Conditions(by_name, self.n_cells)

    def codes(self: Conditions[np.ndarray], specs: Sequence[ConditionSpec], *, open_ended: bool = False) -> np.ndarray:
        """Read categories ``(cells, slots)``, those of interventions last; empty slots hold a :class:`Code`."""
        columns = [np.zeros((self.n_cells, 0), dtype=np.int64)]
        for spec in sorted(specs, key=lambda spec: spec.is_intervention):
            if spec.is_number:
                continue
            if spec.name in self:
                ids, _, mask, given = self[spec.name]
                # below the end of a path, levels are absent; in requests, whose paths are open-ended, missing
                beside = Code.MISSING if open_ended and spec.is_path else Code.ABSENT
                columns.append(np.where(given[:, None], np.where(mask, ids, beside), Code.MISSING))
            else:
                columns.append(np.full((self.n_cells, spec.n_slots), Code.MISSING))
        return np.concatenate(columns, axis=1)

    def split_interventions(
        self: Conditions[np.ndarray], specs: Sequence[ConditionSpec]
    ) -> tuple[np.ndarray, np.ndarray]:
        """Codes of the cell contexts ``(cells, columns)``, and those of the interventions ``(cells, slots)``."""
        codes = self.codes([spec for spec in specs if spec.is_intervention])
        return self.codes([spec for spec in specs if not spec.is_intervention]), codes

    def numbers(self: Conditions[np.ndarray], specs: Sequence[ConditionSpec]) -> np.ndarray:
        """Read numbers ``(cells, numbers)`` as the network sees them: covariates, summed doses, NaN where missing."""
        columns = []
        for spec in specs:
            if not (spec.is_number or spec.has_values):
                continue
            if spec.name in self:
                _, values, mask, given = self[spec.name]
                there = mask & np.isfinite(values)
                total = np.where(there, spec.transform(np.where(there, values, 0.0)), 0.0).sum(1)
                columns.append(np.where(given & there.any(1), total, np.nan))
            else:
                columns.append(np.full(self.n_cells, np.nan))
        return np.stack(columns, axis=1) if columns else np.zeros((self.n_cells, 0))

    def complete_from(
        self: Conditions[np.ndarray], others: Conditions[np.ndarray], rows: np.ndarray, which: Mapping[str, np.ndarray]
    ) -> Conditions[np.ndarray]:
        """Take what is missing from row ``rows[i]`` of ``others`` for cell ``i``, of each condition where ``which``."""
        completed = {}
        for name, chosen in which.items():
            here, there = self[name], others[name].take(rows)
            n_slots = max(here.ids.shape[1], there.ids.shape[1])
            parts = zip(here.widened(n_slots)[:3], there.widened(n_slots)[:3], strict=True)
            stays = (here.given | ~chosen)[:, None]
            ids, values, mask = (np.where(stays, own, taken) for own, taken in parts)
            completed[name] = Condition(ids, values, mask, here.given | (chosen & there.given))
        return self.replace(completed)

    def drop(
        self: Conditions[Tensor],
        rate: float,
        generator: torch.Generator | None = None,
        *,
        together: Collection[str] = (),
    ) -> Conditions[Tensor]:
        """Apply condition dropout: each condition of each cell becomes missing with probability ``rate``."""
        if not 0 <= rate <= 1:
            raise ValueError(f"`rate` is {rate}, but it is a probability. Pass a number between 0 and 1.")
        joint = [name for name in self if name in together]
        # for rate / 2 of the cells jointly, for the rest independently, so that each marginal probability is `rate`
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
        """Arrays by name, as they are saved with a model."""
        return {name: tuple(condition) for name, condition in self.items()}

    @classmethod
    def from_plain(cls, arrays: Mapping[str, Sequence[np.ndarray]], n_cells: int) -> Conditions[np.ndarray]:
        """Undo :meth:`to_plain`."""
        by_name: dict[str, Condition[np.ndarray]] = {name: Condition(*arrays[name]) for name in arrays}
        return Conditions(by_name, n_cells)
