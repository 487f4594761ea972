r"""Diffusion on molecules: binomial thinning, its loss and its likelihood bound.

A cell is a bag of :math:`L` molecules. Corruption keeps each with probability :math:`p`,
:math:`x_t \sim \mathrm{Binomial}(x, p)`; generation adds molecules one group after the other. The predictor gives
:math:`\pi`, the distribution over genes of a missing molecule, and is trained with the loss
:math:`-\sum_g (x - x_t)_g \log \pi_g \, / \, (L - n_t)`, :math:`n_t = \sum_g x_{t,g}`. Molecules are exchangeable, so
with :math:`n` uniform on :math:`\{0, \dots, L-1\}` this is the any-order autoregressive bound
:cite:p:`hoogeboom2022autoregressive` on the likelihood of the cell given its library size,
:math:`-\log p(x \mid L) \le L \, \mathbb{E}_n[\text{loss}] - \log (L! / \prod_g x_g!)`.

Convention, here and everywhere: counts are CSR tensors ``(cells, genes)`` whose stored values may be zero;
``n_molecules`` is :math:`n_t`, ``library`` is :math:`L`.
"""

from typing import NamedTuple

import torch
from torch import Tensor

from ._draws import Rng, draw_by_gamma, draw_from_urn
from ._sparse import row_indices, row_sums, with_values

LARGEST_LOG_RATE = 40.0  # far beyond any weight of an urn, and its exponential over the least of them is a number


class Thinned(NamedTuple):
    """A corrupted cell: what is left of it, and what is missing."""

    state: Tensor  # CSR (cells, genes): the molecules kept
    missing: Tensor  # (stored values,): the molecules removed, at the positions of `state`
    n_molecules: Tensor  # (cells,)
    library: Tensor  # (cells,)


class UrnPrediction(NamedTuple):
    r"""Rates of the next molecule of an urn: :math:`\pi_g \propto e^{\text{log\_rates}_g} + w_g x_{t,g}`."""

    logits: Tensor  # (cells, genes): the log-rates, whose scale against the weights matters
    weights: Tensor  # (genes,), not negative; or (cells, genes), see `draw`
    log_concentration: Tensor | None = None  # (cells,), log of the sum of the rates, if logits are up to a constant

    @property
    def log_rates(self) -> Tensor:
        """Log-rates ``(cells, genes)`` without the molecules that are present."""
        if self.log_concentration is None:
            return self.logits
        return self.logits.log_softmax(1) + self.log_concentration[:, None]

    def log_total(self) -> Tensor:
        """Logarithm ``(cells,)`` of the sum of these rates."""
        return self.logits.logsumexp(1) if self.log_concentration is None else self.log_concentration

    def log_prob(self, state: Tensor) -> Tensor:
        """Log-probabilities ``(cells, genes)`` of the next molecule for a dense state ``(cells, genes)``."""
        return log_of(self.rates_at(state)).log_softmax(1)

    def log_prob_at(self, state: Tensor) -> Tensor:
        """Log-probabilities ``(stored values,)`` at the stored positions of a CSR state; nothing dense is added."""
        rows, columns = row_indices(state), state.col_indices()
        weights = self.weights.index_select(0, columns) if self.weights.ndim == 1 else self.weights[rows, columns]
        return log_shares(self.log_rates[rows, columns], weights * state.values(), self.log_total(), rows)

    def rates_at(self, state: Tensor) -> Tensor:
        """Rates ``(cells, genes)`` for a dense state ``(cells, genes)``."""
        return torch.addcmul(within_range(self.log_rates).exp_(), self.weights, state)

    def draw(self, rates: Tensor, n_molecules: Tensor, generator: Rng = None) -> Tensor:
        """Draw ``n_molecules`` ``(cells,)`` from the urn; with weights of each cell, by shares drawn first."""
        draw = draw_from_urn if self.weights.ndim == 1 else draw_by_gamma
        return draw(rates, self.weights, n_molecules, generator)


def thinning_levels(library: Tensor, generator: Rng = None) -> Tensor:
    """Draw probabilities of keeping a molecule of training cells, in the shape of their library sizes."""
    # Half of the cells: uniform on (0, 1). Other half: the expected number of molecules is log-uniform on
    # [0.5, library], because the first molecules decide the cell. Both are stratified over the batch.
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
    """Keep exactly ``n_molecules`` ``(cells,)`` of each cell, all subsets equally likely (without replacement)."""
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
    """Cross-entropy ``(cells,)`` of one missing molecule, in nats; 0 for a cell that misses none."""
    cross_entropy = -row_sums(thinned.state, thinned.missing * prediction.log_prob_at(thinned.state))
    return cross_entropy / (thinned.library - thinned.n_molecules).clamp(min=1)


def likelihood_bound(cross_entropy: Tensor, counts: Tensor) -> Tensor:
    r"""Upper bound ``(cells,)`` on :math:`-\log p(x \mid L)`, nats, from the loss at uniform ``n_molecules``."""
    values = counts.values().double()  # the difference of two large numbers
    library = row_sums(counts, values)
    orders = torch.lgamma(library + 1) - row_sums(counts, torch.lgamma(values + 1))
    return library * cross_entropy - orders


def log_shares(log_rates: Tensor, reinforced: Tensor, log_total: Tensor, places: Tensor) -> Tensor:
    """Logarithms of shares ``(stored values,)`` of totals ``(places,)``, to which what is reinforced adds, too."""
    excess = beyond_range(log_total)
    total = (log_total - excess).exp().index_add(0, places, reinforced)
    return ((log_rates - excess[places]).exp() + reinforced).log() - total.log()[places]


def log_of(rates: Tensor) -> Tensor:
    """Logarithms, finite also of zero, so that guidance can mix them."""
    return rates.clamp(min=torch.finfo(rates.dtype).tiny).log()


def within_range(log_rates: Tensor) -> Tensor:
    """Shift log-rates ``(cells, genes)`` of cells whose exponentials would overflow or underflow."""
    return log_rates - beyond_range(log_rates.amax(1, keepdim=True))


def beyond_range(logs: Tensor) -> Tensor:
    """Return the excess of logarithms over the range of finite exponentials; 0 within the range."""
    return logs - logs.clamp(-LARGEST_LOG_RATE, LARGEST_LOG_RATE)
