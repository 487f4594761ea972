"""Denoisers, which hold all trained weights: condition embedders, base network and effect networks."""

from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar, NamedTuple, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from scdiffgen._registry_keys import REGISTRY_KEYS
from scdiffgen.conditions import Conditions, ConditionSpec
from scdiffgen.diffusion import BlockPrediction, Blocks, MoleculePrediction, MoleculePredictor, UrnPrediction, row_sums
from scdiffgen.nn import (
    ConditionEmbedder,
    EffectNetwork,
    GeneScores,
    InputKind,
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
    """Base class of denoisers: condition embedders, a base network, and effect networks of interventions."""

    input_type: ClassVar[InputKind] = "counts"
    """Input of the networks: counts or values."""

    network: Any  # base network of the cell context

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
        has_effects = size.options.intervention == "effect"  # otherwise interventions are part of the context
        self.effect_names = [spec.name for spec in specs if spec.is_intervention and has_effects]
        embedded = [spec for spec in specs if spec.name not in self.effect_names]
        dim = size.conditioning_dim
        embedded_features = {name: vectors for name, vectors in features.items() if name not in self.effect_names}
        self.embed = ConditionEmbedder(embedded, dim, size.options, features=embedded_features)
        self.combine = UniversalCombination(len(embedded), dim) if size.options.conditioning == "adaln" else None
        self.rotates = size.options.attention_numbers == "rotated"
        self.network = self.make_network(n_vars, size)
        self.effects = nn.ModuleList(
            EffectNetwork(spec, n_vars, size, features.get(spec.name), self.input_type)
            for spec in specs
            if spec.name in self.effect_names
        )
        # The base network must see whether an effect is missing, as the cell may then be treated or not.
        self.missing = nn.Parameter(torch.zeros(len(self.effect_names), dim))

    @abstractmethod
    def make_network(self, n_vars: int, size: NetworkSize) -> nn.Module:
        """Create the network of the cell context."""

    @abstractmethod
    def bind(self, conditions: Given, effect_scale: float = 1.0, trains_effects: Tensor | None = None) -> Predictor:
        """Bind conditions; effects are scaled by ``effect_scale`` and trained on cells ``trains_effects``."""

    def library(self, counts: Tensor) -> Tensor:
        """Sum the molecules ``(cells,)`` of CSR counts."""
        return row_sums(counts, counts.values())

    def effect_scores(
        self, state: Tensor, level: Tensor, library: Tensor, treatments: Given, trains_effects: Tensor | None = None
    ) -> dict[str, Tensor]:
        """Compute scores ``(cells, genes)`` of the effects of :meth:`treatments`."""
        scores = {name: self.effect_of(name)(state, level, library, given) for name, given in treatments.items()}
        if trains_effects is None:
            return scores
        return {name: torch.where(trains_effects[:, None], score, score.detach()) for name, score in scores.items()}

    def treatments(self, conditions: Given) -> Given:
        """Select interventions with effect networks that at least one cell has; synchronises with the device."""
        given = {name: conditions[name] for name in self.effect_names if name in conditions}
        return Conditions({name: part for name, part in given.items() if part.mask.any()}, conditions.n_cells)

    def unaffected(self, conditions: Given, n_cells: int) -> Tensor:
        """Mark cells ``(cells,)`` without a given intervention at a nonzero dose."""
        none = torch.ones(n_cells, dtype=torch.bool, device=self.missing.device)
        for name in self.effect_names:
            if name in conditions:
                none &= ~((self.effect_of(name).gates(conditions[name]) > 0).any(1) & conditions[name].given)
        return none

    def effect_of(self, name: str) -> EffectNetwork:
        """Return the effect network of an intervention."""
        return cast("EffectNetwork", self.effects[self.effect_names.index(name)])

    def extend_features(self, name: str, vectors: Tensor, components: Sequence[int] = ()) -> None:
        """Append feature vectors ``(new, n_features)`` of new categories of a condition, and their components."""
        if name in self.effect_names:
            self.effect_of(name).extend_features(vectors)
        else:
            self.embed.extend_features(name, vectors, components)

    def sort_tokens(self, order: Tensor) -> None:
        """Permute the tokens: the ``order[k]``-th becomes the ``k``-th."""
        permute_weights(self, order, TOKEN_AXES)

    def embed_conditions(self, conditions: Given, n_cells: int) -> EmbeddedConditions:
        """Embed all conditions except effects."""
        embedded = conditions.without(self.effect_names)
        vectors, numbers = self.embed(embedded, n_cells), None
        if self.rotates:
            numbers = F.pad(self.embed.numbers(embedded, n_cells), (0, len(self.effect_names)))
        is_missing = vectors.new_ones(n_cells, len(self.effect_names), 1)
        for column, name in enumerate(self.effect_names):
            if name in conditions:
                is_missing[:, column, 0] = (~conditions[name].given).to(is_missing)
        missing = is_missing * self.missing
        if self.combine is None:
            return EmbeddedConditions(torch.cat([vectors, missing], dim=1), numbers)
        return EmbeddedConditions(self.combine(vectors) + missing.sum(1), numbers)


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

    def make_network(self, n_vars: int, size: NetworkSize) -> TokenNetwork:
        return TokenNetwork(n_vars, size)

    def library(self, counts: Tensor) -> Tensor:
        """Sum the molecules of CSR counts, ``(cells,)`` or ``(cells, modalities)``."""
        return super().library(counts) if self.blocks is None else self.blocks.sums(counts, counts.values())

    def label_scores(self, conditions: Given) -> dict[str, Tensor]:
        """Return the fixed offsets ``(cells, genes)`` of rare labels, by condition; empty without rare labels."""
        offsets = self.label_offsets
        return {offsets.name: offsets(conditions)} if offsets is not None and offsets.is_used else {}

    def bind(
        self, conditions: Given, effect_scale: float = 1.0, trains_effects: Tensor | None = None
    ) -> MoleculePredictor:
        """Bind conditions; the predictor takes present molecules, dense or CSR, and library sizes."""
        scores = self.bind_scores(conditions, effect_scale, trains_effects)
        return lambda state, library: self.prediction(scores(state, library))

    def bind_scores(
        self, conditions: Given, effect_scale: float = 1.0, trains_effects: Tensor | None = None
    ) -> Callable[[Tensor, Tensor], GeneScores]:
        """Bind conditions; the predictor returns gene scores before the urn term is added."""
        embedded = self.embed_conditions(conditions, conditions.n_cells)
        offsets, treatments = self.label_scores(conditions), self.treatments(conditions)

        def predict(state: Tensor, library: Tensor) -> GeneScores:
            present = state if state.layout == torch.sparse_csr else state.to_sparse_csr()
            n_molecules = self.library(present)
            scores: GeneScores = self.network(present, n_molecules, library, *embedded)
            added = self.effect_scores(present, n_molecules, library, treatments, trains_effects)
            logits = scores.logits
            for score in [*(effect_scale * effect for effect in added.values()), *offsets.values()]:
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
