"""Cells on a way: between two conditions, and from the empty cell to the full one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
import torch
from anndata import AnnData
from scipy import sparse
from scvi.model.base import BaseModelClass
from scvi.utils import track

from scdiffgen.conditions import request_table

from ._cell_request import CellRequest, encode
from ._model_access import gene_names, training_cells
from ._sampler import Sampler


def interpolated_cells(
    model: BaseModelClass,
    sampler: Sampler,
    ends: Sequence[Mapping[str, Any]],
    n_points: int,
    n_cells: int,
    generator: torch.Generator,
    *,
    silent: bool,
) -> AnnData:
    """Draw cells at points between two conditions; library sizes are mixtures of the quantiles at both ends."""
    known = training_cells(model)
    start, end = (encode(model, request_table(given)).take(np.zeros(n_cells, dtype=int)) for given in ends)
    at_start, at_end = (np.log(np.sort(known.library_sizes(given, generator))) for given in (start, end))
    shuffled = np.random.default_rng(generator.initial_seed()).permutation(n_cells)
    fractions, drawn = np.linspace(0, 1, n_points), []
    for fraction in track(fractions, "Generating", disable=silent):
        sizes = np.exp((1 - fraction) * at_start + fraction * at_end).round()[shuffled]
        drawn.append(sampler.interpolated(start, end, float(fraction), sizes, generator))
    obs = pd.DataFrame({"fraction": np.repeat(fractions, n_cells)})
    obs.index = [f"generated_{i}" for i in range(len(obs))]
    return AnnData(sparse.vstack(drawn, format="csr"), obs=obs, var=pd.DataFrame(index=gene_names(model)))


def path_cells(
    request: CellRequest, sampler: Sampler, generator: torch.Generator, library_size: Any, *, silent: bool
) -> AnnData:
    """Draw cells and keep every state on the way, a row each, with the full cell that is expected."""
    complete, sizes = request.completed(generator, library_size)
    states, expected = sampler.paths(complete, sizes, generator, None if silent else "Generating")
    n_cells, n_states, n_genes = states.shape
    counts = states.reshape(-1, n_genes)
    obs = request.table.iloc[np.repeat(request.row_of, n_states)].assign(
        cell=np.repeat([f"generated_{i}" for i in range(n_cells)], n_states),
        step=np.tile(np.arange(n_states), n_cells),
        level=counts.sum(1) / np.repeat(sizes, n_states),
    )
    obs.index = [f"{row.cell}-{row.step}" for row in obs.itertuples()]
    return AnnData(
        sparse.csr_matrix(counts.astype(np.int32)),
        obs=obs,
        var=pd.DataFrame(index=gene_names(request.model)),
        layers={"expected": expected.reshape(counts.shape)},
    )
