"""Real cells that a perturbation report compares with: halves of every condition, and the controls of every context."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from anndata import AnnData
from scipy import sparse

from scdiffgen.metrics._differential import GeneTests, mean_expression, rank_genes
from scdiffgen.metrics._groups import split_halves
from scdiffgen.metrics._predicted import MIN_CELLS, Controls, Predicted, Target, from_expression
from scdiffgen.metrics._resampling import subsample
from scdiffgen.metrics._space import ExpressionSpace, normalise
from scdiffgen.metrics._targets import Condition, Keys, conditions_of, contexts_of
from scdiffgen.metrics._training import Vector


@dataclass(frozen=True)
class HeldOut:
    """Log expression of the two halves of every held-out condition, and the controls.

    Parameters
    ----------
    space
        What everything is mapped by.
    references
        The half that predictions are compared with, (cells, genes).
    means
        Mean expression of that half, (genes,).
    others
        The other half, the ceiling.
    controls
        Control cells of every context.
    """

    space: ExpressionSpace
    references: Mapping[Condition, sparse.csr_matrix]
    means: Mapping[Condition, Vector]
    others: Mapping[Condition, sparse.csr_matrix]
    controls: Mapping[str, Controls]

    @classmethod
    def fit(
        cls, real: AnnData, control: AnnData, space: ExpressionSpace, keys: Keys, *, max_cells: int, seed: int
    ) -> HeldOut:
        """Halve the conditions and summarise the controls; control cells in ``real`` are left out."""
        expression = space.expression(real, name="real")
        conditions = {c: rows for c, rows in conditions_of(real, keys, "real").items() if c.parts}
        if not conditions:
            raise ValueError(
                f"`real` has no perturbed cells: obs[{keys.perturbation!r}] is {keys.control!r} throughout."
            )
        contexts = contexts_of(control, keys, "control")
        lacking = sorted({c.context for c in conditions} - set(contexts))
        if lacking:
            raise ValueError(f"`control` has no cells in {', '.join(lacking)}, where `real` has perturbed cells.")
        counts = space.counts(control, name="control")
        references, others = {}, {}
        for condition, rows in conditions.items():
            first, second = split_halves(np.zeros(len(rows)), seed=seed)
            references[condition], others[condition] = expression[rows[first]], expression[rows[second]]
        wanted = sorted({c.context for c in conditions})
        controls = {c: _controls(counts[contexts == c], space, max_cells=max_cells, seed=seed) for c in wanted}
        means = {c: mean_expression(cells) for c, cells in references.items()}
        return cls(space, references, means, others, controls)

    def target(self, condition: Condition, perturbed: Vector) -> Target:
        """Collect what predictions of a condition are compared with.

        Parameters
        ----------
        condition
            The held-out condition.
        perturbed
            Mean of all perturbed cells as training cells have it, (genes,).
        """
        controls, cells = self.controls[condition.context], self.references[condition]
        few = cells.shape[0] < MIN_CELLS
        tests = GeneTests(*np.full((2, cells.shape[1]), np.nan)) if few else rank_genes(cells, controls.expression)
        siblings = [c for c in self.references if c.context == condition.context and self.references[c].shape[0]]
        responses = np.array([self.means[c] - controls.mean for c in siblings])
        own = siblings.index(condition) if condition in siblings else -1
        pcs = self.space.project(cells)
        return Target(self.means[condition], tests, pcs, controls.mean, perturbed, responses, own)

    def other_half(self, condition: Condition) -> Predicted:
        """Predict a condition by the other half of its real cells."""
        return from_expression(self.others[condition], self.space)


def _controls(counts: sparse.csr_matrix, space: ExpressionSpace, *, max_cells: int, seed: int) -> Controls:
    expression = normalise(counts)[:, space.columns]
    start = subsample(counts.shape[0], max_cells, seed)
    pcs = space.project(expression[start])
    return Controls(mean_expression(expression), expression, counts[start], expression[start], pcs)
