"""Tokens in another order: all weights with an axis of tokens are permuted, and predictions stay the same."""

from operator import attrgetter

import torch
from torch import Tensor, nn

from scdiffgen.nn import AdditiveReadout, CountEncoder, EffectNetwork, TokenTrunk

Axes = dict[type[nn.Module], dict[str, int]]
"""Which axis of which parameters and buffers."""

TOKEN_AXES: Axes = {
    CountEncoder: {"to_tokens.weight": 0, "to_tokens.bias": 0},
    TokenTrunk: {"positions": 0},
    AdditiveReadout: dict.fromkeys(("heads", "units", "unit_biases", "gene_weights", "unit_weights"), 0),
    EffectNetwork: {"heads": 0, "gene_weights": 0, "interaction_weights": 0},
}
"""Axes of the tokens, or of all numbers of the tokens side by side."""

GENE_AXES: Axes = {
    CountEncoder: {"weight": 0},
    AdditiveReadout: {"gene_weights": 1, "unit_weights": 1, "bias": 0},
    EffectNetwork: {"gene_weights": 1, "interaction_weights": 1},
}
"""Axes of the genes, which in a network of latent tokens are the numbers of these tokens side by side."""


def permute_weights(network: nn.Module, order: Tensor, axes: Axes) -> None:
    """Permute all weights of a network along these axes; the inverse order undoes it exactly."""
    for part in network.modules():
        for name, axis in axes.get(type(part), {}).items():
            weight = attrgetter(name)(part)
            if weight is not None:  # as interactions, where there is one intervention a cell
                permute_tokens(weight, order, axis)


@torch.no_grad()
def permute_tokens(weight: Tensor, order: Tensor, axis: int = 0) -> None:
    """Permute the equal blocks of an axis in place, one for each token: block ``order[k]`` becomes the ``k``-th."""
    blocks = weight.unflatten(axis, (len(order), -1))
    weight.copy_(blocks.index_select(axis, order.to(weight.device)).flatten(axis, axis + 1))
