"""The default number of steps follows the depth of the training cells; a number that is given decides."""

from dataclasses import replace
from unittest.mock import patch

import pytest

from scdiffgen.model import TokenDiffusion, _model_access
from scdiffgen.model._model_access import enough_steps, sampler_of, training_summary


@pytest.mark.parametrize(("factor", "expected"), [(1, 16), (1000, 32)])
def test_shallow_cells_need_few_steps_and_deep_cells_many(small: TokenDiffusion, factor: int, expected: int) -> None:
    summary = training_summary(small)
    deep = replace(summary, library=summary.library * factor)
    with patch.object(_model_access, "training_summary", lambda model: deep):
        assert enough_steps(small) == expected
        assert sampler_of(small).n_steps == expected
        assert sampler_of(small, 5).n_steps == 5
    one, other = (small.generate(n_cells=5, n_steps=n, seed=0, silent=True).X.toarray() for n in (None, 16))
    assert (one == other).all()
