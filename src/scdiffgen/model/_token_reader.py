"""What the tokens do in the network."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from scvi.model.base import BaseModelClass

from scdiffgen._stored_tokens import UNS_KEY, check_tokens, numbered_tokens
from scdiffgen.module import (
    DiffusionModule,
    ThinningModule,
    TokenBasis,
    activation_gradient,
    attention_weights,
    contributions,
    encoder_weights,
    loadings_in_group,
)

from ._cells import Cells
from ._checks import is_finite_number
from ._model_access import weights_id
from ._training_summary import hidden_moments, training_summary

if TYPE_CHECKING:
    from anndata import AnnData
    from mudata import MuData

NOT_ADDITIVE = (
    "The tokens of this model do not add up to the scores of the genes, so they have no loadings and activations: make "
    "and train one with `network=NetworkOptions(readout=ReadoutOptions())`."
)


@dataclass(frozen=True)
class TokenReader:
    """The tokens of a trained module with an additive read-out."""

    module: DiffusionModule
    basis: TokenBasis

    @property
    def names(self) -> list[str]:
        """Names of the tokens."""
        return numbered_tokens(len(self.basis.explained))

    def require_sum(self) -> None:
        """Raise if tokens do not add up in the log-rates."""
        pooling = self.module.size.options.readout.pooling
        if pooling != "sum":
            raise ValueError(f"The tokens are pooled by {pooling!r}, so log-rates are no sum over them.")

    def activation(self, cells: Cells) -> np.ndarray:
        """Activations ``(cells, tokens)``."""
        return cells.in_order([self.basis.activation(self.module.hidden(*batch).cpu().numpy()) for batch in cells])

    def loadings_in(self, cells: Cells) -> np.ndarray:
        """Loadings ``(genes, tokens)`` within some cells."""
        return loadings_in_group(self.basis, hidden_moments(cells), self._weights())

    def encoder_loadings(self, module: ThinningModule) -> np.ndarray:
        """Weights of the genes on the activations ``(genes, tokens)`` along the encoder's linear maps."""
        return encoder_weights(module.ema_denoiser, self._directions()).cpu().numpy().T

    def gradient_loadings(self, module: ThinningModule, cells: Cells) -> np.ndarray:
        """Mean gradient of the activations over some cells ``(genes, tokens)``."""
        directions = self._directions()
        sums = [activation_gradient(module.ema_denoiser, *batch, directions).cpu().numpy() for batch in cells]
        return (np.sum(sums, axis=0) / len(cells.indices)).T

    def contributions(
        self, module: ThinningModule, cells: Cells, columns: np.ndarray
    ) -> tuple[dict[str, np.ndarray], np.ndarray]:
        """Log-rates ``X`` of some genes, what each token and effect adds ``(cells, genes)``; and the baseline."""
        chosen = torch.from_numpy(columns).to(module.device)
        weights = self._weights()
        mean = np.einsum("trg,tr->tg", (weights - weights.mean(2, keepdims=True))[:, :, columns], self.basis.mean)
        rows: dict[str, list[np.ndarray]] = defaultdict(list)
        for counts, conditions in cells:
            found = contributions(module.ema_denoiser, counts, conditions, chosen)
            rows["X"].append(found.total.cpu().numpy())
            of_tokens = found.tokens.cpu().numpy() - mean
            for name, added in zip(self.names, of_tokens.swapaxes(0, 1), strict=True):
                rows[name].append(added.astype(np.float32))
            for name in module.ema_denoiser.effect_names:
                rows[name].append(found.effects.get(name, torch.zeros_like(found.total)).cpu().numpy())
        terms = {name: cells.in_order(parts) for name, parts in rows.items()}
        return terms, found.constant.cpu().numpy() + mean.sum(0)

    def attention(
        self, module: ThinningModule, cells: Cells, levels: Sequence[float], generator: torch.Generator
    ) -> np.ndarray:
        """Attention of tokens to tokens ``(levels, layers, tokens, tokens)``, mean over heads and cells."""
        blocks, n_tokens = module.ema_denoiser.network.trunk.transformer.blocks, len(self.names)
        total = np.zeros((len(levels), len(blocks), n_tokens, n_tokens))
        for counts, conditions in cells:
            for position, level in enumerate(levels):
                kept = module.keep(counts, level, generator)
                total[position] += attention_weights(module.ema_denoiser, kept, conditions).sum(1).cpu().numpy()
        return total / len(cells.indices)

    def held(self, module: ThinningModule, levels: Mapping[str, float]) -> ThinningModule:
        """A copy of the module with tokens held at fixed activations."""
        check_tokens(list(levels), self.names, "levels")
        held = deepcopy(module)
        readout = held.ema_denoiser.network.additive_readout
        for token, level in levels.items():
            if not is_finite_number(level):
                raise ValueError(f"`levels` holds {level!r} for {token!r}: pass a number of standard deviations.")
            position = self.names.index(token)
            added = self.basis.mean[position] @ self._weights()[position] + level * self.basis.loadings[:, position]
            readout.hold(position, torch.from_numpy(added).float().to(module.device))
        return held

    def about(self, adata: AnnData | MuData) -> dict[str, Any]:
        """What ``.uns["scdiffgen"]`` holds of the tokens; names that the user gave to those of this model stay."""
        return {
            "tokens": np.asarray(self.names, dtype=object),
            "explained": self.basis.explained,
            "first_direction": self.basis.first_direction,
            "method": "readout",
            "model_id": weights_id(self.module),
            "annotation": self.annotation_in(adata),
        }

    def annotation_in(self, adata: AnnData | MuData) -> dict[str, str]:
        """Names that the user gave to the tokens of this model."""
        stored = adata.uns.get(UNS_KEY, {})
        return dict(stored.get("annotation", {})) if stored.get("model_id") == weights_id(self.module) else {}

    def _weights(self) -> np.ndarray:
        """Weights of the genes on the hidden vectors ``(tokens, readout_dim, genes)``."""
        return self.module.gene_weights().cpu().numpy()  # type: ignore[union-attr]  # there is an additive read-out

    def _directions(self) -> torch.Tensor:
        """Directions ``(tokens, readout_dim)`` of the activations."""
        return torch.from_numpy(self.basis.directions).float().to(self.module.device)


def token_reader(model: BaseModelClass) -> TokenReader:
    """The reader of a model's tokens; raise if they do not add up to the scores of the genes."""
    basis = training_summary(model).token_basis
    if basis is None:
        raise ValueError(NOT_ADDITIVE)
    return TokenReader(model.module, basis)
