"""Held-out perturbation responses, and baseline predictions from training cells."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import pandas as pd
from anndata import AnnData
from numpy.typing import NDArray

from scdiffgen._log_normalise import log_normalise
from scdiffgen._messages import did_you_mean, listed
from scdiffgen._names import check_column
from scdiffgen._perturbation_syntax import PerturbationSyntax
from scdiffgen.metrics.baselines import context_shift, dose_shift, linear_shift

from ._comparison import Sample, Settings
from ._input import labels_of, obs_column
from ._resampling import split_halves, subsample
from ._response import Vector, mean_change, mean_expression
from ._space import ExpressionSpace

ONE_CONTEXT = "all"


class Arm(NamedTuple):
    """A treatment in a context; ``"B+A"`` equals ``"A+B"``, and the control is ``""``."""

    context: str
    perturbation: str
    dose: float | None

    @property
    def parts(self) -> tuple[str, ...]:
        return tuple(self.perturbation.split(PerturbationSyntax.separator)) if self.perturbation else ()

    def __str__(self) -> str:
        dose = "" if self.dose is None else f" at {self.dose:g}"
        where = "" if self.context == ONE_CONTEXT else f" in {self.context}"
        return f"{self.perturbation or 'control'}{dose}{where}"


class Keys(NamedTuple):
    """Columns of ``obs`` with the condition of a cell, and the labels of control cells."""

    perturbation: str
    context: str | None
    dose: str | None
    control: tuple[str, ...]

    def controls(self, cells: AnnData) -> Keys:
        """Check the labels of control cells against ``control``, or read them from it."""
        known = np.unique(labels_of(cells, self.perturbation, "control", "perturbation_key").astype(str))
        absent = [name for name in self.control if name not in known]
        if absent:
            raise ValueError(
                f"`control_label` is {listed(absent)}, but no cell of `control` has this "
                f"obs[{self.perturbation!r}]: they have {listed(known)}.{did_you_mean(absent[0], known)}"
            )
        if not self.control and len(known) > 1:
            raise ValueError(
                f"`control` has cells of {listed(known)} in obs[{self.perturbation!r}]. Pass the label of untreated "
                "cells as `control_label`."
            )
        return self._replace(control=self.control or tuple(known))

    def check_predicted(self, cells: Iterable[Arm], name: str, real: set[Arm], train: set[Arm]) -> None:
        """Raise if predicted cells have unknown labels, or no condition of ``real``."""
        predicted = set(cells)
        for key, field in ((self.perturbation, "perturbation"), (self.context, "context")):
            known = {getattr(condition, field) for condition in real | train}
            unknown = sorted({getattr(condition, field) for condition in predicted} - known - {""})
            if unknown:
                raise ValueError(
                    f"obs[{key!r}] of `{name}` is {listed(unknown)}, which is in neither `real` nor `train`: they have "
                    f"{listed(sorted(known - {''}))}.{did_you_mean(unknown[0], known)}"
                )
        if not predicted & real:
            raise ValueError(
                f"`{name}` has no cells of the conditions of `real` ({listed(map(str, sorted(real)))}), but of "
                f"{listed(map(str, sorted(predicted)))}. Label predicted cells like the real cells that they predict."
            )

    def contexts(self, cells: AnnData, name: str) -> NDArray:
        if self.context is None:
            return np.full(cells.n_obs, ONE_CONTEXT, dtype=object)
        return labels_of(cells, self.context, name, "context_key")

    def conditions(self, cells: AnnData, name: str) -> dict[Arm, NDArray[np.intp]]:
        """Return positions of the cells of each condition; doses of controls are ignored."""
        raw = labels_of(cells, self.perturbation, name, "perturbation_key")
        names = {text: self._canonical(text) for text in np.unique(raw.astype(str))}
        perturbations = np.array([names[text] for text in raw], dtype=object)
        doses = self._doses(cells, name, treated=perturbations != "")
        frame = pd.DataFrame({"context": self.contexts(cells, name), "perturbation": perturbations, "dose": doses})
        groups = frame.groupby(["context", "perturbation", "dose"], sort=True, dropna=False).indices
        return {Arm(c, p, None if np.isnan(d) else float(d)): np.asarray(at) for (c, p, d), at in groups.items()}

    def _canonical(self, perturbation: str) -> str:
        syntax = PerturbationSyntax(self.control)
        return syntax.separator.join(sorted(syntax.perturbations(perturbation)))

    def _doses(self, cells: AnnData, name: str, *, treated: NDArray[np.bool_]) -> Vector:
        if self.dose is None:
            return np.full(cells.n_obs, np.nan)
        check_column(self.dose, "dose_key")
        column = obs_column(cells, self.dose, name)
        doses = pd.to_numeric(column, errors="coerce").to_numpy(dtype=np.float64)
        wrong = treated & ~(doses >= 0)
        if wrong.any():
            raise ValueError(
                f"obs[{self.dose!r}] of `{name}` is no dose for {int(wrong.sum())} treated cells (first: "
                f"{column.iloc[int(np.argmax(wrong))]!r}). Give every treated cell one number, 0 or more."
            )
        return np.where(treated, doses, np.nan)


class Controls(NamedTuple):
    """Real control cells of a context, at some sequencing depth, and the cells that baselines start from."""

    cells: Sample
    names: pd.Index
    mean: Vector
    halves: tuple[Vector, Vector]  # means of disjoint halves: references of predicted and of real changes
    second: pd.Index  # names of the cells of the second half
    start: Sample
    start_in_first: NDArray[np.bool_]  # whether each start cell is in the first half

    @classmethod
    def of(cls, cells: Sample, names: pd.Index, settings: Settings) -> Controls:
        """Average the cells and their halves, and draw start cells; these rows do not depend on the depth."""
        expression, n = cells.expression, len(names)
        first, second = split_halves(np.zeros(n), seed=settings.seed)
        halves = mean_expression(expression[first]), mean_expression(expression[second])
        start = subsample(n, settings.max_cells, settings.seed)
        mean, in_first = mean_expression(expression), np.isin(start, first)
        return cls(cells, names, mean, halves, names[second], cells.take(start), in_first)

    def at(self, depth: float, space: ExpressionSpace, settings: Settings) -> Controls:
        cells = self.cells.thinned(space, depth, [settings.seed, 0])
        return self if cells is self.cells else Controls.of(cells, self.names, settings)


@dataclass(frozen=True)
class HeldOut:
    """Two halves of the cells of each held-out condition, at the lower depth of both arms, and controls of contexts."""

    references: Mapping[Arm, Sample]  # the half that predictions are compared with
    means: Mapping[Arm, Vector]  # mean expression of the references
    changes: Mapping[Arm, Vector]  # of the means, from the controls at equal depth
    others: Mapping[Arm, Sample]  # the other half, for the real-versus-real ceiling
    controls: Mapping[str, Controls]  # at their measured depth
    depths: Mapping[Arm, tuple[float, float]]  # measured mean library sizes of treated and control cells

    @classmethod
    def fit(cls, real: AnnData, control: AnnData, space: ExpressionSpace, keys: Keys, settings: Settings) -> HeldOut:
        """Halve the conditions and summarise the controls; control cells in ``real`` are ignored."""
        control = control[np.concatenate([r for c, r in keys.conditions(control, "control").items() if not c.parts])]
        perturbed = Sample.of(space, real, "real")
        conditions = {c: rows for c, rows in keys.conditions(real, "real").items() if c.parts}
        if not conditions:
            raise ValueError(
                f"`real` has no perturbed cells: obs[{keys.perturbation!r}] is {listed(keys.control)} throughout."
            )
        contexts, wanted = keys.contexts(control, "control"), sorted({c.context for c in conditions})
        lacking = sorted(set(wanted) - set(contexts))
        if lacking:
            raise ValueError(f"`control` has no cells in {', '.join(lacking)}, where `real` has perturbed cells.")
        whole, controls = Sample.of(space, control, "control"), {}
        for context in wanted:
            rows = np.flatnonzero(contexts == context)
            controls[context] = Controls.of(whole.take(rows), control.obs_names[rows], settings)
        references, means, changes, others, depths = {}, {}, {}, {}, {}
        for condition, rows in conditions.items():
            cells, untreated = perturbed.take(rows), controls[condition.context]
            depths[condition] = cells.depth, untreated.cells.depth
            cells = cells.thinned(space, min(depths[condition]), [settings.seed, 1])
            first, second = split_halves(np.zeros(len(rows)), seed=settings.seed)
            references[condition], others[condition] = cells.take(first), cells.take(second)
            means[condition] = mean_expression(references[condition].expression)
            changes[condition] = means[condition] - untreated.at(min(depths[condition]), space, settings).mean
        return cls(references, means, changes, others, controls, depths)

    def responses(self, condition: Arm) -> tuple[NDArray[np.float64], int]:
        """Return changes of all conditions of the context, (conditions, genes), and the row of this condition."""
        siblings = [c for c, cells in self.references.items() if c.context == condition.context and len(cells.pcs)]
        changes = np.array([self.changes[c] for c in siblings])
        return changes, siblings.index(condition) if condition in siblings else -1


@dataclass(frozen=True)
class TrainingResponses:
    """Changes of mean expression of each training condition, and mean expression of the controls of each context."""

    shifts: Mapping[Arm, Vector]
    controls: Mapping[str, Vector]
    genes: tuple[str, ...]  # gene names; empty if unknown

    @classmethod
    def fit(cls, train: AnnData, space: ExpressionSpace, keys: Keys, held_out: HeldOut, seed: int) -> TrainingResponses:
        """Compute changes at equal depth; contexts without training controls use the held-out controls."""
        counts, groups = space.counts(train, name="train"), keys.conditions(train, "train")
        controls = {context: cells.cells.counts for context, cells in held_out.controls.items()}
        controls |= {c.context: counts[rows] for c, rows in groups.items() if not c.parts}
        perturbed = {c: rows for c, rows in groups.items() if c.parts}
        lacking = sorted({c.context for c in perturbed} - set(controls))
        if lacking:
            raise ValueError(
                f"`train` has perturbed but no control cells in {', '.join(lacking)}, so no change is defined. "
                f"The label of controls in obs[{keys.perturbation!r}] is {listed(keys.control)}; pass `control_label` "
                "if that is wrong."
            )
        leaked = [str(condition) for condition in held_out.references if condition in perturbed]
        if leaked:
            raise ValueError(
                f"`train` holds {len(leaked)} of {len(held_out.references)} conditions of `real`: "
                f"{', '.join(leaked[:5])}. Score conditions without training cells; 'A+B' and 'B+A' are the same."
            )
        means = {context: mean_expression(log_normalise(of, dtype=np.float32)) for context, of in controls.items()}
        shifts = {
            c: mean_change(counts[rows], controls[c.context], means[c.context], seed) for c, rows in perturbed.items()
        }
        genes = () if space.genes is None else tuple(str(gene) for gene in space.genes)
        return cls(shifts, means, genes)

    @property
    def conditions(self) -> set[Arm]:
        return {*self.shifts, *(Arm(context, "", None) for context in self.controls)}

    def baselines(self, target: Arm, control: Vector) -> dict[str, Vector]:
        """Compute all applicable baseline changes of a target, given the mean ``control`` of its control cells."""
        siblings = [c for c in self.shifts if c.context == target.context]
        elsewhere = [c for c in self.shifts if c[1:] == target[1:]]  # excludes the target, which is held out
        shifts = {"no_change": np.zeros_like(control)}
        if self.shifts:
            shifts["train_mean"] = np.mean([self.shifts[c] for c in siblings or self.shifts], axis=0)
        if elsewhere:
            measured = [self.shifts[c] for c in elsewhere]
            shifts["other_contexts"] = np.mean(measured, axis=0)
            distances = [np.linalg.norm(self.controls[c.context] - control) for c in elsewhere]
            shifts["nearest_context"] = measured[int(np.argmin(distances))]
            shifts["similar_contexts"] = context_shift(control, [self.controls[c.context] for c in elsewhere], measured)
        singles = {c.perturbation: self.shifts[c] for c in siblings if len(c.parts) == 1 and c.dose == target.dose}
        if len(target.parts) > 1 and set(target.parts) <= set(singles):
            shifts["additive"] = np.sum([singles[part] for part in target.parts], axis=0)
        at = {gene: i for i, gene in enumerate(self.genes)}
        gene_targets = [c for c in siblings if set(c.parts) <= set(at)]
        if set(target.parts) <= set(at) and len(gene_targets) > 1:
            positions = [[at[gene] for gene in c.parts] for c in gene_targets]
            untreated, wanted = self.controls[target.context], [at[gene] for gene in target.parts]
            shifts["linear"] = linear_shift(
                [untreated + self.shifts[c] for c in gene_targets], untreated, positions, wanted
            )
        doses = {c.dose: self.shifts[c] for c in siblings if c.perturbation == target.perturbation and c.dose}
        if target.dose is not None and doses:
            shifts["dose_interpolation"] = dose_shift(target.dose, [*doses], [*doses.values()])
        return shifts
