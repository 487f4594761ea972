"""Small modules under every kind of condition."""

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from module_parts import SIZE, SPECS, predict_shares
from parts import category, chosen, number
from torch import Tensor

from scdiffgen.conditions import Conditions, ConditionSpec
from scdiffgen.module import DiffusionModule
from scdiffgen.nn import NetworkOptions
from scdiffgen.nn._options import ConditioningKind


@pytest.fixture
def conditions() -> Conditions[Tensor]:
    """Of four cells: treated, a control, treated twice, treated at an unknown dose."""
    by_name = {
        "cell_type": category([0, 1, 2, 1]),
        "place": chosen([[0, 2], [0, 3], [1], [0, 2]]),
        "age": number([0.1, -1.0, 2.0, 0.5]),
        "drug": chosen([[0], [], [1, 2], [2]], [[1.0], [], [0.5, 2.0], [math.nan]]),
    }
    return Conditions(by_name, 4)


@pytest.fixture
def make_module() -> Callable[..., DiffusionModule]:
    """A module whose weights are all random, the averaged ones other than the trained ones; or a fresh one."""

    def make(
        n_genes: int = 12,
        specs: tuple[ConditionSpec, ...] = SPECS,
        *,
        fresh: bool = False,
        conditioning: ConditioningKind = "adaln",
        **arguments: Any,
    ) -> DiffusionModule:
        torch.manual_seed(0)
        options = NetworkOptions(conditioning=conditioning)
        module = DiffusionModule(n_genes, specs, replace(SIZE, readout_units=3, options=options), **arguments)
        for weight in module.parameters():
            if not fresh:
                torch.nn.init.normal_(weight, std=0.3)
        return module.eval()

    return make


@pytest.fixture
def make_multinomial(make_module: Callable[..., DiffusionModule]) -> Callable[[np.ndarray], DiffusionModule]:
    """A module that predicts given shares of the genes, whatever it sees."""

    def make(shares: np.ndarray) -> DiffusionModule:
        module = make_module(len(shares), ())
        for denoiser in (module.denoiser, module.ema_denoiser):
            predict_shares(denoiser, shares)
        return module

    return make
