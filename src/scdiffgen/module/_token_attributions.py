"""Attribution of predictions to tokens: contributions and gradients."""

from typing import NamedTuple

import torch
from torch import Tensor

from scdiffgen.diffusion import Blocks

from ._diffusion_module import DiffusionModule
from ._process_options import Given


class Contributions(NamedTuple):
    """Additive decomposition of gene scores; terms are centred over the genes of a modality, and sum to ``total``."""

    total: Tensor  # (cells, genes)
    tokens: Tensor  # (cells, tokens, genes)
    conditions: dict[str, Tensor]  # (cells, genes): read-out of conditions, and offsets of rare labels
    constant: Tensor  # (genes,)


@torch.no_grad()
def contributions(module: DiffusionModule, counts: Tensor, conditions: Given, genes: Tensor) -> Contributions:
    """Decompose the gene scores of ``genes`` (column positions) in uncorrupted cells, CSR ``(cells, genes)``."""
    total, of_conditions = module.code.gene_scores(module.ema_denoiser, counts, conditions)
    hidden, weights = module.hidden(counts, conditions), _centred(module.gene_weights(), module.blocks)
    return Contributions(
        total=_centred(total, module.blocks)[:, genes],
        tokens=torch.einsum("ctr,trg->ctg", hidden, weights[:, :, genes]),
        conditions={name: _centred(scores, module.blocks)[:, genes] for name, scores in of_conditions.items()},
        constant=_centred(module.readout().bias, module.blocks)[genes],
    )


def _centred(scores: Tensor, blocks: Blocks) -> Tensor:
    parts = [part - part.mean(-1, keepdim=True) for part in scores.split(blocks.sizes, -1)]
    return torch.cat(parts, dim=-1)


def activation_gradient(module: DiffusionModule, counts: Tensor, conditions: Given, directions: Tensor) -> Tensor:
    """Differentiate activations along ``directions`` by ``log1p(counts)``, summed over cells ``(tokens, genes)``."""
    encoder, hidden_of = module.code.encoder(module.ema_denoiser, counts, conditions)
    if encoder.functions is not None:
        raise ValueError(
            "An encoder that embeds expression has no gene weights: use `method='readout'`, or make and train "
            "a model with `expression_embedding=None`."
        )
    sums = encoder.read(counts).detach().requires_grad_()
    activation = torch.einsum("ctr,tr->t", hidden_of(sums), directions)
    gradients = [torch.autograd.grad(token, sums, retain_graph=True)[0].sum(0) for token in activation]
    return torch.stack(gradients) @ encoder.weight.T
