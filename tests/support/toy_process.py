"""A process of another kind, to show that one file and a line in the registry are all that a process takes.

Nothing is corrupted: a cell is one draw from a multinomial whose logits are linear in its conditions.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import torch
from scvi.module.base import LossOutput
from torch import Tensor, nn

from scdiffgen.conditions import Conditions
from scdiffgen.module import ConditionedDenoiser, DiffusionModule, Predictor
from scdiffgen.nn import NetworkSize


class LinearShares(ConditionedDenoiser):
    """Conditions to shares of the genes."""

    network: nn.Linear

    def make_network(self, n_vars: int, size: NetworkSize) -> nn.Linear:
        return nn.Linear(size.conditioning_dim, n_vars)

    def bind(self, conditions: Conditions[Tensor]) -> Predictor:
        return lambda: self.network(self.embed_conditions(conditions, conditions.n_cells).vectors).log_softmax(1)


class Multinomial:
    """Cells are not corrupted, and drawn at once."""

    def score(self, log_shares: Tensor, counts: Tensor) -> Tensor:
        return -(counts * log_shares).sum(1) / counts.sum(1)

    def draw(self, shares: Tensor, library: Tensor, generator: torch.Generator | None) -> Tensor:
        drawn = torch.multinomial(shares, int(library.max()), replacement=True, generator=generator)
        there = torch.arange(drawn.shape[1]) < library[:, None]
        return torch.zeros_like(shares).scatter_add_(1, drawn, there.float())

    def guide(self, unconditional: Predictor, conditional: Sequence[Predictor], scales: Sequence[float]) -> Predictor:
        def log_shares() -> Tensor:
            base = unconditional()
            moves = [scale * (given() - base) for given, scale in zip(conditional, scales, strict=True)]
            return (base + sum(moves)).log_softmax(1)

        return log_shares


class MultinomialModule(DiffusionModule):
    process_name = "multinomial"
    process: Multinomial
    denoiser: LinearShares
    ema_denoiser: LinearShares

    def make_process(self) -> Multinomial:
        return Multinomial()

    def make_denoiser(self, features: Mapping[str, Tensor]) -> LinearShares:
        return LinearShares(self.n_vars, self.specs, self.size, features)

    def initialise(self, batches: Iterable[tuple[Tensor, Conditions[Tensor]]]) -> None:
        with torch.no_grad():
            total = sum(counts.to_dense().sum(0) for counts, _ in batches)
            for denoiser in self.denoisers:
                denoiser.network.bias.copy_((total / total.sum()).log())

    def loss(self, counts: Tensor, conditions: Conditions[Tensor]) -> LossOutput:
        return self._score(self.denoiser, counts, self.drop_conditions(conditions))

    def validation_loss(self, counts: Tensor, conditions: Conditions[Tensor], generator: torch.Generator) -> LossOutput:
        return self._score(self.ema_denoiser, counts, conditions)

    def _score(self, denoiser: LinearShares, counts: Tensor, conditions: Conditions[Tensor]) -> LossOutput:
        losses = self.process.score(denoiser.bind(conditions)(), counts.to_dense())
        return LossOutput(loss=losses.mean(), n_obs_minibatch=len(counts))

    def draw(
        self, predictor: Predictor, library: Tensor, *, n_steps: int, generator: torch.Generator | None = None
    ) -> Tensor:
        return self.process.draw(predictor().exp(), library, generator)

    def counterfactual(
        self, counts: Tensor, source: Conditions, after: Predictor, *, keep: float, **options: Any
    ) -> Tensor:
        return self.draw(after, self.library(counts), **options)

    @torch.no_grad()
    def expression(self, counts: Tensor, conditions: Conditions[Tensor]) -> Tensor:
        return self.ema_denoiser.bind(conditions)().exp()

    @torch.no_grad()
    def tokens(self, counts: Tensor, conditions: Conditions[Tensor]) -> Tensor:
        return self.ema_denoiser.embed_conditions(conditions, len(counts)).vectors[:, None]

    def hidden(self, counts: Tensor, conditions: Conditions[Tensor]) -> Tensor:
        return self.tokens(counts, conditions)

    def gene_weights(self) -> Tensor:
        return self.ema_denoiser.network.weight.detach().T[None]
