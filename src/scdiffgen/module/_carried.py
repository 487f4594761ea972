"""Responses of minibatches of cells, carried over from where they were measured."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from scdiffgen._conditions import ConditionSpec, Parts

from ._denoiser import Conditions
from ._groups import treatment_codes
from ._measured_responses import CarriedResponse, MeasuredResponses

SOURCES = ("network", "measured", "features")
"""Where a response comes from: the network, cells with the perturbation, or cells with others like it."""


class Carried(NamedTuple):
    """Responses of some cells; none where the network must be asked."""

    change: Tensor  # of fourth roots of shares (cells, genes)
    before: Tensor  # fourth roots of the shares of cells of their kind, before (cells, genes)
    log_correction: Tensor  # of the logarithm of the expression that is expected (cells, genes)
    source: Tensor  # positions among SOURCES (cells,)

    @property
    def known(self) -> Tensor:
        """Which cells the network need not be asked for ``(cells,)``."""
        return self.source > 0


def carried_to(
    measured: MeasuredResponses,
    specs: Sequence[ConditionSpec],
    own: Conditions,
    asked: Conditions,
    *,
    n_cells: int,
    unmeasured_only: bool = False,
) -> Carried:
    """Responses of cells whose conditions change in interventions only.

    Parameters
    ----------
    measured
        What training cells show.
    specs
        The registered conditions, interventions last.
    own, asked
        Conditions of the cells.
    n_cells
        Number of cells.
    unmeasured_only
        Whether the network is asked for what it has seen: contexts as they were measured, and untreated cells.
    """
    before, after = (treatment_codes(to_arrays(told), specs, n_cells) for told in (own, asked))
    n_slots = before.doses.shape[1], after.doses.shape[1]
    n_identity = before.codes.shape[1] - n_slots[0]
    columns = (before.codes, after.codes[:, n_identity:], before.doses, after.doses)
    kinds, kind_of = np.unique(np.hstack(columns), axis=0, return_inverse=True)
    responses: list[CarriedResponse | None] = []
    n_genes = measured.counts.shape[1]
    for kind in kinds:
        identity, *sets = np.split(kind, n_identity + np.cumsum([0, *n_slots, n_slots[0]]))
        had, wanted = (
            {int(part): float(dose) for part, dose in zip(ids, doses, strict=True) if part >= 0}
            for ids, doses in ((sets[0], sets[2]), (sets[1], sets[3]))
        )
        left_out = unmeasured_only and (not wanted or measured.has_measured(identity, wanted))
        responses.append(None if left_out else measured.carried(identity, had, wanted))
    nothing = np.stack([np.zeros(n_genes), np.ones(n_genes), np.zeros(n_genes)])
    tables = np.stack([nothing if response is None else np.stack(response[:3]) for response in responses], axis=1)
    sources = torch.tensor([SOURCES.index("network" if r is None else r.source) for r in responses])
    device = own[specs[-1].name].told.device
    rows = torch.from_numpy(kind_of.ravel()).to(device)
    change, roots, correction = (torch.from_numpy(table).float().to(device)[rows] for table in tables)
    return Carried(change, roots, correction, sources.to(device)[rows])


def to_arrays(conditions: Conditions) -> dict[str, Parts[np.ndarray]]:
    """Conditions as NumPy arrays."""
    return {name: Parts(*(tensor.cpu().numpy() for tensor in parts)) for name, parts in conditions.items()}
