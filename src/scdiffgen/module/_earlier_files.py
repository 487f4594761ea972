"""Weights of models that were saved when own molecules of a gene had one weight each, in today's form."""

from __future__ import annotations

from collections.abc import MutableMapping

import torch
from torch import Tensor

from scdiffgen.nn import Overdispersion
from scdiffgen.nn._overdispersion import FASTER

NOTHING = -10.0  # a logarithm, in the units in which a dispersion or a slope is trained


def convert_urn(weights: MutableMapping[str, Tensor], prefix: str, overdispersion: Overdispersion) -> None:
    r"""Turn weights of a denoiser with an urn into those that :class:`Overdispersion` takes; others stay as they are.

    Rates were :math:`e^a (n + 1)\, \text{softmax} + w x`, where the prior of some modalities counted for no more than
    so many molecules. What :math:`a` took from the conditions is left out, which no dispersion could say.
    """
    if prefix + "network.urn.weight_logits" not in weights:
        return
    urn, limits = prefix + "network.urn.", prefix + "limit."
    own, bias = (weights.pop(urn + name) for name in ("weight_logits", "concentration.bias"))
    weights.pop(urn + "concentration.weight")
    form = {name: torch.zeros_like(value) for name, value in overdispersion.state_dict().items()}
    sizes = torch.tensor(overdispersion.sizes)
    log_weights = torch.nn.functional.softplus(own).log()
    form["least_logits"] = (log_weights - bias.repeat_interleave(sizes)).clamp(min=-20)
    form["slopes"].fill_(NOTHING)
    form["log_dispersions"].fill_(NOTHING)
    if limits + "limited" in weights:
        is_limited = weights.pop(limits + "limited").repeat_interleave(sizes)
        form["log_dispersions"][is_limited] = -weights.pop(limits + "log_limits")[is_limited] / FASTER
    weights.update({f"{prefix}overdispersion.{name}": value for name, value in form.items()})
