"""Every name that `NetworkOptions` takes is there, and the default network imports none of the alternatives."""

import subprocess
import sys
from typing import get_args, get_type_hints

import pytest

from scdiffgen.nn import NetworkOptions
from scdiffgen.nn.variants import VARIANTS, variant

WITHOUT_FILE = {"conditioning": {"concat"}}  # within the transformer


@pytest.mark.parametrize("option", VARIANTS)
def test_names_and_forms_agree(option: str) -> None:
    names = {*get_args(get_type_hints(NetworkOptions)[option])}
    alternatives = names - {getattr(NetworkOptions(), option)} - WITHOUT_FILE.get(option, set())
    assert {*VARIANTS[option]} == {name for name in alternatives if name is not type(None)}
    assert all(callable(variant(option, name)) for name in VARIANTS[option])


def test_default_network_imports_no_alternative() -> None:
    code = """
import sys, scdiffgen.nn as nn
nn.TokenNetwork(5, nn.NetworkSize())
print([name for name in sys.modules if name.startswith("scdiffgen.nn.variants._")])
"""
    finished = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert finished.stdout.strip() == "[]"
