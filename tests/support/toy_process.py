"""A process of another kind, to show that one file and a line in the registry are all that a process takes.

Nothing is corrupted: a cell is one draw from a multinomial whose logits are linear in its conditions.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import torch
from scvi.module.base import LossOutput
from torch import Tensor, nn

from scdiffgen.module import ConditionedDenoiser, DiffusionModule, Predictor
from scdiffgen.nn import NetworkSize


class LinearShares(ConditionedDenoiser):
    """Conditions to shares of the genes."""

    network: nn.Linear

    def make_network(self, n_vars: int, size: NetworkSize) -> nn.Linear:
        return nn.Linear(size.conditioning_dim, n_vars)

    def forward(self, conditions: Mapping[str, Any], n_cells: int) -> Tensor:
        return self.network(self.embed_conditions(conditions, n_cells)).log_softmax(1)


class MultinomialModule(DiffusionModule):
    process = "multinomial"
    denoiser: LinearShares
    ema_denoiser: LinearShares

    def make_denoiser(self, *arguments: Any) -> LinearShares:
        return LinearShares(*arguments)

    def initialise(self, batches: Iterable[tuple[Tensor, Mapping[str, Any]]]) -> None:
        with torch.no_grad():
            total = sum(counts.to_dense().sum(0) for counts, _ in batches)
            for denoiser in (self.denoiser, self.ema_denoiser):
                denoiser.network.bias.copy_((total / total.sum()).log())

    def loss(self, counts: Tensor, conditions: Mapping[str, Any]) -> LossOutput:
        return self._score(self.denoiser, counts, conditions.drop(self.withhold_rate))

    def validation_loss(self, counts: Tensor, conditions: Mapping[str, Any], generator: torch.Generator) -> LossOutput:
        return self._score(self.ema_denoiser, counts, conditions)

    def _score(self, denoiser: LinearShares, counts: Tensor, conditions: Mapping[str, Any]) -> LossOutput:
        n_cells = counts.shape[0]
        losses = -(counts.to_dense() * denoiser(conditions, n_cells)).sum(1) / self.library(counts)
        return LossOutput(loss=losses.mean(), n_obs_minibatch=n_cells)

    def bind(self, conditions: Mapping[str, Any], n_cells: int, effect_scale: float) -> Predictor:
        return lambda: self.ema_denoiser(conditions, n_cells)

    def guide(self, unconditional: Predictor, conditional: Sequence[Predictor], scales: Sequence[float]) -> Predictor:
        def log_shares() -> Tensor:
            base = unconditional()
            moves = [scale * (told() - base) for told, scale in zip(conditional, scales, strict=True)]
            return (base + sum(moves)).log_softmax(1)

        return log_shares

    def draw(
        self, predictor: Predictor, library: Tensor, *, n_steps: int, generator: torch.Generator | None = None
    ) -> Tensor:
        drawn = torch.multinomial(predictor().exp(), int(library.max()), replacement=True, generator=generator)
        there = torch.arange(drawn.shape[1]) < library[:, None]
        return torch.zeros(len(library), self.n_vars).scatter_add_(1, drawn, there.float())

    def counterfactual(
        self, counts: Tensor, own: Mapping[str, Any], asked: Mapping[str, Any], *, keep: float, **options: Any
    ) -> Tensor:
        return self.generate(asked, self.library(counts), **options)

    @torch.no_grad()
    def expression(self, counts: Tensor, conditions: Mapping[str, Any]) -> Tensor:
        return self.ema_denoiser(conditions, counts.shape[0]).exp()

    @torch.no_grad()
    def tokens(self, counts: Tensor, conditions: Mapping[str, Any]) -> Tensor:
        return self.ema_denoiser.embed_conditions(conditions, counts.shape[0])[:, None]

    def hidden(self, counts: Tensor, conditions: Mapping[str, Any]) -> Tensor:
        return self.tokens(counts, conditions)

    def gene_weights(self) -> Tensor:
        return self.ema_denoiser.network.weight.detach().T[None]
