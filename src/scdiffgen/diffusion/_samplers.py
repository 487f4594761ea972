"""Sampler of the thinning process, a function of a predictor with bound conditions."""

from collections.abc import Callable
from typing import Protocol

import torch
from torch import Tensor

from ._compiled_urn import add_from_urns
from ._draws import Rng
from ._thinning import UrnPrediction, beyond_range


class MoleculePrediction(Protocol):
    """Prediction of the next molecule in the thinning process."""

    def log_prob(self, state: Tensor) -> Tensor:
        """Compute log-probabilities ``(cells, genes)`` of the next molecule given a dense state ``(cells, genes)``."""

    def rates_at(self, state: Tensor) -> Tensor:
        """Compute rates ``(cells, genes)`` of the next molecule, on the scale of the urn weights."""

    def draw(self, rates: Tensor, n_molecules: Tensor, generator: Rng = None) -> Tensor:
        """Draw ``n_molecules`` ``(cells,)`` sequentially by given rates: flat positions ``cell * n_genes + gene``."""


MoleculePredictor = Callable[[Tensor, Tensor], MoleculePrediction]
"""``predictor(state, library)``: prediction from a CSR or dense state ``(cells, genes)`` and library ``(cells,)``."""


def molecule_schedule(n_start: Tensor, n_end: Tensor, n_steps: int, offset: float = 16.0) -> Tensor:
    """Compute numbers of molecules ``(n_steps + 1, cells)`` from ``n_start`` to ``n_end`` ``(cells,)``, inclusive."""
    # Geometric in n + offset, n_k + o = (n_0 + o)^(1 - k/K) (n_K + o)^(k/K), rounded; each step adds at least one
    # molecule. A large offset makes the steps equal.
    step = torch.arange(n_steps + 1, device=n_end.device)[:, None]
    fraction = step.double() / n_steps
    start, end = (n_start.double() + offset).log(), (n_end.double() + offset).log()
    geometric = ((1 - fraction) * start + fraction * end).exp().sub(offset).round().long()
    return torch.maximum(geometric, torch.minimum(n_start.long() + step, n_end.long()))


@torch.no_grad()
def grow_molecules(
    predictor: MoleculePredictor,
    library: Tensor,
    start: Tensor,
    *,
    n_steps: int,
    generator: Rng = None,
    count: Callable[[Tensor], Tensor] | None = None,
) -> Tensor:
    """Add molecules to ``start`` ``(cells, genes)`` until ``count``, by default the cell's total, is ``library``."""
    # The predictor is evaluated once per step. An urn is sampled exactly in any number of steps, other predictions only
    # with one molecule per step. Cells with `library` molecules or more are returned unchanged.
    present = (start.sum(1) if count is None else count(start)).round().long()
    target = torch.maximum(library.round().long(), present)
    added = molecule_schedule(present.flatten(), target.flatten(), n_steps).diff(dim=0)  # (steps, cells)
    state = start.clone()
    for n_molecules in added[added.any(1)]:
        state = add_molecules(predictor(state, library), state, n_molecules.view_as(present), generator)
    return state.to_dense()


def add_molecules(prediction: MoleculePrediction, state: Tensor, n_molecules: Tensor, generator: Rng = None) -> Tensor:
    """Add ``n_molecules`` ``(cells,)``: as CSR in a compiled pass for urns on the CPU, else dense, in place."""
    if isinstance(prediction, UrnPrediction) and prediction.weights.ndim == 1 and state.device.type == "cpu":
        log_total, prior = prediction.log_total(), prediction.logits.softmax(1)
        total = (log_total - beyond_range(log_total)).exp()
        cells = state if state.layout == torch.sparse_csr else state.to_sparse_csr()
        return add_from_urns(cells, prior, total, prediction.weights, n_molecules, generator)
    dense = state.to_dense()
    drawn = prediction.draw(prediction.rates_at(dense), n_molecules, generator)
    dense.view(-1).index_add_(0, drawn, torch.ones_like(drawn, dtype=dense.dtype))
    return dense
