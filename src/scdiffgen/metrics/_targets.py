"""Which cells got which treatment in which context, in one canonical form."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pandas as pd
from anndata import AnnData
from numpy.typing import NDArray

from scdiffgen._names import check_column
from scdiffgen.metrics._input import labels_of

ONE_CONTEXT = "all"


class Condition(NamedTuple):
    """A treatment in a context; ``"B+A"`` and ``"A+B"`` are one, and the control is ``""``."""

    context: str
    perturbation: str
    dose: float | None

    @property
    def parts(self) -> tuple[str, ...]:
        """The parts of a combination; none for the control."""
        return tuple(self.perturbation.split("+")) if self.perturbation else ()

    def __str__(self) -> str:
        """Name the condition as messages do."""
        dose = "" if self.dose is None else f" at {self.dose:g}"
        where = "" if self.context == ONE_CONTEXT else f" in {self.context}"
        return f"{self.perturbation or 'control'}{dose}{where}"


class Keys(NamedTuple):
    """Columns of ``obs`` that tell the condition of a cell, and the name of the control."""

    perturbation: str
    context: str | None
    dose: str | None
    control: str


def canonical(perturbation: str, control: str) -> str:
    """Sort the parts of a combination and leave out controls."""
    return "+".join(sorted(part.strip() for part in perturbation.split("+") if part.strip() != control))


def conditions_of(cells: AnnData, keys: Keys, name: str) -> dict[Condition, NDArray[np.intp]]:
    """Positions of the cells of every condition; of controls, doses are not looked at."""
    contexts = contexts_of(cells, keys, name)
    raw = labels_of(cells, keys.perturbation, name, "perturbation_key")
    names = {text: canonical(text, keys.control) for text in np.unique(raw.astype(str))}
    perturbations = np.array([names[text] for text in raw], dtype=object)
    doses = _doses(cells, keys.dose, name, treated=perturbations != "")
    frame = pd.DataFrame({"context": contexts, "perturbation": perturbations, "dose": doses})
    groups = frame.groupby(["context", "perturbation", "dose"], sort=True, dropna=False).indices
    return {Condition(c, p, None if np.isnan(d) else float(d)): np.asarray(rows) for (c, p, d), rows in groups.items()}


def contexts_of(cells: AnnData, keys: Keys, name: str) -> NDArray:
    """Context of every cell; without a key, one for all."""
    return (
        np.full(cells.n_obs, ONE_CONTEXT, dtype=object)
        if keys.context is None
        else labels_of(cells, keys.context, name, "context_key")
    )


def _doses(cells: AnnData, key: str | None, name: str, *, treated: NDArray[np.bool_]) -> NDArray[np.float64]:
    if key is None:
        return np.full(cells.n_obs, np.nan)
    check_column(key, "dose_key")
    if key not in cells.obs:
        raise ValueError(f"`{name}` has no obs column {key!r}; it has {list(cells.obs.columns)}.")
    doses = pd.to_numeric(cells.obs[key], errors="coerce").to_numpy(dtype=np.float64)
    wrong = treated & ~(doses >= 0)
    if wrong.any():
        raise ValueError(
            f"obs[{key!r}] of `{name}` is no dose for {int(wrong.sum())} treated cells (first: "
            f"{cells.obs[key].iloc[int(np.argmax(wrong))]!r}). Give every treated cell one number, 0 or more."
        )
    return np.where(treated, doses, np.nan)
