"""Denoisers, which hold all trained weights: condition embedders and network."""

from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from scdiffgen._registry_keys import REGISTRY_KEYS
from scdiffgen.conditions import ConditionSpec
from scdiffgen.diffusion import BlockPrediction, Blocks, MoleculePrediction, MoleculePredictor, UrnPrediction, row_sums
from scdiffgen.nn import (
    ConditionEmbedder,
    GeneScores,
    LabelOffsets,
    NetworkSize,
    PriorLimit,
    TokenNetwork,
    UniversalCombination,
)

from ._processes import Given, Predictor
from ._token_order import TOKEN_AXES, permute_weights

LARGEST_TABLE = 20_000_000  # labels times genes above which labels have no offsets


class EmbeddedConditions(NamedTuple):
    """Embedded conditions, as inputs of a network."""

    vectors: Tensor  # (cells, conditioning_dim) with "adaln", otherwise (cells, conditions, conditioning_dim)
    numbers: Tensor | None  # (cells, conditions), if they rotate queries and keys


class ConditionedDenoiser(nn.Module):
    """Base class of denoisers: condition embedders and a network."""

    network: Any

    def __init__(
        self,
        n_vars: int,
        specs: Sequence[ConditionSpec],
        size: NetworkSize,
        features: Mapping[str, Tensor],
        process: Any = None,  # converts predictions of vectors; unused for counts
    ) -> None:
        super().__init__()
        self.process = process
        dim = size.conditioning_dim
        self.embed = ConditionEmbedder(specs, dim, size.options, features=features)
        self.combine = UniversalCombination(len(specs), dim) if size.options.conditioning == "adaln" else None
        self.rotates = size.options.attention_numbers == "rotated"
        self.network = self.make_network(n_vars, size)

    @abstractmethod
    def make_network(self, n_vars: int, size: NetworkSize) -> nn.Module:
        """Create the network."""

    @abstractmethod
    def bind(self, conditions: Given) -> Predictor:
        """Bind conditions."""

    def library(self, counts: Tensor) -> Tensor:
        """Sum the molecules ``(cells,)`` of CSR counts."""
        return row_sums(counts, counts.values())

    def sort_tokens(self, order: Tensor) -> None:
        """Permute the tokens: the ``order[k]``-th becomes the ``k``-th."""
        permute_weights(self, order, TOKEN_AXES)

    def embed_conditions(self, conditions: Given, n_cells: int) -> EmbeddedConditions:
        """Embed all conditions."""
        vectors = self.embed(conditions, n_cells)
        numbers = self.embed.numbers(conditions, n_cells) if self.rotates else None
        return EmbeddedConditions(vectors if self.combine is None else self.combine(vectors), numbers)


class Denoiser(ConditionedDenoiser):
    """Denoiser of thinned cells with one modality or several concatenated ones (``sizes``)."""

    network: TokenNetwork
    label_offsets: LabelOffsets | None

    def __init__(
        self, sizes: tuple[int, ...], specs: Sequence[ConditionSpec], size: NetworkSize, features: Mapping[str, Tensor]
    ) -> None:
        n_vars = sum(sizes)
        super().__init__(n_vars, specs, replace(size, n_levels=len(sizes)), features)
        self.blocks = Blocks(sizes) if len(sizes) > 1 else None
        label = next((spec for spec in specs if spec.registry_key == REGISTRY_KEYS.LABELS), None)
        has_table = label is not None and label.n_categories * n_vars <= LARGEST_TABLE
        self.label_offsets = LabelOffsets(label, n_vars) if label is not None and has_table else None
        self.limit = PriorLimit(sizes)
        # A direct path to genes for treatments, because a response of few genes is too faint to pass through tokens.
        # Labels have none: it makes cells too typical of small labels.
        self.condition_readout: nn.Linear | None = None
        if any(spec.is_intervention for spec in specs):
            self.condition_readout = nn.Linear(size.conditioning_dim, n_vars, bias=False)
            nn.init.zeros_(self.condition_readout.weight)

    def make_network(self, n_vars: int, size: NetworkSize) -> TokenNetwork:
        return TokenNetwork(n_vars, size)

    def library(self, counts: Tensor) -> Tensor:
        """Sum the molecules of CSR counts, ``(cells,)`` or ``(cells, modalities)``."""
        return super().library(counts) if self.blocks is None else self.blocks.sums(counts, counts.values())

    def condition_scores(self, conditions: Given, embedded: EmbeddedConditions) -> dict[str, Tensor]:
        """Return gene scores ``(cells, genes)`` of conditions alone: offsets of rare labels, direct read-out."""
        vectors, offsets = embedded.vectors, self.label_offsets
        scores = {offsets.name: offsets(conditions)} if offsets is not None and offsets.is_used else {}
        if self.condition_readout is not None:
            scores["conditions"] = self.condition_readout(F.silu(vectors if vectors.ndim == 2 else vectors.sum(1)))
        return scores

    def bind(self, conditions: Given) -> MoleculePredictor:
        """Bind conditions; the predictor takes present molecules, dense or CSR, and library sizes."""
        scores = self.bind_scores(conditions)
        return lambda state, library: self.prediction(scores(state, library))

    def bind_scores(self, conditions: Given) -> Callable[[Tensor, Tensor], GeneScores]:
        """Bind conditions; the predictor returns gene scores before the urn term is added."""
        embedded = self.embed_conditions(conditions, conditions.n_cells)
        of_conditions = self.condition_scores(conditions, embedded)

        def predict(state: Tensor, library: Tensor) -> GeneScores:
            present = state if state.layout == torch.sparse_csr else state.to_sparse_csr()
            scores: GeneScores = self.network(present, self.library(present), library, *embedded)
            logits = scores.logits
            for score in of_conditions.values():
                logits = logits.to(torch.result_type(logits, score)).add_(score)  # in place to save memory
            return scores._replace(logits=logits)

        return predict

    def prediction(self, scores: GeneScores) -> MoleculePrediction:
        """Convert gene scores to rates of the next molecule."""
        if self.blocks is not None:
            parts = zip(scores.logits.split(self.blocks.sizes, 1), scores.log_concentration.split(1, 1), strict=True)
            log_expected = torch.cat([logits.log_softmax(1) + total for logits, total in parts], dim=1)
            log_rates, weights = self.limit(log_expected, scores.urn_weights)
            return BlockPrediction(log_rates, weights, self.limit.which, self.blocks)
        if not any(self.limit.which):
            return UrnPrediction(scores.logits, scores.urn_weights, scores.log_concentration[:, 0])
        return UrnPrediction(*self.limit(scores.log_rates(), scores.urn_weights))
