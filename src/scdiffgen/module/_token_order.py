"""Permutation of tokens: all weights with a token axis are permuted, so predictions do not change."""

from operator import attrgetter

import torch
from torch import Tensor, nn

from scdiffgen.nn import AdditiveReadout, CountEncoder, TokenTrunk

Axes = dict[type[nn.Module], dict[str, int]]
"""Axes of parameters and buffers, by module class and name."""

TOKEN_AXES: Axes = {
    CountEncoder: {"to_tokens.weight": 0, "to_tokens.bias": 0},
    TokenTrunk: {"positions": 0},
    AdditiveReadout: dict.fromkeys(("heads", "units", "unit_biases", "gene_weights", "unit_weights"), 0),
}
"""Axes of tokens, or of their concatenated entries."""

GENE_AXES: Axes = {
    CountEncoder: {"weight": 0},
    AdditiveReadout: {"gene_weights": 1, "unit_weights": 1, "bias": 0},
}
"""Axes of genes; in a network of latent tokens, these are the concatenated entries of the tokens."""


def permute_weights(network: nn.Module, order: Tensor, axes: Axes) -> None:
    """Permute all weights of a network along the given axes; the inverse order restores them exactly."""
    for part in network.modules():
        for name, axis in axes.get(type(part), {}).items():
            permute_tokens(attrgetter(name)(part), order, axis)


@torch.no_grad()
def permute_tokens(weight: Tensor, order: Tensor, axis: int = 0) -> None:
    """Permute the blocks of an axis in place, one block per token: block ``order[k]`` becomes the ``k``-th."""
    blocks = weight.unflatten(axis, (len(order), -1))
    weight.copy_(blocks.index_select(axis, order.to(weight.device)).flatten(axis, axis + 1))
