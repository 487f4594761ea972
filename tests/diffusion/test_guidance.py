"""Guidance: its ends, and the straight line between them in log space."""

from dataclasses import dataclass

import numpy as np
import pytest
import torch
from scipy.special import log_softmax
from torch import Tensor

from scdiffgen.diffusion import MoleculePrediction
from scdiffgen.module import guide


@dataclass(frozen=True)
class Fixed(MoleculePrediction):
    """A prediction that does not look at the state."""

    logits: Tensor

    def log_prob(self, state: Tensor) -> Tensor:
        return self.logits.log_softmax(1)

    def rates_at(self, state: Tensor) -> Tensor:
        return self.logits.exp()

    def draw(self, rates: Tensor, n_molecules: Tensor, generator: torch.Generator | None = None) -> Tensor:
        raise NotImplementedError


LOGITS = {name: torch.tensor(np.random.default_rng(i).normal(size=(4, 6))) for i, name in enumerate("uab")}
STATE, LIBRARY = torch.zeros(4, 6), torch.ones(4)


def predictor(name: str):
    return lambda state, library: Fixed(LOGITS[name])


def guided(names: str, scales: list[float]) -> np.ndarray:
    return guide(predictor("u"), [predictor(n) for n in names], scales)(STATE, LIBRARY).log_prob(STATE).numpy()


@pytest.mark.parametrize(("scale", "name"), [(0.0, "u"), (1.0, "a")])
def test_scale_0_is_unconditional_and_scale_1_conditional(scale: float, name: str) -> None:
    np.testing.assert_allclose(guided("a", [scale]), log_softmax(LOGITS[name], axis=1))


@pytest.mark.parametrize("scale", [0.3, 1.7, 4.0])
def test_log_odds_are_linear_in_the_scale(scale: float) -> None:
    log_prob = guided("a", [scale])
    odds = log_prob - log_prob[:, :1]
    line = (1 - scale) * LOGITS["u"] + scale * LOGITS["a"]
    np.testing.assert_allclose(odds, line - line[:, :1])
    np.testing.assert_allclose(np.exp(log_prob).sum(1), 1)


def test_each_condition_has_its_own_scale() -> None:
    line = LOGITS["u"] + 0.5 * (LOGITS["a"] - LOGITS["u"]) + 2.0 * (LOGITS["b"] - LOGITS["u"])
    np.testing.assert_allclose(guided("ab", [0.5, 2.0]), log_softmax(line, axis=1))
    np.testing.assert_allclose(guided("ab", [0.0, 1.0]), guided("b", [1.0]))


def test_a_single_scale_of_1_evaluates_one_predictor_only() -> None:
    def fail(state: Tensor, library: Tensor) -> Fixed:
        raise AssertionError("evaluated")

    guide(fail, [predictor("a")], [1.0])(STATE, LIBRARY)
    with pytest.raises(AssertionError, match="evaluated"):
        guide(fail, [predictor("a")], [1.1])(STATE, LIBRARY)
