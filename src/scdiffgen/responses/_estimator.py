"""Response estimator without a network, fitted to counts and labels."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain, zip_longest

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike
from scipy import sparse

from scdiffgen._arguments import check_names
from scdiffgen._codes import Code, GroupTable, Treatment
from scdiffgen._perturbation_syntax import PerturbationSyntax

from ._predictors import Prediction
from ._pseudobulks import PseudobulkSums
from ._response_predictor import ResponsePredictor

Asked = tuple[np.ndarray, Treatment]
"""Codes of a context ``(columns,)``, and its treatment."""


@dataclass(frozen=True)
class ResponseEstimator:
    """Estimate responses to treatments from counts and labels, without a network.

    Create it by :meth:`fit`. Models transfer responses by the same code.

    Parameters
    ----------
    predictor
        Response predictor for codes of contexts and interventions.
    names, contexts
        Names of interventions and contexts, in the order of their codes.

    Examples
    --------
    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> treatment = np.repeat(["control", "drug"], 100)
    >>> means = np.where(treatment[:, None] == "drug", [4.0, 50.0], [2.0, 50.0])
    >>> estimator = ResponseEstimator.fit(rng.poisson(means), treatment=treatment)
    >>> prediction = estimator.predict("drug")
    >>> bool(prediction.change[0] > 0.5), prediction.source
    (True, 'own')
    """

    predictor: ResponsePredictor = field(repr=False)
    names: Sequence[str]
    contexts: Sequence[object]
    _syntax: PerturbationSyntax = field(default=PerturbationSyntax(), repr=False)

    @classmethod
    def fit(
        cls,
        counts: ArrayLike | sparse.spmatrix,
        context: ArrayLike | None = None,
        batch: ArrayLike | None = None,
        treatment: ArrayLike | None = None,
        dose: ArrayLike | None = None,
        features: Mapping[str, ArrayLike] | None = None,
        *,
        control: str = "control",
    ) -> ResponseEstimator:
        """Fit the estimator on labelled cells.

        Parameters
        ----------
        counts
            Molecule counts, (cells, genes), dense or sparse.
        context, batch, treatment
            Labels of cells, ``(cells,)``. Parts of a combination are joined by "+".
        dose
            Doses of the treatments, ``(cells,)``; by default 1.
        features
            Feature vectors of perturbations by name, including unmeasured ones.
        control
            Treatment label of untreated cells.

        Returns
        -------
        The fitted estimator.

        Raises
        ------
        ValueError
            If lengths differ, no cell is untreated, or no group has 20 cells with equal labels.
        """
        cells = sparse.csr_matrix(counts)
        given = {"context": context, "batch": batch, "treatment": treatment, "dose": dose}
        for name, values in given.items():
            if values is not None and np.shape(values) != (n_cells := cells.shape[:1]):
                raise ValueError(f"`{name}` has shape {np.shape(values)}: pass a value for each cell, {n_cells}.")
        labels = np.full(cells.shape[0], control) if treatment is None else np.asarray(treatment).astype(str)
        if control not in labels:
            raise ValueError(f"`treatment` has no cell {control!r}: pass the label of untreated cells as `control`.")
        distinct, label_of = np.unique(labels, return_inverse=True)
        syntax = PerturbationSyntax((control.strip(),))
        parts = [syntax.perturbations(label) for label in distinct]
        names = sorted({*(features or {}), *chain.from_iterable(parts)})
        slots = [[names.index(name) for name in label] or [Code.ABSENT] for label in parts]
        interventions = np.array([*zip_longest(*slots, fillvalue=Code.ABSENT)]).T[label_of]
        doses = np.ones(len(labels)) if dose is None else np.asarray(dose, dtype=float)
        same = np.zeros(len(labels))
        contexts, context_of = np.unique(same if context is None else np.asarray(context), return_inverse=True)
        _, batch_of = np.unique(same if batch is None else np.asarray(batch), return_inverse=True)
        groups = GroupTable.of(np.column_stack([context_of, batch_of]), interventions, doses[:, None])
        sums = PseudobulkSums(groups, [1], cells.shape[1])
        if not sums.fits:
            raise ValueError("`counts` has no group of 20 cells that share their labels: pass more cells.")
        sums.add(cells)
        vectors = None if features is None else np.stack([np.asarray(features[name], dtype=float) for name in names])
        predictor = ResponsePredictor(sums.finish(), vectors, [1], ["context", "batch"], [0])
        return cls(predictor, names, contexts.tolist(), syntax)

    def predict(self, treatment: str, context: object = None, dose: float = 1.0) -> Prediction | None:
        """Predict the change of mean log expression in a context; ``None`` if no data predict it.

        Parameters
        ----------
        treatment, context, dose
            As in :meth:`fit`; the context may be omitted if there is only one.

        Returns
        -------
        The prediction. ``change`` (genes,) is the change of the mean of log(1 + counts per 10,000) at equal sequencing
        depth; ``half_width`` (genes,) is half of the 80 % interval for the change that an experiment measures, NaN
        without left-out responses; ``source`` is ``"own"``, ``"transferred"``, ``"parts"`` or ``"features"``;
        ``weights`` are the stacking weights of the predictors, which sum to 1; ``pearson`` holds the correlations of
        left-out responses with their predictions; ``gain`` is 1 minus the ratio of the squared errors of these
        predictions and of the plain mean; ``cautions`` are in words; ``log_ratio`` is the log ratio of library sizes,
        treated to untreated; ``no_source`` (genes,) marks genes whose response no data can predict.

        Raises
        ------
        ValueError
            If a label is not known.
        """
        return self.predictor.change(*self._codes(treatment, context, dose))

    def apply(
        self,
        counts: ArrayLike | sparse.spmatrix,
        treatment: str,
        context: object = None,
        dose: float = 1.0,
        *,
        seed: int = 0,
    ) -> sparse.csr_matrix:
        """Apply a predicted response to counts of untreated cells of a context.

        Parameters
        ----------
        counts
            Molecule counts of untreated cells, (cells, genes).
        treatment, context, dose
            As in :meth:`predict`.
        seed
            Random seed of the removed and added molecules.

        Returns
        -------
        Predicted counts of these cells under the treatment, ``(cells, genes)``.

        Raises
        ------
        ValueError
            If a label is not known, or no data predict the response.
        """
        cell_context, asked = self._codes(treatment, context, dose)
        response = self.predictor.respond(cell_context, {}, asked)
        if response is None:
            raise ValueError(f"`treatment` {treatment!r}: no cells predict its response in context {context!r}.")
        return response.apply(sparse.csr_matrix(counts), np.random.default_rng(seed), keep_library=False)

    def _requested_responses(self, conditions: pd.DataFrame) -> tuple[ResponsePredictor, list[Asked]]:
        """Return the predictor, and the codes of each requested context and treatment."""
        check_names("ResponseEstimator.predict", conditions, ["treatment", "context", "dose"])
        if "treatment" not in conditions:
            raise ValueError("The request lacks the column 'treatment': name the treatment of each row.")
        rows = conditions.to_dict("records")
        codes = [self._codes(row["treatment"], row.get("context"), row.get("dose", 1.0)) for row in rows]
        return self.predictor, codes

    def _codes(self, treatment: str, context: object, dose: float) -> Asked:
        """Encode a context and a treatment; raise if a label was not fitted."""
        parts = self._syntax.perturbations(treatment)
        if unknown := [part for part in parts if part not in self.names]:
            known = list(self.names) or "none, because all fitted cells are controls"
            raise ValueError(f"`treatment` has {unknown[0]!r}: choose from {known}.")
        chosen = self.contexts[0] if context is None and len(self.contexts) == 1 else context
        if chosen not in self.contexts:
            raise ValueError(f"`context` is {context!r}: choose from {list(self.contexts)}.")
        cell_context = np.array([self.contexts.index(chosen), Code.MISSING])
        return cell_context, {self.names.index(part): dose for part in parts}
