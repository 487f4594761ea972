r"""Binomial thinning of molecules, and the likelihood bound.

A cell is a bag of :math:`L` molecules. Corruption keeps each with probability :math:`p`,
:math:`x_t \sim \mathrm{Binomial}(x, p)`; generation adds molecules group by group. The predictor returns
:math:`\pi`, the distribution over genes of a missing molecule, and is trained with the loss
:math:`-\sum_g (x - x_t)_g \log \pi_g \, / \, (L - n_t)`, :math:`n_t = \sum_g x_{t,g}`. Molecules are exchangeable, so
with :math:`n` uniform on :math:`\{0, \dots, L-1\}` this is the any-order autoregressive bound
:cite:p:`hoogeboom2022autoregressive` on the likelihood of the cell given its library size,
:math:`-\log p(x \mid L) \le L \, \mathbb{E}_n[\text{loss}] - \log (L! / \prod_g x_g!)`.
Each of several modalities has its own library size and level of thinning; its missing molecules are predicted from the
present molecules of all.

Conventions of the package: counts are CSR tensors ``(cells, genes)`` with stored values that may be zero;
``n_molecules`` is :math:`n_t`, ``library`` is :math:`L`, ``(cells,)`` or of several modalities ``(cells, modalities)``.
"""

from typing import NamedTuple

import torch
from torch import Tensor

from ._blocks import Blocks, row_indices, row_sums, with_values
from ._draws import Rng


class Thinned(NamedTuple):
    """Corrupted cells: the molecules kept and the molecules removed."""

    state: Tensor  # CSR (cells, genes): the molecules kept
    missing: Tensor  # (stored values,): the molecules removed, at the positions of `state`
    n_molecules: Tensor  # (cells,) or (cells, modalities)
    library: Tensor  # (cells,) or (cells, modalities)


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


def thin(counts: Tensor, keep: Tensor, generator: Rng = None, blocks: Blocks | None = None) -> Thinned:
    """Keep every molecule with probability ``keep`` ``(cells,)`` or ``(cells, modalities)``: binomial thinning."""
    blocks, values = blocks or Blocks((counts.shape[1],)), counts.values()
    places = row_indices(counts) if keep.ndim == 1 else blocks.places(counts)
    kept = torch.binomial(values, keep.to(values.dtype).flatten()[places], generator=generator)
    return _split(counts, kept, blocks)


def thin_to(counts: Tensor, n_molecules: Tensor, generator: Rng = None, blocks: Blocks | None = None) -> Thinned:
    """Keep exactly ``n_molecules`` ``(cells,)`` of each cell, sampled without replacement."""
    per_value = counts.values().round().long()
    position = torch.repeat_interleave(per_value)
    rows = row_indices(counts)[position]
    key = torch.rand(len(rows), generator=generator, device=rows.device, dtype=torch.float64)
    order = (key + rows).argsort()
    library = row_sums(counts, counts.values()).round().long()
    rank = torch.arange(len(rows), device=rows.device) - (library.cumsum(0) - library)[rows]
    chosen = position[order][rank < n_molecules.to(rows.device)[rows]]
    kept = torch.bincount(chosen, minlength=len(per_value)).to(counts.values().dtype)
    return _split(counts, kept, blocks or Blocks((counts.shape[1],)))


def _split(counts: Tensor, kept: Tensor, blocks: Blocks) -> Thinned:
    """Separate the molecules ``kept`` ``(stored values,)`` from the missing ones, and count them by modality."""
    state = with_values(counts, kept)
    return Thinned(state, counts.values() - kept, blocks.sums(counts, kept), blocks.library(counts))


def block_levels(library: Tensor, generator: Rng = None) -> Tensor:
    """Draw the probability ``(cells, modalities)`` of keeping a molecule for each training cell and modality."""
    # Half of the cells have one level for all modalities, a quarter one level per modality. In the last quarter some
    # modalities are also complete: one of two, or each of several with probability 1/2, except a predicted one.
    n_cells, n_modalities = library.shape
    shared = thinning_levels(library, generator)
    own = torch.stack([thinning_levels(sizes, generator) for sizes in library.unbind(1)], dim=1)

    def uniform(*shape: int) -> Tensor:
        return torch.rand(shape, generator=generator, device=library.device, dtype=library.dtype)

    case = uniform(n_cells, 1)
    predicted = (uniform(n_cells, n_modalities) * (library > 0)).argmax(1, keepdim=True)
    given = uniform(n_cells, n_modalities) < (1.0 if n_modalities == 2 else 0.5)
    given = given.scatter(1, predicted, torch.zeros_like(given)) & (case > 0.75)
    return torch.where(given, 1.0, torch.where(case < 0.5, shared, own))


def without_blocks(library: Tensor, rate: float, generator: Rng = None) -> Tensor:
    """Draw modalities to drop ``(cells, modalities)`` at a ``rate`` in [0, 1); at least one modality remains."""
    uniform = torch.rand(library.shape, generator=generator, device=library.device)
    kept = (uniform * (library > 0)).argmax(1, keepdim=True)  # a random measured modality that is never dropped
    return (uniform < rate).scatter(1, kept, False)


def likelihood_bound(cross_entropy: Tensor, counts: Tensor) -> Tensor:
    r"""Bound :math:`-\log p(x \mid L)` ``(cells,)``, in nats, from above by the loss at uniform ``n_molecules``."""
    values = counts.values().double()  # double precision, because two large numbers are subtracted
    library = row_sums(counts, values)
    orders = torch.lgamma(library + 1) - row_sums(counts, torch.lgamma(values + 1))
    return library * cross_entropy - orders
