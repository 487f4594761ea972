"""What every test needs, and no example in a docstring."""

from collections.abc import Iterator
from inspect import signature

import pytest


@pytest.fixture(scope="session", autouse=True)
def _few_trees() -> Iterator[None]:
    """Forests of ten trees where a test does not choose: they take most of the time of an evaluation."""
    from scdiffgen.metrics import _comparison, evaluate

    score, default = _comparison.cross_validated_scores, signature(evaluate).parameters["n_trees"].default
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            _comparison,
            "cross_validated_scores",
            lambda *given, n_trees, **options: score(*given, n_trees=10 if n_trees == default else n_trees, **options),
        )
        yield
