"""Weights of models with an urn, in today's form: the rates that they had."""

from __future__ import annotations

import numpy as np
import torch
from csr import csr
from module_parts import SIZE
from parts import unconditional
from torch.nn.functional import softplus

from scdiffgen.module import JointThinningModule

SIZES = (3, 2)
CELLS = np.array([[2, 0, 3, 100, 4], [0, 9, 1, 0, 70]])


def test_rates_are_those_of_the_urn_and_of_the_limited_prior() -> None:
    """As written down with these weights, up to a factor for each cell and modality."""
    torch.manual_seed(0)
    module = JointThinningModule({"X": 3, "X_prot": 2}, (), SIZE)
    weights = {name: torch.randn_like(value) for name, value in module.denoiser.state_dict().items()}
    of_form = [name for name in weights if name.startswith("overdispersion")]
    assert len(of_form) == 6
    for name in of_form:
        del weights[name]
    urn, concentration, limits = torch.randn(5), torch.tensor([0.3, -0.4]), torch.tensor([1.0, 2.0, 3.0, 2.5, 0.5])
    weights |= {
        "network.urn.weight_logits": urn,
        "network.urn.concentration.weight": torch.zeros(2, SIZE.conditioning_dim),
        "network.urn.concentration.bias": concentration,
        "limit.limited": torch.tensor([False, True]),
        "limit.log_limits": limits,
    }
    module.denoiser.load_state_dict(weights)
    cells, there = csr(CELLS), torch.tensor(CELLS).float()
    library = module.library(cells)
    with torch.no_grad():
        found = module.denoiser.bind(unconditional(2))(cells, 2 * library).log_prob(there).exp()
        logits = module.denoiser.bind_scores(unconditional(2))(cells, library, 2 * library).logits
    for kind, columns in enumerate((slice(0, 3), slice(3, 5))):
        expected = (library[:, [kind]] + 1) * logits[:, columns].softmax(1)
        own = softplus(urn[columns]) * torch.exp(-concentration[kind])
        share = (expected / limits[columns].exp()) if kind else torch.zeros(())
        own = own / (1 + own)
        rates = (1 - own) * (expected + share * there[:, columns]) / (1 + share) + own * there[:, columns]
        torch.testing.assert_close(found[:, columns], rates / rates.sum(1, keepdim=True), rtol=1e-4, atol=1e-6)
