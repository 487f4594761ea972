r"""Thinning of cells with several modalities, each with its own block of columns, library size and softmax.

Each modality :math:`m` with :math:`L_m` molecules has its own level of thinning; its missing molecules are predicted
from the present molecules of all modalities. With :math:`n` of all :math:`L = \sum_m L_m` molecules present,
:math:`-\log p(x \mid L_1, L_2, \dots) \le L \, \mathbb{E}_n[\text{loss}] - \sum_m \log (L_m! / \prod_{g \in m} x_g!)`.
"""

from collections.abc import Sequence
from itertools import accumulate
from typing import NamedTuple

import torch
from scipy.sparse import csr_matrix
from torch import Tensor

from ._draws import Rng
from ._sparse import row_indices, row_sums, with_values
from ._thinning import Thinned, UrnPrediction, log_shares, thinning_levels


class Blocks(NamedTuple):
    """Numbers of columns of the modalities, in the order of the columns."""

    sizes: tuple[int, ...]

    @property
    def starts(self) -> list[int]:
        """First column of each block."""
        return [0, *accumulate(self.sizes)][:-1]

    @property
    def slices(self) -> list[slice]:
        """Columns of each block."""
        return [slice(start, start + size) for start, size in zip(self.starts, self.sizes, strict=True)]

    def split(self, cells: csr_matrix) -> list[csr_matrix]:
        """Split cells ``(cells, columns)`` by modality."""
        return [cells[:, columns] for columns in self.slices]

    def places(self, counts: Tensor) -> Tensor:
        """Compute the flat position in ``(cells, modalities)`` of every stored value of a CSR tensor."""
        ends, columns = torch.tensor(list(accumulate(self.sizes)), device=counts.device), counts.col_indices()
        return row_indices(counts) * len(self.sizes) + torch.searchsorted(ends, columns.long(), right=True)

    def sums(self, counts: Tensor, values: Tensor) -> Tensor:
        """Sum ``values`` at the stored positions of a CSR tensor by modality ``(cells, modalities)``."""
        total = values.new_zeros(counts.shape[0] * len(self.sizes)).index_add_(0, self.places(counts), values)
        return total.unflatten(0, (counts.shape[0], len(self.sizes)))

    def side_by_side(self, positions: Sequence[Tensor]) -> Tensor:
        """Convert flat positions within each block to flat positions in ``(cells, columns)``."""
        n_columns = sum(self.sizes)
        blocks = zip(positions, self.sizes, self.starts, strict=True)
        return torch.cat([at // size * n_columns + start + at % size for at, size, start in blocks])

    def dense_sums(self, state: Tensor) -> Tensor:
        """Sum a dense tensor ``(cells, columns)`` by modality ``(cells, modalities)``."""
        return torch.stack([block.sum(1) for block in state.split(self.sizes, 1)], dim=1)


class BlockPrediction(NamedTuple):
    """Rates of the next molecule of each modality, normalised within the modality."""

    log_rates: Tensor  # (cells, columns)
    weights: Tensor  # (cells, columns)
    own: Sequence[bool]  # for each modality: whether weights differ between cells
    blocks: Blocks

    def log_prob(self, state: Tensor) -> Tensor:
        """Compute log-probabilities ``(cells, columns)``, normalised by modality, for a dense state."""
        return torch.cat([urn.log_prob(part) for urn, part in self._urns(state)], dim=1)

    def log_prob_at(self, state: Tensor) -> Tensor:
        """Compute log-probabilities ``(stored values,)`` at the stored positions of a CSR state."""
        rows, columns, places = row_indices(state), state.col_indices(), self.blocks.places(state)
        log_total = torch.stack([block.logsumexp(1) for block in self.log_rates.split(self.blocks.sizes, 1)], dim=1)
        reinforced = self.weights[rows, columns] * state.values()
        return log_shares(self.log_rates[rows, columns], reinforced, log_total.flatten(), places)

    def rates_at(self, state: Tensor) -> Tensor:
        """Compute rates ``(cells, columns)`` for a dense state ``(cells, columns)``."""
        return torch.cat([urn.rates_at(part) for urn, part in self._urns(state)], dim=1)

    def draw(self, rates: Tensor, n_molecules: Tensor, generator: Rng = None) -> Tensor:
        """Draw ``n_molecules`` ``(cells, modalities)`` sequentially from the urn of each modality with given rates."""
        drawn = [urn.draw(part, n, generator) for (urn, part), n in zip(self._urns(rates), n_molecules.T, strict=True)]
        return self.blocks.side_by_side(drawn)

    def _urns(self, columns: Tensor) -> list[tuple[UrnPrediction, Tensor]]:
        """Return the urn of each modality with its part of a tensor ``(cells, columns)``."""
        parts = zip(*(tensor.split(self.blocks.sizes, 1) for tensor in (*self[:2], columns)), strict=True)
        return [
            (UrnPrediction(rates, weights if own else weights[0]), part)
            for own, (rates, weights, part) in zip(self.own, parts, strict=True)
        ]


def split_thinned(thinned: Thinned, blocks: Blocks) -> Thinned:
    """Count present molecules and library sizes by modality ``(cells, modalities)``."""
    kept = thinned.state.values()
    library = blocks.sums(thinned.state, kept + thinned.missing)
    return thinned._replace(n_molecules=blocks.sums(thinned.state, kept), library=library)


def thin_blocks(counts: Tensor, keep: Tensor, blocks: Blocks, generator: Rng = None) -> Thinned:
    """Keep every molecule with the probability ``keep`` ``(cells, modalities)`` of its modality."""
    values = counts.values()
    kept = torch.binomial(values, keep.to(values.dtype).flatten()[blocks.places(counts)], generator=generator)
    n_molecules, library = blocks.sums(counts, kept), blocks.sums(counts, values)
    return Thinned(with_values(counts, kept), values - kept, n_molecules, library)


def block_loss(prediction: BlockPrediction, thinned: Thinned) -> Tensor:
    """Compute the cross-entropy ``(cells, modalities)`` of a missing molecule, in nats; 0 if none is missing."""
    missing = thinned.missing * prediction.log_prob_at(thinned.state)
    cross_entropy = -prediction.blocks.sums(thinned.state, missing)
    return cross_entropy / (thinned.library - thinned.n_molecules).clamp(min=1)


def block_likelihood_bound(prediction: BlockPrediction, thinned: Thinned, counts: Tensor) -> Tensor:
    r"""Bound :math:`-\log p(x \mid L_1, L_2, \dots)` ``(cells,)`` in nats from above; ``n_molecules`` is uniform."""
    values, library = counts.values().double(), thinned.library.double()
    n_missing = (library - thinned.n_molecules).sum(1).clamp(min=1)
    cross_entropy = -row_sums(thinned.state, thinned.missing * prediction.log_prob_at(thinned.state)) / n_missing
    orders = torch.lgamma(library + 1).sum(1) - row_sums(counts, torch.lgamma(values + 1))
    return library.sum(1) * cross_entropy - orders


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
