"""Transforms of numbers against scikit-learn and NumPy, for arrays and tensors alike."""

import pickle
from typing import get_args

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from sklearn.preprocessing import StandardScaler

from scdiffgen.conditions import NumberTransform
from scdiffgen.conditions._conditions import TransformKind

KINDS = get_args(TransformKind)
DOSES = np.array([0.0, 0.1, 1.0, 10.0, 1000.0, np.nan])


def test_standardise_is_sklearns_scaler() -> None:
    values = np.random.default_rng(0).normal(40, 13, 200)
    expected = StandardScaler().fit_transform(values[:, None])[:, 0]
    np.testing.assert_allclose(NumberTransform.fit(values, "standardise")(values), expected, rtol=1e-10)


def test_logarithms_are_in_units_of_the_median_positive_value() -> None:
    assert NumberTransform.fit(DOSES, "log1p").scale == np.median([0.1, 1.0, 10.0, 1000.0])
    log1p = NumberTransform.fit(DOSES, "log1p")
    np.testing.assert_allclose(log1p(np.array([0.0, 5.5])), [0.0, np.log(2)])


@pytest.mark.parametrize("kind", KINDS)
def test_arrays_and_tensors_agree_and_nan_stays_nan(kind: TransformKind) -> None:
    transform = pickle.loads(pickle.dumps(NumberTransform.fit(DOSES, kind, unit="uM")))
    array = transform(DOSES / 1001)
    tensor = transform(torch.tensor(DOSES / 1001, dtype=torch.float64))
    assert isinstance(array, np.ndarray)
    np.testing.assert_allclose(tensor.numpy(), array)
    assert np.isnan(array[-1])


@pytest.mark.parametrize("kind", KINDS)
@given(value=st.floats(0.06, 990.0), other=st.floats(0.06, 990.0))
def test_order_is_kept(kind: TransformKind, value: float, other: float) -> None:
    transform = NumberTransform.fit(DOSES, kind)
    values = np.array([value, other])
    transformed = transform(values)
    assert np.sign(np.diff(transformed)) * np.sign(np.diff(values)) >= 0


@pytest.mark.parametrize("kind", KINDS)
def test_constant_values_have_a_finite_transform(kind: TransformKind) -> None:
    zeros = np.zeros(5)
    assert np.isfinite(NumberTransform.fit(zeros, kind)(zeros)).all()
    threes = np.full(5, 3.0)
    assert np.isfinite(NumberTransform.fit(threes, kind)(threes)).all()


def test_gradients_pass_through() -> None:
    values = torch.tensor([1.0, 2.0], requires_grad=True)
    NumberTransform("log1p", scale=2.0)(values).sum().backward()
    torch.testing.assert_close(values.grad, 1 / (2.0 + values.detach()))
