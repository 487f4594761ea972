"""What a model keeps of its training cells goes through a file as plain data, and comes back whole."""

from __future__ import annotations

import numpy as np
import pandas as pd

from scdiffgen.model import TokenDiffusion
from scdiffgen.model._training_runs import continued
from scdiffgen.model._training_summary import TrainingSummary, training_summary


def assert_equal(one: object, other: object) -> None:
    assert type(one) is type(other)
    if isinstance(one, dict):
        assert list(one) == list(other)
        for name in one:
            assert_equal(one[name], other[name])
    elif isinstance(one, tuple):
        for mine, theirs in zip(one, other, strict=True):
            assert_equal(mine, theirs)
    elif one is not None:
        np.testing.assert_array_equal(one, other)


def test_a_summary_comes_back_from_plain_data(small: TokenDiffusion) -> None:
    plain = small.training_summary_
    assert_equal(TrainingSummary.from_plain(plain).to_plain(), plain)
    summary = training_summary(small)
    assert len(summary.library) == summary.conditions.n_cells == 120


def test_epochs_of_a_second_training_follow_those_of_the_first() -> None:
    first, second = (pd.DataFrame({"validation_loss": [5.0]}, index=[i]).rename_axis("epoch") for i in (9, 3))
    history = {"train_loss": pd.DataFrame({"train_loss": range(10)}).rename_axis("epoch"), "validation_loss": first}
    joined = {"validation_loss": pd.concat([first, second])}
    assert continued(history, joined, {"validation_loss": second})["validation_loss"].index.tolist() == [9, 13]
