"""Cells between two sets of conditions."""

from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd
from anndata import AnnData
from scipy import sparse
from scvi.utils import track

from ._cell_request import CellRequest
from ._cells import generator_from, new_cells
from ._model_access import gene_names
from ._sampler import Sampler


def cells_between(
    ends: Mapping[str, CellRequest],
    sampler: Sampler,
    weights: Sequence[float],
    library_size: Any,
    seed: int | None,
    *,
    silent: bool,
) -> AnnData:
    """Draw cells from the start to the end, one set of cells for each weight, with the same noise."""
    numbers = [len(request.row_of) for request in ends.values()]
    if numbers[0] != numbers[1]:
        raise ValueError(f"`start` and `end` request {numbers[0]} and {numbers[1]} cells: request equally many.")
    model, device = ends["start"].model, sampler.module.device
    generator = generator_from(seed, device)
    seed = generator.initial_seed()
    (start, few), (end, many) = (request.completed(generator, library_size) for request in ends.values())
    decoded = {"start": ends["start"].decoded(start), "end": ends["end"].decoded(end)}
    names = pd.concat([table.add_prefix(f"{name}_") for name, table in decoded.items()], axis=1)
    counts, obs = [], []
    for weight in track(weights, "Interpolating", disable=silent):
        sizes = (few ** (1 - weight) * many**weight).round()
        counts.append(sampler.between(start, end, float(weight), sizes, generator_from(seed, device)))
        obs.append(names.assign(weight=float(weight)))
    table = pd.concat(obs).set_axis([f"generated_{i}" for i in range(len(weights) * numbers[0])])
    return new_cells(sparse.vstack(counts, format="csr"), table, gene_names(model))
