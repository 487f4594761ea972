"""Responses of minibatches of cells, carried over from where they were measured."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from scdiffgen._conditions import ConditionSpec, Parts

from ._denoiser import Conditions
from ._library_size import condition_codes
from ._measured_responses import CarriedResponse, MeasuredResponses


class Carried(NamedTuple):
    """Responses of some cells; zeros where the network must be asked."""

    change: Tensor  # of fourth roots of shares (cells, genes)
    log_correction: Tensor  # of the logarithm of the expression that is expected (cells, genes)
    known: Tensor  # (cells,)


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
    codes = [condition_codes(to_arrays(told), specs, n_cells) for told in (own, asked)]
    n_own = codes[0].shape[1]
    n_identity = n_own - own[specs[-1].name].ids.shape[1]
    kinds, kind_of = np.unique(np.concatenate([codes[0], codes[1][:, n_identity:]], 1), axis=0, return_inverse=True)
    responses: list[CarriedResponse | None] = []
    for kind in kinds:
        identity, *sets = (part.tolist() for part in np.split(kind, [n_identity, n_own]))
        before, after = ([part for part in slots if part >= 0] for slots in sets)
        left_out = unmeasured_only and (not after or measured.has_measured(identity, after))
        responses.append(None if left_out else measured.carried(identity, before, after))
    nothing = CarriedResponse(*np.zeros((2, measured.counts.shape[1])))
    tables = [np.stack(arrays) for arrays in zip(*(response or nothing for response in responses), strict=True)]
    device = own[specs[-1].name].told.device
    rows = torch.from_numpy(kind_of.ravel()).to(device)
    change, correction = (torch.from_numpy(table).float().to(device)[rows] for table in tables)
    return Carried(change, correction, torch.tensor([r is not None for r in responses], device=device)[rows])


def to_arrays(conditions: Conditions) -> dict[str, Parts[np.ndarray]]:
    """Conditions as NumPy arrays."""
    return {name: Parts(*(tensor.cpu().numpy() for tensor in parts)) for name, parts in conditions.items()}
