"""Syntax of perturbations and doses, such as ``"A+B"`` at ``"0.5+2.0"``."""

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from scdiffgen._messages import counted, listed

DosesByName = dict[str, float]
"""Doses by the name of the perturbation; NaN if no dose is given."""
SMALLEST_DOSE, LARGEST_DOSE = 1e-30, 1e30  # outside, squares under- or overflow in single precision
MOST_PARTS = 100  # maximum parts of a combination, because each of the 4,950 pairs is an interaction term


@dataclass(frozen=True)
class PerturbationSyntax:
    """Syntax of perturbations: names of controls, and the separator between parts."""

    control: tuple[str, ...] = ("control",)
    separator: str = "+"

    def __post_init__(self) -> None:
        if not self.control:
            raise ValueError("`control` names nothing. Pass the name of the control, such as `control='ctrl'`.")
        if not self.separator or not self.separator.strip():
            raise ValueError(f"`perturbation_sep` must be a visible character, got {self.separator!r}.")

    def parse(self, text: object, dose: Any = None) -> DosesByName:  # `dose`: number, "0.5+2.0", mapping or None
        """Parse ``"A"``, ``"A+B"`` or a control into doses by name, in any order; NaN without a dose."""
        names = self.split(text)
        if "" in names and "" not in self.control:
            raise ValueError(f"a part is empty; write the parts with one {self.separator!r} between them")
        if isinstance(dose, Mapping):
            return self._canonical(names, _doses_by_name(names, dose, self.control))
        return self._canonical(names, self._aligned(dose, names))

    def combine(self, names: Sequence[object], doses: Sequence[Any]) -> DosesByName:
        """Parse an entry with one column per part; ``None`` or an empty text is no part."""
        given_names, given_doses = [], []
        for name, dose in zip(names, doses, strict=True):
            value = dose_number(dose)
            stripped = "" if pd.isna(name) else str(name).strip()
            if not stripped and "" not in self.control:
                if _is_given(value):
                    raise ValueError(f"dose {value:g} is given in a column without a perturbation")
                continue
            if self.separator in stripped and stripped not in self.control:
                raise ValueError(f"the name {stripped!r} holds the separator.{self.advice(stripped)}")
            given_names.append(stripped)
            given_doses.append(value)
        if not given_names:
            raise ValueError(f"neither a perturbation nor a control is named; write {self.control[0]!r} for a control")
        return self._canonical(given_names, given_doses)

    def name(self, treatment: DosesByName) -> str:
        """Join names by the separator; the name of the first control if there is none."""
        return self.separator.join(treatment) if treatment else self.control[0]

    def split(self, text: object) -> list[str]:
        """Split into parts in order, including controls; raise if the separator belongs to a name."""
        parts = self.parts(text)
        unbalanced = [part for part in parts if not _is_balanced(part)]
        if len(parts) > 1 and unbalanced:
            raise ValueError(f"the part {unbalanced[0]!r} has unbalanced brackets.{self.advice(text)}")
        return parts

    def parts(self, text: object) -> list[str]:
        """Split at each separator, except in the name of a control; parts are in order and not checked."""
        whole = str(text).strip()
        return [whole] if whole in self.control else [name.strip() for name in whole.split(self.separator)]

    def perturbations(self, text: object) -> list[str]:
        """Split like :meth:`parts`, and leave out controls."""
        return [name for name in self.parts(text) if name not in self.control]

    def advice(self, *texts: object) -> str:
        """Explain how to write names that contain the separator; empty if no text contains it."""
        joined = " ".join(map(str, texts))
        if self.separator not in joined:
            return ""
        other = next((mark for mark in ("&", "|", ";") if mark not in joined), "&&")
        return (
            f" If {self.separator!r} belongs to a name, register the cells with another separator, "
            f"`perturbation_sep={other!r}` or any visible text that occurs in no name."
        )

    def _aligned(self, dose: Any, names: list[str]) -> list[float]:
        """Split doses and align them to names: a single dose holds for all names, and controls need no dose."""
        between = rf"(?<![\d.][eE]){re.escape(self.separator)}"  # the sign in an exponent ("1e+3") is no separator
        doses = [dose_number(part) for part in (re.split(between, dose) if isinstance(dose, str) else [dose])]
        treated = [name not in self.control for name in names]
        if len(doses) == len(names):
            return doses
        if len(doses) == 1 and (math.isnan(doses[0]) or not any(treated)):
            return doses * len(names)
        if len(doses) == sum(treated):
            remaining = iter(doses)
            return [next(remaining) if is_treated else math.nan for is_treated in treated]
        raise ValueError(
            f"{counted(len(doses), 'dose')} for {counted(len(names), 'perturbation')} ({listed(names)}); give a dose "
            f"for each, as in {self.separator.join(['0.5'] * max(2, len(names)))!r}"
        )

    def _canonical(self, names: Sequence[str], doses: Sequence[float]) -> DosesByName:
        treatment: DosesByName = {}
        if len(names) > MOST_PARTS:
            raise ValueError(
                f"{len(names):,} perturbations in one combination; at most {MOST_PARTS} are modelled. Leave such cells "
                "out, or name only the perturbations that matter"
            )
        for name, dose in sorted(zip(names, doses, strict=True), key=lambda pair: pair[0]):
            if name in self.control:
                if _is_given(dose):
                    raise ValueError(f"dose {dose:g} of the control {name!r}; a control has dose 0, or none")
                continue
            if name in treatment:
                raise ValueError(f"{name!r} occurs twice; name it once, at its whole dose")
            if dose < 0 or math.isinf(dose):
                raise ValueError(f"dose {dose:g} of {name!r}; doses are finite and at least 0")
            if dose and not math.isnan(dose) and not SMALLEST_DOSE <= dose <= LARGEST_DOSE:
                raise ValueError(
                    f"dose {dose:g} of {name!r}; doses are 0 or {SMALLEST_DOSE:g} to {LARGEST_DOSE:g}: write them in "
                    "another unit"
                )
            treatment[name] = dose
        return treatment


def _is_balanced(name: str) -> bool:
    """Test whether brackets are balanced, by removing innermost pairs."""
    brackets = re.sub(r"[^][(){}]", "", name)
    while (outer := re.sub(r"\(\)|\[\]|\{\}", "", brackets)) != brackets:
        brackets = outer
    return not brackets


def _is_given(dose: float) -> bool:
    return not math.isnan(dose) and dose != 0


def dose_number(dose: Any) -> float:
    """Convert a dose to a number (-0 becomes 0); NaN if there is none."""
    try:
        if dose is None or dose is pd.NA or (isinstance(dose, str) and not dose.strip()):
            return math.nan
        if isinstance(dose, bool | np.bool_) or (isinstance(dose, str) and "_" in dose):
            raise ValueError
        return float(dose) + 0.0
    except (TypeError, ValueError):
        raise ValueError(f"dose {dose!r} is no number; write the unit in `dose_unit`, not beside the number") from None


def _doses_by_name(names: Sequence[str], doses: Mapping[object, Any], control: Sequence[str]) -> list[float]:
    by_name = {str(name).strip(): dose_number(dose) for name, dose in doses.items()}
    unknown = [name for name in by_name if name not in names and name not in control]
    if unknown:
        raise ValueError(f"a dose is given of {listed(unknown)}, but the perturbation is {listed(names)}")
    return [by_name.get(name, math.nan) for name in names]
