"""The API shows a picture of each function that draws; building the documentation makes them."""

from __future__ import annotations

import runpy
from pathlib import Path

import pytest

from scdiffgen import pl

CALLS = runpy.run_path(str(Path(__file__).parents[1] / "docs/pictures/calls.py"))["CALLS"]


def test_every_function_that_draws_has_a_picture_and_no_other() -> None:
    assert sorted(CALLS) == sorted(pl.__all__)


@pytest.mark.parametrize("name", CALLS)
def test_a_picture_is_drawn_by_its_function_in_the_last_line(name: str) -> None:
    assert CALLS[name].strip().splitlines()[-1].strip().startswith(f"scdiffgen.pl.{name}(")
