"""Small modules under every kind of condition."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from parts import category, chosen, number
from torch import Tensor

from scdiffgen._conditions import ConditionSpec, NumberTransform, Parts
from scdiffgen.module import TokenDiffusionModule
from scdiffgen.nn import ConditioningKind, NetworkSize

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


@pytest.fixture
def conditions() -> dict[str, Parts[Tensor]]:
    """Of four cells: treated, a control, treated twice, treated at an unknown dose."""
    return {
        "cell_type": category([0, 1, 2, 1]),
        "place": chosen([[0, 2], [0, 3], [1], [0, 2]]),
        "age": number([0.1, -1.0, 2.0, 0.5]),
        "drug": chosen([[0], [], [1, 2], [2]], [[1.0], [], [0.5, 2.0], [math.nan]]),
    }


@pytest.fixture
def make_module() -> Callable[..., TokenDiffusionModule]:
    """A module whose weights are all random, the averaged ones other than the trained ones; or a fresh one."""

    def make(
        n_genes: int = 12,
        specs: tuple[ConditionSpec, ...] = SPECS,
        *,
        fresh: bool = False,
        conditioning: ConditioningKind = "adaln",
        **arguments: Any,
    ) -> TokenDiffusionModule:
        torch.manual_seed(0)
        module = TokenDiffusionModule(n_genes, specs, replace(SIZE, conditioning=conditioning), **arguments)
        for weight in module.parameters():
            if not fresh:
                torch.nn.init.normal_(weight, std=0.3)
        return module.eval()

    return make


@pytest.fixture
def make_multinomial(make_module: Callable[..., TokenDiffusionModule]) -> Callable[[np.ndarray], TokenDiffusionModule]:
    """A module that predicts given shares of the genes whatever it sees: tokens say nothing, and there is no urn."""

    def make(shares: np.ndarray) -> TokenDiffusionModule:
        module = make_module(len(shares), ())
        for denoiser in (module.denoiser, module.ema_denoiser):
            readout = denoiser.network.readout
            with torch.no_grad():
                readout.gene_weights.zero_()
                readout.urn_logits.fill_(-torch.inf)
                readout.initialise_bias(torch.tensor(shares).float())
        return module

    return make
