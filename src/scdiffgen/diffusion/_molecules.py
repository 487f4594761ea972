r"""Molecules are drawn here: the next one is of gene :math:`g` in proportion to :math:`e^{r_g} + w_g x_{t,g}`.

This is the urn of Pólya, with log-rates :math:`r`, weights :math:`w` and present molecules :math:`x_t`; its draws are
Dirichlet-multinomial. :func:`grow_molecules` adds molecules to cells, by a prediction of the urn in each step.
A prediction also computes the loss and the likelihood bound of missing molecules, and is guided.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from ._blocks import Blocks, row_indices, row_sums
from ._draws import Rng, add_from_urns, draw_by_gamma, draw_from_urn
from ._thinning import Thinned, likelihood_bound

COMPILED_FOR = "cpu"  # device on which urns are sampled by the compiled pass
LARGEST_LOG_RATE = 40.0  # far above any urn weight, while exp(40) divided by the smallest weight is finite


class MoleculePrediction(ABC):
    """Distribution of the next molecule, given the present molecules of cells."""

    @abstractmethod
    def log_prob(self, state: Tensor) -> Tensor:
        """Compute log-probabilities ``(cells, genes)`` of the next molecule given a dense state ``(cells, genes)``."""

    @abstractmethod
    def rates_at(self, state: Tensor) -> Tensor:
        """Compute rates ``(cells, genes)`` of the next molecule, on the scale of the urn weights."""

    @abstractmethod
    def draw(self, rates: Tensor, n_molecules: Tensor, generator: Rng = None) -> Tensor:
        """Draw ``n_molecules`` ``(cells,)`` sequentially by given rates: flat positions ``cell * n_genes + gene``."""

    def guided(self, conditional: Sequence["MoleculePrediction"], scales: Sequence[float]) -> "MoleculePrediction":
        """Extrapolate this unconditional prediction towards conditional predictions."""
        return GuidedPrediction(self, conditional, scales)


@dataclass(frozen=True)
class UrnPrediction(MoleculePrediction):
    """Urn of one modality."""

    logits: Tensor  # (cells, genes): log-rates, on the scale of the weights
    weights: Tensor  # (genes,), non-negative; or (cells, genes), see `draw`
    log_concentration: Tensor | None = None  # (cells,): log of the sum of rates; logits may then have any offset

    @property
    def log_rates(self) -> Tensor:
        """Log-rates ``(cells, genes)`` before present molecules are added."""
        if self.log_concentration is None:
            return self.logits
        return self.logits.log_softmax(1) + self.log_concentration[:, None]

    def log_total(self) -> Tensor:
        return self.logits.logsumexp(1) if self.log_concentration is None else self.log_concentration

    def log_prob(self, state: Tensor) -> Tensor:
        return log_of(self.rates_at(state)).log_softmax(1)

    def log_prob_at(self, state: Tensor) -> Tensor:
        """Compute log-probabilities ``(stored values,)`` at the stored positions of a CSR state."""
        rows, columns = row_indices(state), state.col_indices()
        weights = self.weights.index_select(0, columns) if self.weights.ndim == 1 else self.weights[rows, columns]
        return _log_shares(self.log_rates[rows, columns], weights * state.values(), self.log_total(), rows)

    def rates_at(self, state: Tensor) -> Tensor:
        return torch.addcmul(_within_range(self.log_rates).exp_(), self.weights, state)

    def draw(self, rates: Tensor, n_molecules: Tensor, generator: Rng = None) -> Tensor:
        """Draw ``n_molecules`` ``(cells,)`` from the urn, by gamma shares if weights differ between cells."""
        draw = draw_from_urn if self.weights.ndim == 1 else draw_by_gamma
        return draw(rates, self.weights, n_molecules, generator)

    def loss(self, thinned: Thinned) -> Tensor:
        """Compute the cross-entropy ``(cells,)`` of one missing molecule, in nats; 0 if none is missing."""
        cross_entropy = -row_sums(thinned.state, thinned.missing * self.log_prob_at(thinned.state))
        return cross_entropy / (thinned.library - thinned.n_molecules).clamp(min=1)

    def bound(self, thinned: Thinned, counts: Tensor) -> Tensor:
        r"""Bound :math:`-\log p(x \mid L)` ``(cells,)`` in nats from above; ``n_molecules`` is uniform."""
        return likelihood_bound(self.loss(thinned), counts)


@dataclass(frozen=True)
class BlockPrediction(MoleculePrediction):
    """An urn for each modality, with rates that are normalised within the modality."""

    log_rates: Tensor  # (cells, columns)
    weights: Tensor  # (cells, columns)
    by_cell: Sequence[bool]  # for each modality: whether weights differ between cells
    blocks: Blocks

    def log_prob(self, state: Tensor) -> Tensor:
        """Compute log-probabilities ``(cells, columns)``, normalised by modality, for a dense state."""
        return torch.cat([urn.log_prob(part) for urn, part in self._urns(state)], dim=1)

    def log_prob_at(self, state: Tensor) -> Tensor:
        """Compute log-probabilities ``(stored values,)`` at the stored positions of a CSR state."""
        rows, columns, places = row_indices(state), state.col_indices(), self.blocks.places(state)
        log_total = torch.stack([block.logsumexp(1) for block in self.log_rates.split(self.blocks.sizes, 1)], dim=1)
        reinforced = self.weights[rows, columns] * state.values()
        return _log_shares(self.log_rates[rows, columns], reinforced, log_total.flatten(), places)

    def rates_at(self, state: Tensor) -> Tensor:
        return torch.cat([urn.rates_at(part) for urn, part in self._urns(state)], dim=1)

    def draw(self, rates: Tensor, n_molecules: Tensor, generator: Rng = None) -> Tensor:
        """Draw ``n_molecules`` ``(cells, modalities)`` sequentially from the urn of each modality with given rates."""
        drawn = [urn.draw(part, n, generator) for (urn, part), n in zip(self._urns(rates), n_molecules.T, strict=True)]
        return self.blocks.side_by_side(drawn)

    def loss(self, thinned: Thinned) -> Tensor:
        """Compute the cross-entropy ``(cells,)`` of one missing molecule in nats, averaged over modalities."""
        total = -self.blocks.sums(thinned.state, thinned.missing * self.log_prob_at(thinned.state))
        total, n_missing = (part.reshape(len(part), -1) for part in (total, thinned.library - thinned.n_molecules))
        is_missing = (n_missing > 0).float()
        return (total / n_missing.clamp(min=1) * is_missing).sum(1) / is_missing.sum(1).clamp(min=1)

    def bound(self, thinned: Thinned, counts: Tensor) -> Tensor:
        r"""Bound :math:`-\log p(x \mid L_1, L_2, \dots)` ``(cells,)`` in nats from above."""
        # With n of all L molecules present and n uniform, the bound is L E[loss] - sum of log(L_m! / prod x_g!).
        values, library = counts.values().double(), thinned.library.double()
        n_missing = (library - thinned.n_molecules).sum(1).clamp(min=1)
        cross_entropy = -row_sums(thinned.state, thinned.missing * self.log_prob_at(thinned.state)) / n_missing
        orders = torch.lgamma(library + 1).sum(1) - row_sums(counts, torch.lgamma(values + 1))
        return library.sum(1) * cross_entropy - orders

    def _urns(self, columns: Tensor) -> list[tuple[UrnPrediction, Tensor]]:
        """Return the urn of each modality with its part of a tensor ``(cells, columns)``."""
        tensors = self.log_rates, self.weights, columns
        parts = zip(*(tensor.split(self.blocks.sizes, 1) for tensor in tensors), strict=True)
        return [
            (UrnPrediction(rates, weights if by_cell else weights[0]), part)
            for by_cell, (rates, weights, part) in zip(self.by_cell, parts, strict=True)
        ]


@dataclass(frozen=True)
class GuidedPrediction(MoleculePrediction):
    r"""Guided urns, :math:`\log \pi_w = \log \pi_0 + \sum_i w_i (\log \pi_i - \log \pi_0)`, renormalised.

    :math:`\pi_0` is unconditional, :math:`\pi_i` given one condition, or given all with a single weight.
    """

    unconditional: MoleculePrediction
    conditional: Sequence[MoleculePrediction]
    scales: Sequence[float]

    def log_prob(self, state: Tensor) -> Tensor:
        return self._mixed([part.log_prob(state) for part in (self.unconditional, *self.conditional)]).log_softmax(1)

    def rates_at(self, state: Tensor) -> Tensor:
        logs = [log_of(part.rates_at(state)) for part in (self.unconditional, *self.conditional)]
        return _within_range(self._mixed(logs)).exp()

    def draw(self, rates: Tensor, n_molecules: Tensor, generator: Rng = None) -> Tensor:
        """Draw ``n_molecules`` by given rates from the urn with the weights of the unconditional prediction."""
        return self.unconditional.draw(rates, n_molecules, generator)

    def _mixed(self, parts: Sequence[Tensor]) -> Tensor:
        base, *conditional = parts
        guided = base * (1 - sum(self.scales))
        for part, scale in zip(conditional, self.scales, strict=True):
            guided = guided + scale * part
        return guided


MoleculePredictor = Callable[[Tensor, Tensor], MoleculePrediction]
"""``predictor(state, library)``: prediction from a CSR or dense state ``(cells, genes)`` and library ``(cells,)``."""


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
    """Add ``n_molecules`` ``(cells,)``: as CSR in a compiled pass for an urn on the CPU, else dense, in place."""
    if isinstance(prediction, UrnPrediction) and prediction.weights.ndim == 1 and state.device.type == COMPILED_FOR:
        log_total, prior = prediction.log_total(), prediction.logits.softmax(1)
        total = (log_total - beyond_range(log_total)).exp()
        cells = state if state.layout == torch.sparse_csr else state.to_sparse_csr()
        return add_from_urns(cells, prior, total, prediction.weights, n_molecules, generator)
    dense = state.to_dense()
    drawn = prediction.draw(prediction.rates_at(dense), n_molecules, generator)
    dense.view(-1).index_add_(0, drawn, torch.ones_like(drawn, dtype=dense.dtype))
    return dense


def molecule_schedule(n_start: Tensor, n_end: Tensor, n_steps: int, offset: float = 16.0) -> Tensor:
    """Compute numbers of molecules ``(n_steps + 1, cells)`` from ``n_start`` to ``n_end`` ``(cells,)``, inclusive."""
    # Geometric in n + offset, n_k + o = (n_0 + o)^(1 - k/K) (n_K + o)^(k/K), rounded; each step adds at least one
    # molecule. A large offset makes the steps equal.
    step = torch.arange(n_steps + 1, device=n_end.device)[:, None]
    fraction = step.double() / n_steps
    start, end = (n_start.double() + offset).log(), (n_end.double() + offset).log()
    geometric = ((1 - fraction) * start + fraction * end).exp().sub(offset).round().long()
    return torch.maximum(geometric, torch.minimum(n_start.long() + step, n_end.long()))


def _log_shares(log_rates: Tensor, reinforced: Tensor, log_total: Tensor, places: Tensor) -> Tensor:
    """Compute the log ``(stored values,)`` of (rate + reinforced) / (total + sum of reinforced) within ``places``."""
    excess = beyond_range(log_total)
    total = (log_total - excess).exp().index_add(0, places, reinforced)
    return ((log_rates - excess[places]).exp() + reinforced).log() - total.log()[places]


def log_of(rates: Tensor) -> Tensor:
    """Compute logs of rates, finite also at zero, so that guidance can combine them."""
    return rates.clamp(min=torch.finfo(rates.dtype).tiny).log()


def _within_range(log_rates: Tensor) -> Tensor:
    """Shift log-rates ``(cells, genes)`` of cells that would overflow or underflow in the exponential."""
    return log_rates - beyond_range(log_rates.amax(1, keepdim=True))


def beyond_range(logs: Tensor) -> Tensor:
    """Return the excess of logs over the range of finite exponentials; 0 within the range."""
    return logs - logs.clamp(-LARGEST_LOG_RATE, LARGEST_LOG_RATE)
