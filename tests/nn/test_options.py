"""Choices and sizes that make no network are named."""

from typing import Any

import pytest

from scdiffgen.nn import NetworkOptions, NetworkSize


@pytest.mark.parametrize(
    ("options", "message"),
    [
        *(
            ({name: "nonsense"}, f"`{name}` is 'nonsense': pass one of")
            for name in ("conditioning", "positions", "attention_numbers")
        ),
        *(
            ({name: "nonsense"}, f"`{name}` is 'nonsense': pass one of")
            for name in ("number_embedding", "level_embedding")
        ),
        ({"expression_embedding": "log1p"}, r"`expression_embedding` is 'log1p': pass one of \['sinusoidal'.*None\]"),
        ({"attention_numbers": "rotated"}, r"`attention_numbers` is 'rotated', which has no effect .* Pass `cond"),
    ],
)
def test_choices_that_are_none_are_named(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        NetworkOptions(**options)


def test_a_negative_penalty_is_named() -> None:
    with pytest.raises(ValueError, match="`orthogonality` is -1"):
        NetworkOptions(orthogonality=-1)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"n_tokens": 0}, "`n_tokens` is 0"),
        ({"readout_dim": -1}, "`readout_dim` is -1: pass a whole number of at least 1"),
        ({"n_layers": -1}, "`n_layers` is -1"),
        ({"token_dim": 11}, r"`token_dim` is 11, not a multiple of the 2 attention .*NetworkOptions\(n_heads=1\)"),
        ({"dropout": 1.0}, r"`dropout` is 1.0: pass a share in \[0, 1\)"),
        ({"dropout": -0.1}, "`dropout` is -0.1"),
    ],
)
def test_sizes_that_make_no_network_are_named(wrong: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        NetworkSize(**wrong)
