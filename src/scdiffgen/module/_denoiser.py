"""Everything that is trained: embedded conditions, the base network, and what interventions add to it."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from typing import ClassVar, cast

import torch
from torch import Tensor, nn

from scdiffgen.conditions import Conditions, ConditionSpec
from scdiffgen.diffusion import Thinned, UrnPrediction, row_sums
from scdiffgen.nn import (
    ConditionEmbedder,
    EffectNetwork,
    GeneScores,
    InputKind,
    NetworkSize,
    TokenNetwork,
    UniversalCombination,
)


class ConditionedDenoiser(nn.Module):
    """Embedded conditions, a network that sees them, and networks for what interventions add.

    Parameters
    ----------
    n_vars
        Number of genes, or of whatever is corrupted.
    specs
        The registered conditions.
    size
        Sizes and form of the network. ``size.options.intervention`` is ``"effect"``: interventions add to the scores
        of the genes, blind to the identity of the cell (:class:`~scdiffgen.nn.EffectNetwork`); or ``"embedding"``: they
        are embedded beside the identity.
    features
        Feature vectors ``(categories, n_features)`` of the conditions that have them.
    """

    reads: ClassVar[InputKind] = "counts"
    """What effects of interventions read: counts or values."""

    def __init__(
        self,
        n_vars: int,
        specs: Sequence[ConditionSpec],
        size: NetworkSize,
        features: Mapping[str, Tensor],
    ) -> None:
        super().__init__()
        are_effects = size.options.intervention == "effect"
        self.effect_names = [spec.name for spec in specs if spec.role == "intervention" and are_effects]
        embedded = [spec for spec in specs if spec.name not in self.effect_names]
        dim = size.conditioning_dim
        of_embedded = {name: vectors for name, vectors in features.items() if name not in self.effect_names}
        self.embed = ConditionEmbedder(embedded, dim, size.options, features=of_embedded)
        self.combine = UniversalCombination(len(embedded), dim) if size.options.conditioning == "adaln" else None
        self.network = self.make_network(n_vars, size)
        self.effects = nn.ModuleList(
            EffectNetwork(spec, n_vars, size, features.get(spec.name), self.reads)
            for spec in specs
            if spec.name in self.effect_names
        )
        # The base must know whether it was told that a cell is treated or not, or cannot know.
        self.not_told = nn.Parameter(torch.zeros(len(self.effect_names), dim))

    @abstractmethod
    def make_network(self, n_vars: int, size: NetworkSize) -> nn.Module:
        """The network of the identity."""

    def added_scores(
        self,
        state: Tensor,
        level: Tensor,
        library: Tensor,
        conditions: Conditions[Tensor],
        teaching: Tensor | None = None,
    ) -> dict[str, Tensor]:
        """Scores ``(cells, genes)`` that interventions add, where any are told; arguments as of the effect network.

        Effects learn from the cells that are ``teaching`` ``(cells,)``, by default from all.
        """
        added = {
            name: self.effect_of(name)(state, level, library, conditions[name])
            for name in self.effect_names
            if name in conditions and conditions[name].mask.any()
        }
        if teaching is None:
            return added
        return {name: torch.where(teaching[:, None], scores, scores.detach()) for name, scores in added.items()}

    def unaffected(self, conditions: Conditions[Tensor], n_cells: int) -> Tensor:
        """Which cells no intervention is told of that would add to their scores ``(cells,)``."""
        none = torch.ones(n_cells, dtype=torch.bool, device=self.not_told.device)
        for name in self.effect_names:
            if name in conditions:
                none &= ~((self.effect_of(name).gates(conditions[name]) > 0).any(1) & conditions[name].given)
        return none

    def effect_of(self, name: str) -> EffectNetwork:
        """The effect network of an intervention."""
        return cast("EffectNetwork", self.effects[self.effect_names.index(name)])

    def extend_features(self, name: str, vectors: Tensor, components: Sequence[int] = ()) -> None:
        """Append feature vectors ``(new, n_features)`` of further categories of a condition; their ids follow on.

        A set of several kinds of parts (:attr:`ConditionSpec.components`) needs the kind of each.
        """
        if name in self.effect_names:
            self.effect_of(name).extend_features(vectors)
        else:
            self.embed.extend_features(name, vectors, components)

    def embed_conditions(self, conditions: Conditions[Tensor], n_cells: int) -> Tensor:
        """Vectors of everything but the effects.

        One vector a cell ``(cells, conditioning_dim)``; or, unless ``size.options.conditioning`` is ``"adaln"``,
        one for each condition ``(cells, conditions, conditioning_dim)``.
        """
        vectors = self.embed({n: c for n, c in conditions.items() if n not in self.effect_names}, n_cells)
        withheld = vectors.new_ones(n_cells, len(self.effect_names), 1)
        for column, name in enumerate(self.effect_names):
            if name in conditions:
                withheld[:, column, 0] = (~conditions[name].given).to(withheld)
        not_told = withheld * self.not_told
        if self.combine is None:
            return torch.cat([vectors, not_told], dim=1)
        return self.combine(vectors) + not_told.sum(1)


class Denoiser(ConditionedDenoiser):
    """Predict the missing molecules of corrupted cells under given conditions; parameters as in the base class."""

    network: TokenNetwork

    def make_network(self, n_vars: int, size: NetworkSize) -> TokenNetwork:
        """The base of the scores."""
        return TokenNetwork(n_vars, size)

    def forward(
        self, thinned: Thinned, conditions: Conditions[Tensor], teaching: Tensor | None = None
    ) -> UrnPrediction:
        """Rates of the next molecule of corrupted cells; effects learn from those ``teaching`` ``(cells,)``, or all."""
        condition = self.embed_conditions(conditions, len(thinned.library))
        return self.predict(
            thinned.state, thinned.n_molecules, thinned.library, condition, conditions, teaching=teaching
        )

    def predict(
        self,
        state: Tensor,
        n_molecules: Tensor,
        library: Tensor,
        condition: Tensor,
        conditions: Conditions[Tensor],
        effect_scale: float = 1.0,
        teaching: Tensor | None = None,
    ) -> UrnPrediction:
        """Rates of the next molecule, the identity being embedded already.

        Parameters
        ----------
        state
            Molecules there, CSR ``(cells, genes)``.
        n_molecules, library
            Molecules there, and in the finished cell, ``(cells,)``.
        condition
            :meth:`embed_conditions` of the cells.
        conditions
            The same conditions, of which the effects read the interventions.
        effect_scale
            Factor of the scores that interventions add.
        teaching
            Cells that effects learn from; by default all.
        """
        scores: GeneScores = self.network(state, n_molecules, library, condition)
        for added in self.added_scores(state, n_molecules, library, conditions, teaching).values():
            scores = scores._replace(logits=scores.logits + effect_scale * added)
        return self.prediction(scores)

    def prediction(self, scores: GeneScores) -> UrnPrediction:
        """Rates of the next molecule from the scores of the genes."""
        return UrnPrediction(scores.log_rates(), scores.urn_weights, scores.log_concentration[:, 0])

    def library(self, counts: Tensor) -> Tensor:
        """Library sizes ``(cells,)`` of CSR counts."""
        return row_sums(counts, counts.values())
