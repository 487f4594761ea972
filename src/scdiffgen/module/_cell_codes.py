"""Codes: the form of a cell that the path corrupts (``encode``), and its way back to counts (``decode``).

:class:`CountCode` is the counts themselves. The other codes are normal scores and the tokens of an autoencoder
(``_vector_codes``). A code is fitted to the training cells (``fit``), and reads whole cells (``tokens``,
``expression``). Methods that need trained weights take the denoiser that holds them.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, ClassVar, Generic, NamedTuple, TypeAlias, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import sparse
from torch import Tensor, nn

from scdiffgen.conditions import ConditionSpec
from scdiffgen.diffusion import Blocks, Rng, column_sums, to_scipy, without_blocks
from scdiffgen.nn import AdditiveReadout, CountEncoder, NetworkSize

from ._denoisers import AverageCell, Denoiser, Guidance, UrnDenoiser
from ._gene_match import GeneMatch
from ._group_sums import LabelSums, Panels, PanelSums
from ._linear_start import linear_model_of_blocks, start_linearly
from ._process_options import Ability, Given

DEEP = 10  # mean counts per feature of a modality above which prior strengths are capped
VECTORS, LIBRARY = "vectors", "library"
"""Keys of cached codes and library sizes in a minibatch, see :class:`Encoded`."""

Batches: TypeAlias = Iterable[tuple[Tensor, Given]]
"""CSR counts ``(cells, columns)`` and conditions of the training cells."""


class Encoded(NamedTuple):
    """Cached codes and library sizes, which replace the counts of training cells."""

    vector: Tensor  # (cells, length), or (cells, draws, length)
    library: Tensor  # (cells,)


CountsOrCodes: TypeAlias = Tensor | Encoded
"""CSR counts ``(cells, columns)``, or their cached codes."""


Net = TypeVar("Net", bound=Denoiser)


class CellCode(nn.Module, ABC, Generic[Net]):
    """Base class of codes, which are read by denoisers of type ``Net``."""

    abilities: ClassVar[frozenset[Ability]] = frozenset()

    keep_fraction: ClassVar[float | None] = None
    """Default share of a cell that a counterfactual keeps; ``None``: as much as coupling keeps (``Path.couple``)."""

    match: GeneMatch | None
    """Match of the genes of drawn cells to those of training cells, which is fitted after training."""

    def __init__(self, blocks: Blocks, specs: Sequence[ConditionSpec], size: NetworkSize, options: Any) -> None:
        super().__init__()
        self.blocks, self.specs, self.size = blocks, list(specs), size
        self.panels = Panels(specs, blocks)
        self.match = None

    @property
    def length(self) -> int:
        return sum(self.blocks.sizes)

    # Training cells.

    def fit(self, cells: Batches, denoisers: Sequence[Net]) -> None:
        """Fit the code to all training cells, and initialise denoisers by it, before the first training."""

    def fit_sample(self, sample: Batches, denoisers: Sequence[Net]) -> None:
        """Fit what needs several passes to a sample of the training cells."""

    def extend(self, cells: Batches) -> None:
        """Extend a fitted code to the cells of a query model, which may have new categories."""

    @abstractmethod
    def encode_training(
        self, denoiser: Net, cells: CountsOrCodes, conditions: Given, generator: Rng = None
    ) -> tuple[Tensor, Tensor]:
        """Return codes and library sizes of training cells."""

    def drop(self, cells: CountsOrCodes, rate: float) -> CountsOrCodes:
        """Drop parts of training cells at random, as conditions are dropped."""
        return cells

    def unmeasured(self, conditions: Given) -> Tensor | None:
        """Mark features ``(cells, columns)`` that the panel of a batch lacks; ``None`` if none does."""
        return self.panels.of_cells(conditions)

    @property
    def has_copula(self) -> bool:
        """Whether few training cells are also drawn anew from a Gaussian copula."""
        return False

    # Training in stages. Most codes have one stage, in which the denoiser is trained.

    def stages(self) -> tuple[float, ...]:
        """Return shares of the epochs of the training stages."""
        return (1.0,)

    def loss(self, denoiser: Net, cells: CountsOrCodes) -> Tensor | None:
        """Compute the loss ``(cells,)`` of the code itself while it is trained; ``None`` afterwards."""
        return None

    def cache(self, denoiser: Net, counts: Tensor, conditions: Given) -> Tensor:
        """Compute the codes of cells for later stages."""
        raise NotImplementedError

    def begin_stage(self, denoisers: Sequence[Net], cached: Mapping[str, Tensor]) -> None:
        """Begin the next stage, given the cached codes of all training cells."""

    # Cells to codes and back.

    def rng(self, generator: Rng) -> Any:
        """Return the random numbers of one call, which :meth:`encode` and :meth:`decode` share."""
        return generator

    @abstractmethod
    def encode(self, denoiser: Net, counts: Tensor, conditions: Given, rng: Any) -> Tensor:
        """Encode CSR counts ``(cells, columns)``."""

    @abstractmethod
    def decode(
        self, denoiser: Net, coded: Tensor, library: Tensor, conditions: Given, rng: Any, guidance: Guidance
    ) -> Tensor:
        """Decode codes to dense counts ``(cells, columns)`` of about ``library`` molecules."""

    # Reading whole cells.

    def readout(self, denoiser: Net) -> AdditiveReadout:
        return denoiser.network.readout

    def gene_weights(self, denoiser: Net) -> Tensor:
        """Return gene weights ``(tokens, width, genes)`` of :meth:`hidden`."""
        return self.readout(denoiser).loadings()

    @abstractmethod
    def tokens(self, denoiser: Net, counts: Tensor, conditions: Given) -> Tensor:
        """Compute tokens ``(cells, tokens, dim)`` of whole cells."""

    def hidden(self, denoiser: Net, counts: Tensor, conditions: Given) -> Tensor:
        """Compute hidden vectors of the read-out ``(cells, tokens, width)`` of whole cells."""
        return self.readout(denoiser).hidden(self.tokens(denoiser, counts, conditions))

    def encoder(self, denoiser: Net, counts: Tensor, conditions: Given) -> tuple[CountEncoder, Callable]:
        """Return the encoder of counts, and the function from its sums to :meth:`hidden`."""
        raise NotImplementedError

    def gene_scores(self, denoiser: Net, counts: Tensor, conditions: Given) -> tuple[Tensor, dict[str, Tensor]]:
        """Compute gene scores of whole cells (the sum over tokens, conditions and a bias), and those of conditions."""
        raise NotImplementedError

    @abstractmethod
    def expression(self, denoiser: Net, counts: Tensor, conditions: Given) -> Tensor:
        """Compute expected expression ``(cells, columns)`` of whole cells, in shares that sum to 1."""

    def sort_tokens(self, order: Tensor) -> None:
        """Permute what the code stores of tokens."""


class CountCode(CellCode[UrnDenoiser]):
    """Counts themselves, of one or several modalities."""

    abilities = frozenset({"gradients of tokens"})

    def __init__(self, blocks: Blocks, specs: Sequence[ConditionSpec], size: NetworkSize, options: Any) -> None:
        super().__init__(blocks, specs, size, options)
        self.match = GeneMatch(specs, self.length) if len(blocks.sizes) == 1 else None  # no benchmark of several

    @torch.no_grad()
    def fit(self, cells: Batches, denoisers: Sequence[UrnDenoiser]) -> None:
        """Initialise by the average cell, offset rare labels, cap priors of high-count modalities, and find panels."""
        sizes, offsets, panel_sums = self.blocks.sizes, denoisers[0].label_offsets, self.panels.sums()
        label_sums = [] if offsets is None else [LabelSums(offsets.name, len(offsets.table), n) for n in sizes]
        molecules = np.zeros(self.length)
        n_molecules = n_cells = torch.zeros(len(sizes))
        for counts, given in cells:
            library = self.blocks.library(counts).cpu().reshape(len(counts), len(sizes))
            n_molecules, n_cells = n_molecules + library.sum(0), n_cells + (library > 0).sum(0)
            molecules += column_sums(counts).cpu().numpy()
            whole = to_scipy(counts)
            for sums, part in zip(label_sums, self.blocks.split(whole) if label_sums else (), strict=True):
                sums.add(part, given)
            self.panels.add(panel_sums, whole, given)
        frequencies = gene_frequencies(molecules)
        deep = (n_molecules >= DEEP * n_cells * torch.tensor(sizes)) & (n_cells > 0)
        parts = zip(label_sums, frequencies.split(sizes) if label_sums else (), strict=True)
        table = torch.cat([sums.offsets(shares) for sums, shares in parts], dim=1) if label_sums else None
        for denoiser in denoisers:
            denoiser.start_from(AverageCell(frequencies, n_molecules / n_cells, deep, table))
        for place, part in panel_sums.items():
            if (missing := part.missing()).any():
                self._start_panel(place, missing, part, denoisers)

    def _start_panel(
        self, place: int, missing: NDArray[np.bool_], part: PanelSums, denoisers: Sequence[UrnDenoiser]
    ) -> None:
        """Start a high-count modality from the molecules ``(columns,)`` that all cells have with the full panel."""
        molecules, columns = part.full_panel(missing), self.blocks.slices[place]
        depth = molecules.sum() / part.n_cells.sum()
        if depth < DEEP * len(molecules):
            return
        self.panels.set(place, missing)
        for denoiser, is_trained in zip(denoisers, (True, False), strict=True):
            limit, offsets, bias = denoiser.limit, denoiser.label_offsets, denoiser.network.readout.bias
            bias[columns] = gene_frequencies(molecules).log().to(bias)
            limit.depth[place], limit.limited[place] = depth, True
            limit.log_limits.requires_grad_(is_trained)
            limit.limit(limit.limited)
            if offsets is not None:  # sums of labels include zero counts of missing features
                offsets.table[:, columns] = 0
                offsets.set(offsets.table)

    def fit_sample(self, sample: Batches, denoisers: Sequence[UrnDenoiser]) -> None:
        """Initialise by a linear model of cells with all features of a modality."""
        parts = [to_scipy(self._complete(counts, given)) for counts, given in sample]
        n_components = self.size.n_tokens * self.size.readout_dim
        linear = linear_model_of_blocks(sparse.vstack(parts, format="csr"), self.blocks, n_components)
        for denoiser in denoisers:
            start_linearly(denoiser.network, linear)

    def encode_training(
        self, denoiser: UrnDenoiser, cells: CountsOrCodes, conditions: Given, generator: Rng = None
    ) -> tuple[Tensor, Tensor]:
        assert isinstance(cells, Tensor)
        return cells, self.blocks.library(cells)

    def drop(self, cells: CountsOrCodes, rate: float) -> CountsOrCodes:
        """Drop modalities, but never all of a cell."""
        if len(self.blocks.sizes) == 1 or not isinstance(cells, Tensor):
            return cells
        return self.blocks.without(cells, without_blocks(self.blocks.library(cells), rate))

    def _complete(self, counts: Tensor, conditions: Given) -> Tensor:
        """Remove the counts of modalities with missing features."""
        incomplete = self.panels.incomplete(conditions)
        return counts if incomplete is None else self.blocks.without(counts, incomplete)

    @property
    def has_copula(self) -> bool:
        return len(self.blocks.sizes) == 1

    def encode(self, denoiser: UrnDenoiser, counts: Tensor, conditions: Given, rng: Rng) -> Tensor:
        return counts

    def decode(
        self, denoiser: UrnDenoiser, coded: Tensor, library: Tensor, conditions: Given, rng: Rng, guidance: Guidance
    ) -> Tensor:
        return coded

    def tokens(self, denoiser: UrnDenoiser, counts: Tensor, conditions: Given) -> Tensor:
        return denoiser.tokens(counts, self.blocks.library(counts), conditions)

    def gene_weights(self, denoiser: UrnDenoiser) -> Tensor:
        """Return gene weights, centred within several modalities, because a constant changes no prediction."""
        weights = super().gene_weights(denoiser)
        if len(self.blocks.sizes) == 1:
            return weights
        return torch.cat([part - part.mean(2, keepdim=True) for part in weights.split(self.blocks.sizes, 2)], dim=2)

    def encoder(self, denoiser: UrnDenoiser, counts: Tensor, conditions: Given) -> tuple[CountEncoder, Callable]:
        trunk, library = denoiser.network.trunk, self.blocks.library(counts)
        conditioning = trunk.conditioning(library, library, *denoiser.embed_conditions(conditions))
        return trunk.encoder, lambda sums: self.readout(denoiser).hidden(trunk(sums, conditioning))

    def gene_scores(self, denoiser: UrnDenoiser, counts: Tensor, conditions: Given) -> tuple[Tensor, dict[str, Tensor]]:
        of_conditions = denoiser.condition_scores(conditions, denoiser.embed_conditions(conditions))
        return denoiser.bind_scores(conditions)(counts, self.blocks.library(counts)).logits, of_conditions

    def expression(self, denoiser: UrnDenoiser, counts: Tensor, conditions: Given) -> Tensor:
        """Compute shares of the next molecule as in a deep cell; other modalities predict missing features."""

        def shares(cells: Tensor) -> Tensor:
            library = denoiser.common_depth(self.blocks.library(cells))
            return denoiser.bind(conditions)(cells, library).log_prob(cells.to_dense()).exp()

        expression, unmeasured = shares(counts), self.unmeasured(conditions)
        if unmeasured is None:
            return expression
        predicted = shares(self._complete(counts, conditions)) * unmeasured
        present = expression * ~unmeasured
        scale = (1 - self.blocks.dense_sums(predicted)) / self.blocks.dense_sums(present)
        sizes = torch.tensor(self.blocks.sizes, device=scale.device)
        return predicted + present * scale.repeat_interleave(sizes, dim=1)


def gene_frequencies(molecules: NDArray[np.float64]) -> Tensor:
    """Compute smoothed shares of genes among all molecules ``(genes,)``."""
    return torch.from_numpy((molecules + 0.5) / (molecules + 0.5).sum()).float()
