r"""Binomial thinning of molecules, with its loss and likelihood bound.

A cell is a bag of :math:`L` molecules. Corruption keeps each with probability :math:`p`,
:math:`x_t \sim \mathrm{Binomial}(x, p)`; generation adds molecules group by group. The predictor returns
:math:`\pi`, the distribution over genes of a missing molecule, and is trained with the loss
:math:`-\sum_g (x - x_t)_g \log \pi_g \, / \, (L - n_t)`, :math:`n_t = \sum_g x_{t,g}`. Molecules are exchangeable, so
with :math:`n` uniform on :math:`\{0, \dots, L-1\}` this is the any-order autoregressive bound
:cite:p:`hoogeboom2022autoregressive` on the likelihood of the cell given its library size,
:math:`-\log p(x \mid L) \le L \, \mathbb{E}_n[\text{loss}] - \log (L! / \prod_g x_g!)`.

Conventions of the package: counts are CSR tensors ``(cells, genes)`` with stored values that may be zero;
``n_molecules`` is :math:`n_t`, ``library`` is :math:`L`.
"""

from typing import NamedTuple

import torch
from torch import Tensor

from ._draws import Rng, draw_by_gamma, draw_from_urn
from ._sparse import row_indices, row_sums, with_values

LARGEST_LOG_RATE = 40.0  # far above any urn weight, while exp(40) divided by the smallest weight is finite


class Thinned(NamedTuple):
    """Corrupted cells: the molecules kept and the molecules removed."""

    state: Tensor  # CSR (cells, genes): the molecules kept
    missing: Tensor  # (stored values,): the molecules removed, at the positions of `state`
    n_molecules: Tensor  # (cells,)
    library: Tensor  # (cells,)


class UrnPrediction(NamedTuple):
    r"""Urn prediction of the next molecule: :math:`\pi_g \propto e^{\text{log\_rates}_g} + w_g x_{t,g}`."""

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
        """Compute the log ``(cells,)`` of the sum of these rates."""
        return self.logits.logsumexp(1) if self.log_concentration is None else self.log_concentration

    def log_prob(self, state: Tensor) -> Tensor:
        """Compute log-probabilities ``(cells, genes)`` of the next molecule for a dense state ``(cells, genes)``."""
        return log_of(self.rates_at(state)).log_softmax(1)

    def log_prob_at(self, state: Tensor) -> Tensor:
        """Compute log-probabilities ``(stored values,)`` at the stored positions of a CSR state."""
        rows, columns = row_indices(state), state.col_indices()
        weights = self.weights.index_select(0, columns) if self.weights.ndim == 1 else self.weights[rows, columns]
        return log_shares(self.log_rates[rows, columns], weights * state.values(), self.log_total(), rows)

    def rates_at(self, state: Tensor) -> Tensor:
        """Compute rates ``(cells, genes)`` for a dense state ``(cells, genes)``."""
        return torch.addcmul(within_range(self.log_rates).exp_(), self.weights, state)

    def draw(self, rates: Tensor, n_molecules: Tensor, generator: Rng = None) -> Tensor:
        """Draw ``n_molecules`` ``(cells,)`` from the urn, by gamma shares if weights differ between cells."""
        draw = draw_from_urn if self.weights.ndim == 1 else draw_by_gamma
        return draw(rates, self.weights, n_molecules, generator)


def thinning_levels(library: Tensor, generator: Rng = None) -> Tensor:
    """Draw the probability of keeping a molecule for training cells, in the shape of their library sizes."""
    # For half of the cells it is uniform on (0, 1). For the others the expected number of molecules is log-uniform on
    # [0.5, library], because the first molecules determine the cell. Both are stratified over the batch.
    n_cells = library.shape[0]
    order = torch.randperm(n_cells, generator=generator, device=library.device)
    jitter = torch.rand(n_cells, generator=generator, device=library.device, dtype=library.dtype)
    uniform = ((order + jitter) / n_cells).reshape(n_cells, *[1] * (library.ndim - 1))
    log_uniform = 0.5 * (2 * library).clamp(min=1) ** (2 * uniform - 1).clamp(min=0) / library.clamp(min=1)
    return torch.where(uniform < 0.5, 2 * uniform, log_uniform.clamp(max=1))


def thin(counts: Tensor, keep: Tensor, generator: Rng = None) -> Thinned:
    """Keep every molecule with probability ``keep`` ``(cells,)``: binomial thinning of the stored values only."""
    values = counts.values()
    kept = torch.binomial(values, keep.to(values.dtype)[row_indices(counts)], generator=generator)
    return _split(counts, kept)


def thin_to(counts: Tensor, n_molecules: Tensor, generator: Rng = None) -> Thinned:
    """Keep exactly ``n_molecules`` ``(cells,)`` of each cell, sampled without replacement."""
    per_value = counts.values().round().long()
    position = torch.repeat_interleave(per_value)
    rows = row_indices(counts)[position]
    key = torch.rand(len(rows), generator=generator, device=rows.device, dtype=torch.float64)
    order = (key + rows).argsort()
    library = row_sums(counts, counts.values()).round().long()
    rank = torch.arange(len(rows), device=rows.device) - (library.cumsum(0) - library)[rows]
    chosen = position[order][rank < n_molecules.to(rows.device)[rows]]
    return _split(counts, torch.bincount(chosen, minlength=len(per_value)).to(counts.values().dtype))


def _split(counts: Tensor, kept: Tensor) -> Thinned:
    state = with_values(counts, kept)
    return Thinned(state, counts.values() - kept, row_sums(counts, kept), row_sums(counts, counts.values()))


def molecule_loss(prediction: UrnPrediction, thinned: Thinned) -> Tensor:
    """Compute the cross-entropy ``(cells,)`` of one missing molecule, in nats; 0 if none is missing."""
    cross_entropy = -row_sums(thinned.state, thinned.missing * prediction.log_prob_at(thinned.state))
    return cross_entropy / (thinned.library - thinned.n_molecules).clamp(min=1)


def likelihood_bound(cross_entropy: Tensor, counts: Tensor) -> Tensor:
    r"""Bound :math:`-\log p(x \mid L)` ``(cells,)``, in nats, from above by the loss at uniform ``n_molecules``."""
    values = counts.values().double()  # double precision, because two large numbers are subtracted
    library = row_sums(counts, values)
    orders = torch.lgamma(library + 1) - row_sums(counts, torch.lgamma(values + 1))
    return library * cross_entropy - orders


def log_shares(log_rates: Tensor, reinforced: Tensor, log_total: Tensor, places: Tensor) -> Tensor:
    """Compute the log ``(stored values,)`` of (rate + reinforced) / (total + sum of reinforced) within ``places``."""
    excess = beyond_range(log_total)
    total = (log_total - excess).exp().index_add(0, places, reinforced)
    return ((log_rates - excess[places]).exp() + reinforced).log() - total.log()[places]


def log_of(rates: Tensor) -> Tensor:
    """Compute logs of rates, finite also at zero, so that guidance can combine them."""
    return rates.clamp(min=torch.finfo(rates.dtype).tiny).log()


def within_range(log_rates: Tensor) -> Tensor:
    """Shift log-rates ``(cells, genes)`` of cells that would overflow or underflow in the exponential."""
    return log_rates - beyond_range(log_rates.amax(1, keepdim=True))


def beyond_range(logs: Tensor) -> Tensor:
    """Return the excess of logs over the range of finite exponentials; 0 within the range."""
    return logs - logs.clamp(-LARGEST_LOG_RATE, LARGEST_LOG_RATE)
