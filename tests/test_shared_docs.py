"""Parameters that are described once stand in every docstring that names them, each exactly once."""

from __future__ import annotations

import doctest
import inspect
import re
from collections import Counter
from collections.abc import Callable, Iterator

import pytest

import scdiffgen
from scdiffgen._shared_docs import (
    _FIGURES,
    _METRICS,
    _MODEL,
    _RAISES,
    _TOGETHER,
    ENTRIES,
    PLACEHOLDER,
    _read,
    shared_docs,
)
from scdiffgen.model import TokenDiffusion

PACKAGES = (scdiffgen.datasets, scdiffgen.metrics, scdiffgen.model, scdiffgen.pl, scdiffgen.tl)


def _public() -> Iterator[tuple[str, object]]:
    for package in PACKAGES:
        yield from ((f"{package.__name__}.{name}", getattr(package, name)) for name in package.__all__)
    yield from ((name, getattr(TokenDiffusion, name)) for name in dir(TokenDiffusion) if not name.startswith("_"))


def _functions() -> list[Callable]:
    named = [getattr(package, name) for package in (scdiffgen.pl, scdiffgen.tl) for name in package.__all__]
    return [function for function in named if inspect.isfunction(function)]


def _section(docstring: str, title: str) -> list[str]:
    """Names that head the entries of a section."""
    lines = docstring.splitlines()
    start = next((i + 2 for i in range(len(lines) - 1) if lines[i] == title and set(lines[i + 1]) == {"-"}), len(lines))
    ends = [i - 1 for i in range(start + 1, len(lines)) if lines[i] and set(lines[i]) == {"-"}]
    body = lines[start : min(ends, default=len(lines))]
    return [name for line in body if line and not line.startswith(" ") for name in line.split(", ")]


@shared_docs
def _described(adata: object, silent: bool) -> None:
    """Do something.

    Parameters
    ----------
    {adata}
    {silent}

    Raises
    ------
    ValueError
        If {silent} is in a sentence.
    {raises_untrained}

    Examples
    --------
    >>> {"adata": 1}
    {'adata': 1}
    """


class _Holder:
    @shared_docs
    def method(self, silent: bool) -> None:
        """Do something.

        Parameters
        ----------
        {silent}
        """

    @classmethod
    @shared_docs
    def of_class(cls, seed: int) -> None:
        """Do something.

        Parameters
        ----------
        {seed}
        """


def test_entries_stand_where_they_are_named() -> None:
    assert inspect.getdoc(_described) == inspect.cleandoc(
        """
        Do something.

        Parameters
        ----------
        adata
            Cells; by default those the model was made with.
        silent
            Whether no progress bar is shown.

        Raises
        ------
        ValueError
            If {silent} is in a sentence.
        RuntimeError
            If the model is not trained.

        Examples
        --------
        >>> {"adata": 1}
        {'adata': 1}
        """
    )


def test_parameters_that_are_not_described_get_their_entries_in_the_order_of_the_signature() -> None:
    @shared_docs
    def partly(adata: object, n: int, m: int, seed: int, **options: object) -> None:
        """Do something.

        Parameters
        ----------
        n, m
            Two
            numbers.
        **options
            More.

        Returns
        -------
        Nothing.
        """

    @shared_docs
    def not_at_all(seed: int) -> None:
        """Do something.

        Returns
        -------
        Nothing.
        """

    seed = "seed\n    Same seed, same cells; ``None`` follows ``scvi.settings.seed``."
    returns = "\n\nReturns\n-------\nNothing."
    adata = "adata\n    Cells; by default those the model was made with.\n"
    described = f"{adata}n, m\n    Two\n    numbers.\n{seed}\n**options\n    More."
    start = "Do something.\n\nParameters\n----------\n"
    assert inspect.getdoc(partly) == start + described + returns
    assert inspect.getdoc(not_at_all) == start + seed + returns


def test_a_parameter_without_a_description_raises_when_the_function_is_made() -> None:
    def forgotten(what: int) -> None:
        """Do something.

        Returns
        -------
        Nothing.
        """

    with pytest.raises(KeyError, match=r"forgotten.*what"):
        shared_docs(forgotten)


def _methods() -> list[Callable]:
    public = [getattr(TokenDiffusion, name) for name in dir(TokenDiffusion) if not name.startswith("_")]
    return [method for method in public if getattr(method, "__module__", "").startswith("scdiffgen.")]


@pytest.mark.parametrize("method", _methods(), ids=lambda method: method.__name__)
def test_every_parameter_of_a_method_is_described_once(method: Callable) -> None:
    described = Counter(name.strip("*") for name in _section(inspect.getdoc(method) or "", "Parameters"))
    assert described == Counter(name for name in inspect.signature(method).parameters if name != "self")


def test_methods_are_indented_as_their_docstring() -> None:
    documented = inspect.getdoc(_Holder.method)
    assert documented is not None and documented.endswith("----------\nsilent\n    Whether no progress bar is shown.")
    assert _section(inspect.getdoc(_Holder.of_class) or "", "Parameters") == ["seed"]


def test_doctest_finds_the_examples() -> None:
    (found,) = doctest.DocTestFinder().find(_described, "_described", globs={})
    assert [example.source for example in found.examples] == ['{"adata": 1}\n']
    assert doctest.DocTestRunner().run(found).failed == 0


def test_unknown_placeholder_raises_when_the_function_is_made() -> None:
    def misspelt(adata: object) -> None:
        """Do something.

        {adatas}
        """

    with pytest.raises(KeyError, match=r"misspelt.*\{adatas\}.*adata"):
        shared_docs(misspelt)


def test_without_docstrings_nothing_happens() -> None:
    def bare() -> None: ...

    assert shared_docs(bare).__doc__ is None


@pytest.mark.parametrize("name", ENTRIES)
def test_an_entry_is_a_name_and_what_it_means(name: str) -> None:
    entry = r"(Raises\n------\n)?(\w+(, \w+)*\n( {4}\S.*\n)+)+(\nReturns\n-------\n.+\n)?"
    assert re.fullmatch(entry, ENTRIES[name] + "\n")


def test_no_line_of_the_shared_text_is_lost() -> None:
    heads = re.findall(r"^\w.*$", _FIGURES + _MODEL + _METRICS, re.MULTILINE)
    single = _read(_FIGURES + _MODEL + _METRICS)
    assert len(heads) == len(single) == len(set(ENTRIES) - set(_TOGETHER) - set(_RAISES) - {"figure", "figures"})
    assert "".join(single.values()).count("\n    ") == (_FIGURES + _MODEL + _METRICS).count("\n    ")


@pytest.mark.parametrize(("name", "documented"), list(_public()))
def test_no_placeholder_is_left(name: str, documented: object) -> None:
    assert PLACEHOLDER.search(inspect.getdoc(documented) or "") is None


@pytest.mark.parametrize("function", _functions(), ids=lambda function: function.__name__)
def test_every_parameter_is_described_once(function: Callable) -> None:
    described = Counter(_section(inspect.getdoc(function) or "", "Parameters"))
    assert described == Counter(list(inspect.signature(function).parameters))
