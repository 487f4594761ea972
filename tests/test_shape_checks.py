"""The shapes in annotations are checked while the tests run."""

import pytest
import torch
from jaxtyping import Float, TypeCheckError, jaxtyped
from shape_checks import check
from torch import Tensor

from scdiffgen.nn import UniversalCombination


@jaxtyped(typechecker=check)
def column_means(x: Float[Tensor, "cells genes"], how: int) -> Float[Tensor, " genes"]:
    return x.mean(0, keepdim=how == "wrong")


def test_shapes_are_checked_and_other_annotations_are_not() -> None:
    column_means(torch.zeros(3, 2), how="right")
    with pytest.raises(TypeCheckError, match="the parameters of"):
        column_means(torch.zeros(3), how="right")
    with pytest.raises(TypeCheckError, match="the return value of"):
        column_means(torch.zeros(3, 2), how="wrong")


def test_networks_are_under_the_check() -> None:
    with pytest.raises(TypeCheckError, match="UniversalCombination.forward"):
        UniversalCombination.forward(None, torch.zeros(3))
