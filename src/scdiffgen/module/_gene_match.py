"""Match of genes: drawn cells of a group get the means and spreads of genes that its training cells have."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import sparse
from torch import Tensor, nn

from scdiffgen._codes import Code, distinct_rows
from scdiffgen.conditions import Conditions, ConditionSpec, MixedConditions
from scdiffgen.diffusion import Rng, to_scipy
from scdiffgen.normal_scores import Frame, ReferenceDistribution, chunks, fit_groups

from ._process_options import Given

ANY, MORE = min(Code) - 1, min(Code) - 2  # codes of conditions that a coarser group ignores, and of larger combinations


class GeneMatch(nn.Module):
    r"""Mean and SD of the normal scores of each gene in drawn cells, and in training cells, of a group.

    A count is an interval of normal scores (:mod:`scdiffgen.normal_scores`). A score :math:`z` of a drawn cell becomes
    :math:`\mu + s (z - \mu_0) / s_0`, with mean and SD :math:`\mu_0, s_0` of drawn and :math:`\mu, s` of training
    cells, and is converted back to a count. Groups have equal categories, treatments and doses; cells of a small or
    unknown group belong to that of their context, of its first part, or of all cells.
    """

    least = 20
    """Fewest training cells of a group."""

    log_shares: Tensor  # (genes,)
    log_inverse_dispersions: Tensor  # (genes,)
    groups: Tensor  # (groups, columns)
    frames: Tensor  # (4, groups, genes): means and log SDs of drawn cells, then of training cells; new genes have zeros

    def __init__(self, specs: Sequence[ConditionSpec], n_genes: int) -> None:
        super().__init__()
        # ids of each kind of treatment start at their own number, also when other kinds get new categories
        wide = [replace(spec, n_categories=2**16) if spec.is_intervention else spec for spec in specs]
        self.specs = [spec for spec in wide if not spec.is_number]
        self.n_context = sum(spec.n_slots for spec in self.specs if not spec.is_intervention)
        self.register_buffer("log_shares", torch.zeros(n_genes))
        self.register_buffer("log_inverse_dispersions", torch.zeros(n_genes))
        self.register_buffer("groups", torch.zeros(0, 0))
        self.register_buffer("frames", torch.zeros(4, 0, n_genes))

    def _load_from_state_dict(self, state_dict: dict[str, Any], prefix: str, *others: Any) -> None:
        """Load tables of any length; files of models that are not matched have none."""
        for name, table in list(self.named_buffers()):
            setattr(self, name, table.new_zeros(state_dict.setdefault(prefix + name, table).shape))
        super()._load_from_state_dict(state_dict, prefix, *others)

    def clear(self) -> None:
        """Forget all groups: cells are not moved."""
        self.groups, self.frames = self.groups[:0], self.frames[:, :0]

    def fit(
        self,
        measured: sparse.csr_matrix,
        conditions: Conditions[np.ndarray],
        drawn: sparse.csr_matrix,
        like: NDArray[np.intp],
    ) -> None:
        """Fit to training cells with their ``conditions``, and to drawn cells with those of training cells ``like``.

        Groups are shrunk towards the drawn cells of the group, moved as those of the coarser group: by pseudo-cells,
        and by empirical Bayes with one factor for the means and one for the log SDs of all genes, because estimates of
        both kinds of cells are noisy.
        """
        codes = self._codes(conditions)
        reference = ReferenceDistribution.fit(measured, distinct_rows(codes[:, : self.n_context])[1])
        coarser, above = np.zeros(len(codes), dtype=np.intp), np.zeros((4, 1, measured.shape[1]))
        n_known, rows, frames = 0, [codes[:0]], [above[:, :0]]
        for level in self._by_level(codes):
            known, first, of_cell = np.unique(level, axis=0, return_index=True, return_inverse=True)
            n_cells = np.array(
                [np.bincount(of_cell.ravel()[cells], minlength=len(known)) for cells in (slice(None), like)]
            )
            is_large = (n_cells >= self.least).all(0)
            if not is_large.any() or len(known) == n_known:  # no large group, or no finer groups
                continue
            n_known = len(known)
            group = np.where(is_large, np.cumsum(is_large) - 1, -1)[of_cell.ravel()]
            above, coarser = above[:, coarser[first[is_large]]], group
            source = fit_groups(reference, *_of_groups(drawn, group[like]), _frame(above[:2]))
            moved = np.array([source.means, np.log(source.deviations)]) + above[2:] - above[:2]
            wanted = fit_groups(reference, *_of_groups(measured, group), _frame(moved), n_rounds=4)
            change = np.array([wanted.means, np.log(wanted.deviations)]) - moved
            noise = np.array([source.deviations**2, np.full_like(source.means, 0.5)]).mean(2, keepdims=True)
            noise = noise * (1 / n_cells[:, is_large, None]).sum(0)
            change *= np.maximum(1 - noise / np.maximum((change**2).mean(2, keepdims=True), 1e-12), 0)
            above = np.concatenate([[source.means, np.log(source.deviations)], moved + change])
            rows.append(known[is_large])
            frames.append(above)
        tables = {
            "log_shares": np.log(reference.shares),
            "log_inverse_dispersions": np.log(reference.inverse_dispersions),
            "groups": np.concatenate(rows),
            "frames": np.concatenate(frames, axis=1),
        }
        for name, values in tables.items():
            setattr(self, name, torch.from_numpy(values).to(getattr(self, name)))

    def forward(self, counts: Tensor, conditions: Given, generator: Rng = None) -> Tensor:
        """Move dense counts ``(cells, genes)`` of drawn cells in place; library sizes stay."""
        if not len(self.groups):
            return counts
        groups, weights = self._groups(conditions)
        used, groups = np.unique(groups, return_inverse=True)
        seed = torch.randint(2**62, (1,), generator=generator, device=counts.device)
        rng, before = np.random.default_rng(int(seed)), to_scipy(counts.to_sparse_csr()).astype(np.float64)
        logs = (self.log_shares, self.log_inverse_dispersions)
        reference = ReferenceDistribution(*(np.exp(log.cpu().numpy().astype(np.float64)) for log in logs))
        tables = self.frames[:, torch.from_numpy(used)].cpu().numpy()
        for part in chunks(*before.shape):
            frames = np.einsum("e,fecg->fcg", weights, tables[:, groups[:, part]])
            moved = reference.move(before[part], _frame(frames[:2]), _frame(frames[2:]), rng)
            counts[part] = torch.from_numpy(moved.toarray().astype(np.float32)).to(counts)
        return counts

    def _groups(self, conditions: Given) -> tuple[NDArray[np.intp], NDArray[np.float64]]:
        """Find the finest group of each cell ``(ends, cells)``, and the weights of the ends."""
        if isinstance(conditions, MixedConditions):
            ends = [self._groups(end)[0][0] for end in (conditions.start, conditions.end)]
            return np.array(ends), np.array([1 - conditions.weight, conditions.weight])
        known, found = self.groups.cpu().numpy(), np.zeros(conditions.n_cells, dtype=np.intp)  # the first: all cells
        codes = self._codes(conditions.numpy(), (known.shape[1] - self.n_context) // 2)
        for level in self._by_level(codes):
            _, index = distinct_rows(np.concatenate([known, level]))
            row_of = np.full(len(index), -1)
            row_of[index[: len(known)]] = np.arange(len(known))
            own = row_of[index[len(known) :]]
            found = np.where(own >= 0, own, found)
        return found[None], np.ones(1)

    def _codes(self, conditions: Conditions[np.ndarray], n_parts: int | None = None) -> NDArray[np.float32]:
        """Return contexts, treatments of at most ``n_parts`` parts, and their doses ``(cells, columns)``."""
        context, parts, doses = conditions.groups(self.specs)
        if n_parts is not None:
            parts = np.where((parts[:, n_parts:] >= 0).any(1, keepdims=True), MORE, parts)
        return np.hstack([context, parts[:, :n_parts], doses[:, :n_parts]]).astype(np.float32)

    def _by_level(self, codes: NDArray[np.float32]) -> Iterator[NDArray[np.float32]]:
        """Yield codes of coarser groups, then of finer ones."""
        for n_equal in sorted({0, min(1, self.n_context), self.n_context, codes.shape[1]}):  # leading columns
            yield np.where(np.arange(codes.shape[1]) < n_equal, codes, np.float32(ANY))


def _frame(logs: NDArray[np.float64]) -> Frame:
    return Frame(logs[0], np.exp(logs[1]))


def _of_groups(counts: sparse.csr_matrix, group: NDArray[np.intp]) -> tuple[sparse.csr_matrix, NDArray[np.intp]]:
    """Select the cells of groups."""
    chosen = group >= 0
    return (counts, group) if chosen.all() else (counts[chosen], group[chosen])
