"""What a constructor answers to arguments that it does not have; its signature stays as it was."""

from __future__ import annotations

import inspect

import pytest

from scdiffgen._arguments import explain_unknown_arguments


class Bottle:
    @explain_unknown_arguments({"colour": "It is a property of the glass."})
    def __init__(self, volume: float, label: str = "none") -> None:
        self.volume, self.label = volume, label


@pytest.mark.parametrize(
    ("argument", "message"),
    [
        ("volum", "`Bottle` has no argument 'volum'. Did you mean 'volume'?"),
        ("colour", "`Bottle` has no argument 'colour'. It is a property of the glass."),
        ("color", "`Bottle` has no argument 'color'. Did you mean 'colour'?"),
        ("xyz", "`Bottle` has no argument 'xyz'."),
    ],
)
def test_the_nearest_argument_or_its_new_place_is_named(argument: str, message: str) -> None:
    with pytest.raises(TypeError) as raised:
        Bottle(1.0, **{argument: 2})
    assert str(raised.value) == message


def test_the_signature_and_what_it_makes_stay() -> None:
    assert list(inspect.signature(Bottle).parameters) == ["volume", "label"]
    assert vars(Bottle(1.0, label="red")) == vars(Bottle(volume=1.0, label="red")) == {"volume": 1.0, "label": "red"}
    with pytest.raises(TypeError, match="missing 1 required positional argument: 'volume'"):
        Bottle()
