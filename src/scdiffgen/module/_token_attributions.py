"""Attribution of predictions to tokens: contributions and gradients."""

from typing import NamedTuple

import torch
from torch import Tensor

from ._denoiser import Denoiser
from ._processes import Given


class Contributions(NamedTuple):
    """Additive decomposition of log-rates; each term is centred over all genes, and the terms sum to ``total``."""

    total: Tensor  # (cells, genes)
    tokens: Tensor  # (cells, tokens, genes)
    conditions: dict[str, Tensor]  # (cells, genes): read-out of conditions, and offsets of rare labels
    constant: Tensor  # (genes,)


@torch.no_grad()
def contributions(denoiser: Denoiser, counts: Tensor, conditions: Given, genes: Tensor) -> Contributions:
    """Decompose the log-rates of ``genes`` (column positions) in uncorrupted cells, CSR ``(cells, genes)``."""
    readout = denoiser.network.readout
    library = denoiser.library(counts)
    embedded = denoiser.embed_conditions(conditions, len(library))
    of_conditions, weights = denoiser.condition_scores(conditions, embedded), readout.loadings()
    weights = (weights - weights.mean(2, keepdim=True))[:, :, genes]
    hidden = readout.hidden(denoiser.network.tokens(counts, library, library, *embedded))
    return Contributions(
        total=_centred(denoiser.bind_scores(conditions)(counts, library).logits)[:, genes],
        tokens=torch.einsum("ctr,trg->ctg", hidden, weights),
        conditions={name: _centred(scores)[:, genes] for name, scores in of_conditions.items()},
        constant=_centred(readout.bias[None])[0, genes],
    )


def _centred(scores: Tensor) -> Tensor:
    return scores - scores.mean(1, keepdim=True)


def activation_gradient(denoiser: Denoiser, counts: Tensor, conditions: Given, directions: Tensor) -> Tensor:
    """Differentiate activations along ``directions`` by ``log1p(counts)``, summed over cells ``(tokens, genes)``."""
    network, encoder = denoiser.network, denoiser.network.trunk.encoder
    if encoder.functions is not None:
        raise ValueError(
            "An encoder that embeds expression has no gene weights: use `method='readout'`, or make and train "
            "a model with `expression_embedding=None`."
        )
    library = denoiser.library(counts)
    conditioning = network.trunk.conditioning(library, library, *denoiser.embed_conditions(conditions, len(library)))
    sums = encoder.read(counts).detach().requires_grad_()
    hidden = network.readout.hidden(network.trunk(sums, conditioning))
    activation = torch.einsum("ctr,tr->t", hidden, directions)
    gradients = [torch.autograd.grad(token, sums, retain_graph=True)[0].sum(0) for token in activation]
    return torch.stack(gradients) @ encoder.weight.T
