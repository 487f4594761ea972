"""A small network, conditions of every kind, and predictions that do not depend on the cell."""

import numpy as np
import torch

from scdiffgen.conditions import ConditionSpec, NumberTransform
from scdiffgen.module import UrnDenoiser
from scdiffgen.nn import NetworkSize

SIZE = NetworkSize(
    n_tokens=2, token_dim=8, n_layers=1, n_heads=2, n_hidden=16, readout_dim=4, conditioning_dim=8, dropout=0.0
)
SPECS = (
    ConditionSpec("cell_type", "category", registry_key="labels", n_categories=3),
    ConditionSpec("place", "hierarchy", registry_key="hierarchy", n_categories=4, n_slots=2),
    ConditionSpec("age", "number", registry_key="covariates", has_values=True),
    ConditionSpec(
        "drug",
        "set",
        "intervention",
        registry_key="perturbation",
        n_categories=3,
        n_slots=2,
        has_values=True,
        transform=NumberTransform("log1p", scale=1.0),
    ),
)


@torch.no_grad()
def predict_shares(denoiser: UrnDenoiser, shares: np.ndarray) -> None:
    """Let a denoiser predict given shares of the genes, whatever it sees: tokens say nothing, and there is no urn."""
    denoiser.network.readout.gene_weights.zero_()
    denoiser.network.readout.unit_weights.zero_()
    denoiser.network.urn.weight_logits.fill_(-torch.inf)
    denoiser.network.readout.initialise_bias(torch.tensor(shares).float())
