"""Transferred responses of minibatches of cells: looked up for their conditions, and applied to their counts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple, get_args

import numpy as np
import torch
from torch import Tensor

from scdiffgen.conditions import Conditions, ConditionSpec

from ._cell_states import StateResponse, log_expression
from ._pseudobulks import TreatedGroups
from ._response_curves import LEAST_RATIO, POWER
from ._stacking import Source
from ._strengths import drawn_strengths
from ._transfer import PseudobulkResponse, ResponseTransfer

if TYPE_CHECKING:
    from scdiffgen.module import ThinningModule

SOURCES: tuple[Source, ...] = get_args(Source)
"""Where a response comes from: the network, or cells with the perturbation, its parts, or others like it."""


class TransferredResponse(NamedTuple):
    """Responses of some cells; none where the network must be asked."""

    change: Tensor  # of fourth roots of shares (cells, genes)
    before: Tensor  # fourth roots of the shares of cells of their context, before (cells, genes)
    log_correction: Tensor  # of the logarithm of the expression that is expected (cells, genes)
    source: Tensor  # positions among SOURCES (cells,)
    strength_variance: Tensor  # (cells,)
    library_change: Tensor  # of the logarithm of library sizes (cells,)
    group: Tensor  # of cells that respond alike (cells,)
    by_state: Sequence[StateResponse | None]  # of each group; none if its cells respond alike

    @property
    def known(self) -> Tensor:
        """Which cells the network need not be asked for ``(cells,)``."""
        return self.source > 0

    def of_shares(self) -> TransferredResponse:
        """The same with library sizes that stay as they are."""
        return self._replace(library_change=torch.zeros_like(self.library_change))


@dataclass(frozen=True)
class ResponseModel:
    """Responses of cells whose conditions change in interventions only, the last of the registered ones ``specs``."""

    transfer: ResponseTransfer
    specs: Sequence[ConditionSpec]

    def responses(
        self, source: Conditions[Tensor], target: Conditions[Tensor], *, unmeasured_only: bool = False
    ) -> TransferredResponse:
        """Look up the response of each cell; with ``unmeasured_only`` not for contexts that training cells show."""
        before, after = (TreatedGroups.of_cells(conditions.numpy(), self.specs) for conditions in (source, target))
        rows = np.hstack([before.identity, before.interventions, after.interventions, before.doses, after.doses])
        _, first, group_of = np.unique(rows, axis=0, return_index=True, return_inverse=True)
        n_genes = self.transfer.bulks.n_genes
        of_network = PseudobulkResponse(
            np.zeros(n_genes), np.ones(n_genes), np.zeros(n_genes), "network", 0.0, 0.0, None, {}, np.zeros(n_genes)
        )
        found = []
        for row in first:
            identity, had, requested = before.identity[row], before.treatment(row), after.treatment(row)
            left_out = unmeasured_only and (not requested or self.transfer.has_measured(identity, requested))
            found.append((None if left_out else self.transfer.response(identity, had, requested)) or of_network)
        *arrays, origins, variances, library_changes, by_state, _, _ = zip(*found, strict=True)
        device = source[self.specs[-1].name].given.device
        group_of_cell = torch.from_numpy(group_of.ravel()).to(device)
        tables = [torch.from_numpy(np.stack(array)).float() for array in arrays]
        tables += [torch.tensor(each) for each in (list(map(SOURCES.index, origins)), variances, library_changes)]
        change, root, correction, *others = (table.to(device)[group_of_cell] for table in tables)
        origin, variance, library_change = others
        return TransferredResponse(change, root, correction, origin, variance, library_change, group_of_cell, by_state)

    def from_untreated(self, conditions: Conditions[np.ndarray]) -> list[PseudobulkResponse | None]:
        """The response of untreated cells to the interventions of each row of conditions."""
        of = TreatedGroups.of_cells(conditions, self.specs)
        return [self.transfer.response(row, {}, of.treatment(i)) for i, row in enumerate(of.identity)]

    @torch.no_grad()
    def apply(
        self,
        module: ThinningModule,
        counts: Tensor,
        source: Conditions[Tensor],
        response: TransferredResponse,
        scale: float = 1.0,
        generator: torch.Generator | None = None,
    ) -> Tensor:
        """Apply ``scale`` times the responses to whole cells, CSR ``(cells, genes)``, by maximal coupling, densely."""
        log_prob = (module.expression(counts, source).log() + response.log_correction).log_softmax(1)
        strengths = drawn_strengths(response.strength_variance, generator)
        there = counts.to_dense()
        change = scale * (strengths[:, None] * response.change + self._by_state(there, response))
        root = (POWER * log_prob).exp()
        fallen = root * (1 + change / response.before).clamp(min=LEAST_RATIO)
        changed = torch.where(change < 0, fallen, root + change).log() / POWER
        return module.process.couple(there, log_prob, changed - log_prob, generator, scale * response.library_change)

    def _by_state(self, there: Tensor, response: TransferredResponse) -> Tensor:
        """Change of fourth roots beyond that of the mean cell, of dense counts; both ``(cells, genes)``."""
        found = torch.zeros_like(response.change)
        for group, by_state in enumerate(response.by_state):
            cells = torch.nonzero(response.group == group)[:, 0]
            if by_state is not None and len(cells):
                expression = log_expression(there[cells])
                states = expression @ torch.from_numpy(self.transfer.bulks.state_loadings).to(expression)
                found[cells] = by_state.change(states, response.before[cells[0]], response.change[cells[0]])
        return found
