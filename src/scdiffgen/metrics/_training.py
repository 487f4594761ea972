"""What training cells say of a response that was held out: all baselines that apply to it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from anndata import AnnData
from numpy.typing import NDArray

from scdiffgen.metrics._baselines import additive_shift, dose_shift, linear_shift, mean_shift, nearest_shift
from scdiffgen.metrics._differential import mean_expression
from scdiffgen.metrics._space import ExpressionSpace
from scdiffgen.metrics._targets import Condition, Keys, conditions_of

Vector = NDArray[np.float64]


@dataclass(frozen=True)
class TrainingResponses:
    """Mean expression of every training condition and of the controls of every context.

    Parameters
    ----------
    means
        Mean expression of each perturbed condition, (genes,).
    controls
        Mean expression of the controls of each context, (genes,).
    genes
        Names of the genes, or ``None``.
    """

    means: Mapping[Condition, Vector]
    controls: Mapping[str, Vector]
    genes: tuple[str, ...] | None

    @classmethod
    def fit(
        cls, train: AnnData, space: ExpressionSpace, keys: Keys, held_out_controls: Mapping[str, Vector]
    ) -> TrainingResponses:
        """Average the training cells; contexts without controls among them take the held-out controls."""
        expression = space.expression(train, name="train")
        means = {c: mean_expression(expression[rows]) for c, rows in conditions_of(train, keys, "train").items()}
        controls = {**held_out_controls, **{c.context: mean for c, mean in means.items() if not c.parts}}
        perturbed = {c: mean for c, mean in means.items() if c.parts}
        lacking = sorted({c.context for c in perturbed} - set(controls))
        if lacking:
            raise ValueError(
                f"`train` has perturbed but no control cells in {', '.join(lacking)}, so that no change is defined. "
                f"Controls have obs[{keys.perturbation!r}] == {keys.control!r}; pass `control_label` if that is wrong."
            )
        genes = None if space.genes is None else tuple(str(gene) for gene in space.genes[space.columns])
        return cls(perturbed, controls, genes)

    def shift(self, condition: Condition) -> Vector:
        """Change of mean expression against the controls of the context, (genes,)."""
        return self.means[condition] - self.controls[condition.context]

    def baselines(self, target: Condition, control: Vector) -> dict[str, Vector]:
        """Every baseline change that applies to a target, (genes,) each.

        Parameters
        ----------
        target
            The condition to predict.
        control
            Mean expression of its control cells, (genes,).
        """
        here = [c for c in self.means if c.context == target.context]
        elsewhere = [c for c in self.means if c[1:] == target[1:]]  # the target itself is held out
        shifts = {"no_change": np.zeros_like(control)}
        if self.means:
            shifts["train_mean"] = mean_shift([self.shift(c) for c in here or self.means])
        if elsewhere:
            known = [self.shift(c) for c in elsewhere]
            shifts["other_contexts"] = mean_shift(known)
            shifts["nearest_context"] = nearest_shift(control, [self.controls[c.context] for c in elsewhere], known)
        singles = {c.perturbation: self.shift(c) for c in here if len(c.parts) == 1 and c.dose == target.dose}
        if len(target.parts) > 1 and set(target.parts) <= set(singles):
            shifts["additive"] = additive_shift([singles[part] for part in target.parts])
        return shifts | self._linear(target, here) | self._between_doses(target, here)

    def _linear(self, target: Condition, here: list[Condition]) -> dict[str, Vector]:
        if self.genes is None or not set(target.parts) <= set(self.genes):
            return {}
        at = {gene: i for i, gene in enumerate(self.genes)}
        known = [c for c in here if set(c.parts) <= set(at)]
        if len(known) < 2:
            return {}
        positions = [[at[gene] for gene in c.parts] for c in known]
        means, control = [self.means[c] for c in known], self.controls[target.context]
        return {"linear": linear_shift(means, control, positions, [at[gene] for gene in target.parts])}

    def _between_doses(self, target: Condition, here: list[Condition]) -> dict[str, Vector]:
        known = {c.dose: self.shift(c) for c in here if c.perturbation == target.perturbation and c.dose}
        if target.dose is None or not known:
            return {}
        return {"dose_interpolation": dose_shift(target.dose, [*known], [*known.values()])}
