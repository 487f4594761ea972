"""Every name that `NetworkOptions` takes is registered."""

from typing import Any, get_args

import pytest

from scdiffgen.nn import _options
from scdiffgen.nn._numbers import NUMBER_EMBEDDINGS
from scdiffgen.nn.variants._embedding_forms import FIXED_POSITIONS


@pytest.mark.parametrize(
    ("names", "forms"),
    [(_options.NumberKind, NUMBER_EMBEDDINGS), (_options.PositionKind, {"learned": None, **FIXED_POSITIONS})],
)
def test_names_and_forms_agree(names: Any, forms: dict[str, Any]) -> None:
    assert get_args(names) == tuple(forms)
