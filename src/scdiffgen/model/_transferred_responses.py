"""Transfer of responses to cells: look-up by condition, and application to counts."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np
import pandas as pd
import torch
from scipy import sparse
from torch import Tensor

from scdiffgen._messages import warn_user
from scdiffgen._registry_keys import REGISTRY_KEYS
from scdiffgen.conditions import Code, Conditions, ConditionSpec
from scdiffgen.diffusion import to_scipy
from scdiffgen.module import ThinningModule
from scdiffgen.responses import SOURCES, ConditionGroups, Pseudobulks, PseudobulkSums, Response, ResponsePredictor

CHECKS = ("not assessed", "ahead of the plain mean", "no better than the plain mean")
"""Comparison of predictions of left-out responses with the plain mean of other responses."""


@dataclass(frozen=True)
class CellResponses:
    """Responses of a minibatch by group; ``None`` for groups with a response predicted by the network."""

    group_of: np.ndarray  # (cells,)
    responses: Sequence[Response | None]

    @classmethod
    def of_network(cls, n_cells: int) -> Self:
        """Create responses that the network predicts for all cells."""
        return cls(np.zeros(n_cells, dtype=int), [None])

    @property
    def known(self) -> np.ndarray:
        """Whether each cell has a transferred response ``(cells,)``."""
        return np.array([response is not None for response in self.responses])[self.group_of]

    def columns(self) -> pd.DataFrame:
        """Return source and check of the response of each cell."""
        sources = ["network" if response is None else response.prediction.source for response in self.responses]
        both = ("response_source", sources, SOURCES), ("response_check", [*map(check_of, self.responses)], CHECKS)
        columns = {name: pd.Categorical(np.array(values)[self.group_of], list(order)) for name, values, order in both}
        return pd.DataFrame(columns)

    def cautions(self) -> Iterable[str]:
        """Return distinct cautions in words."""
        return dict.fromkeys(text for x in self.responses if x is not None for text in x.prediction.cautions)

    def apply(self, counts: Tensor, generator: torch.Generator, *, keep_library: bool = False) -> Tensor:
        """Apply responses to CSR or dense counts ``(cells, genes)``, in dense form; other cells are unchanged."""
        cells = to_scipy(counts) if counts.layout == torch.sparse_csr else sparse.csr_matrix(counts.cpu().numpy())
        result = cells.astype(np.float32).toarray()
        seed = int(torch.randint(2**62, (1,), generator=generator, device=generator.device))
        for group, response in enumerate(self.responses):
            rows = np.flatnonzero(self.group_of == group)
            if response is not None:
                rng = np.random.default_rng([seed, group])
                result[rows] = response.apply(cells[rows], rng, keep_library=keep_library).toarray()
        return torch.from_numpy(result).to(counts.device)


@dataclass(frozen=True)
class ResponseModel:
    """Predictor of responses of cells if only interventions change."""

    predictor: ResponsePredictor
    specs: Sequence[ConditionSpec]

    def responses(
        self,
        source: Conditions[Tensor],
        target: Conditions[Tensor],
        scale: float = 1.0,
        *,
        unmeasured_only: bool = False,
    ) -> CellResponses:
        """Look up the response of each cell; ``unmeasured_only`` excludes contexts measured with the treatment."""
        before, after = (condition_groups(conditions.numpy(), self.specs) for conditions in (source, target))
        rows = np.hstack([before.cell_context, before.interventions, after.interventions, before.doses, after.doses])
        _, first, group_of = np.unique(rows, axis=0, return_index=True, return_inverse=True)
        responses = []
        for row in first:
            context, previous, requested = before.cell_context[row], before.treatment(row), after.treatment(row)
            left_out = unmeasured_only and (not requested or self.predictor.has_measured(context, requested))
            responses.append(None if left_out else self.predictor.respond(context, previous, requested, scale))
        return CellResponses(group_of.ravel(), responses)

    def from_untreated(self, conditions: Conditions[np.ndarray]) -> list[Response | None]:
        """Predict the response of untreated cells to the interventions of each row of conditions."""
        rows = condition_groups(conditions, self.specs)
        return [self.predictor.respond(row, {}, rows.treatment(i)) for i, row in enumerate(rows.cell_context)]


def response_model(module: ThinningModule, bulks: Pseudobulks) -> ResponseModel:
    """Build a response model from pseudobulks of training cells and registered feature vectors."""
    features = module.denoiser.embed.features(module.intervention_names[0])
    vectors = None if features is None else features.cpu().numpy()
    return ResponseModel(ResponsePredictor(bulks, vectors, batch_columns(module.specs)), module.specs)


def pseudobulks(
    cells: Iterable[tuple[Tensor, Conditions[Tensor]]],
    conditions: Conditions[np.ndarray],
    specs: Sequence[ConditionSpec],
    n_genes: int,
    reference: Pseudobulks | None = None,
) -> Pseudobulks | None:
    """Compute pseudobulks of cells, appended to those of a reference; ``None`` if they would need too much memory."""
    sums = PseudobulkSums(condition_groups(conditions, specs), batch_columns(specs), n_genes)
    if not sums.fits:
        if n_groups := len(sums.groups.doses):
            large = f"Sums of {n_groups:,} groups of cells over {n_genes:,} genes need too much memory"
            warn_user(f"{large}, so measured responses are not transferred. Register fewer genes, or merge groups.")
        return None
    for counts, _ in cells:
        sums.add(to_scipy(counts))
    return sums.finish(reference)


def condition_groups(conditions: Conditions[np.ndarray], specs: Sequence[ConditionSpec]) -> ConditionGroups:
    """Encode conditions of cells; interventions are absent at dose 0 and have an infinite dose if none is given."""
    context, interventions = conditions.split_interventions(specs)
    (treatment,) = (spec for spec in specs if spec.is_intervention)
    given = conditions[treatment.name]
    doses = given.values.astype(np.float64) if treatment.has_values else np.ones(given.ids.shape)
    doses = np.where(interventions >= 0, np.nan_to_num(doses, nan=np.inf), 0.0)
    return ConditionGroups(context, np.where((interventions >= 0) & (doses == 0), Code.ABSENT, interventions), doses)


def batch_columns(specs: Sequence[ConditionSpec]) -> list[int]:
    """Return the batch columns of the codes of cell contexts."""
    coded = [spec for spec in specs if not (spec.is_number or spec.is_intervention)]
    slots = [[spec.registry_key == REGISTRY_KEYS.BATCH] * spec.n_slots for spec in coded]
    return np.flatnonzero(np.concatenate([np.zeros(0, bool), *map(np.array, slots)])).tolist()


def check_of(response: Response | None) -> str:
    """Compare prediction and plain mean on left-out responses, in words."""
    gain = np.nan if response is None else response.prediction.gain
    return CHECKS[0] if np.isnan(gain) else CHECKS[1 if gain > 0 else 2]
