"""Parameters that are described once stand in every docstring that names them, each exactly once."""

import inspect
import re
from collections import Counter
from collections.abc import Iterator

import pytest

import scdiffgen
from scdiffgen._shared_docs import ENTRIES, PLACEHOLDER, shared_docs
from scdiffgen.model import TokenDiffusion

PACKAGES = (scdiffgen.datasets, scdiffgen.metrics, scdiffgen.model, scdiffgen.pl, scdiffgen.tl)


def _public() -> Iterator[tuple[str, object]]:
    for package in PACKAGES:
        yield from ((f"{package.__name__}.{name}", getattr(package, name)) for name in package.__all__)
    yield from ((name, getattr(TokenDiffusion, name)) for name in dir(TokenDiffusion) if not name.startswith("_"))


def _section(docstring: str, title: str) -> list[str]:
    """Names that head the entries of a section."""
    lines = docstring.splitlines()
    start = next((i + 2 for i in range(len(lines) - 1) if lines[i] == title and set(lines[i + 1]) == {"-"}), len(lines))
    ends = [i - 1 for i in range(start + 1, len(lines)) if lines[i] and set(lines[i]) == {"-"}]
    body = lines[start : min(ends, default=len(lines))]
    return [name for line in body if line and not line.startswith(" ") for name in line.split(", ")]


@pytest.mark.parametrize(("name", "documented"), list(_public()))
def test_no_placeholder_is_left_and_every_parameter_is_described_once(name: str, documented: object) -> None:
    docstring = inspect.getdoc(documented) or ""
    assert PLACEHOLDER.search(docstring) is None
    ours = getattr(documented, "__module__", "").startswith("scdiffgen.") and "metrics" not in name
    if ours and (inspect.isfunction(documented) or inspect.ismethod(documented)):
        described = Counter(name.strip("*") for name in _section(docstring, "Parameters"))
        assert described == Counter(name for name in inspect.signature(documented).parameters if name != "self")


def test_what_has_no_entry_raises_when_the_function_is_made() -> None:
    def misspelt(adata: object) -> None:
        """Do something.

        {adatas}
        """

    def forgotten(what: int) -> None:
        """Do something.

        Returns
        -------
        Nothing.
        """

    for function, message in ((misspelt, r"misspelt.*\{adatas\}.*adata"), (forgotten, r"forgotten.*what")):
        with pytest.raises(KeyError, match=message):
            shared_docs(function)


def test_without_docstrings_nothing_happens() -> None:
    def bare() -> None: ...

    assert shared_docs(bare).__doc__ is None


@pytest.mark.parametrize("name", ENTRIES)
def test_an_entry_is_a_name_and_what_it_means(name: str) -> None:
    entry = r"(Raises\n------\n)?(\w+(, \w+)*\n( {4}\S.*\n)+)+"
    assert re.fullmatch(entry, ENTRIES[name] + "\n")
