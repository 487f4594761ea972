"""Rows of the catalogue of wrong input, and ways to spoil cells."""

import warnings
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import pytest
from anndata import AnnData


class Bad(NamedTuple):
    """What is wrong, and what the message must say: the argument, the value and the way out (texts, not patterns)."""

    name: str
    act: Callable[..., Any]
    argument: str
    value: str
    way_out: str
    error: type[Exception] = ValueError


def ids(table: list[Bad]) -> list[Any]:
    return [pytest.param(row, id=row.name) for row in table]


def check(row: Bad, *arguments: Any) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # what libraries say on the way
        with pytest.raises(row.error) as raised:
            row.act(*arguments)
    said = str(raised.value)
    for part in (row.argument, row.value, row.way_out):
        assert part in said
    assert len(said) < 900 and "\n" not in said


def nothing(_: Any) -> None:
    pass


def set_x(make: Callable[[np.ndarray], Any]) -> Callable[[AnnData], None]:
    def spoil(cells: AnnData) -> None:
        cells.X = make(cells.X)

    return spoil


def at(value: float) -> Callable[[AnnData], None]:
    def spoil(cells: AnnData) -> None:
        cells.X[3, 5] = value

    return spoil


def set_obs(column: str, values: Any) -> Callable[[AnnData], None]:
    def spoil(cells: AnnData) -> None:
        cells.obs[column] = values

    return spoil


def set_uns(key: str, value: Any) -> Callable[[AnnData], None]:
    def spoil(cells: AnnData) -> None:
        cells.uns[key] = value

    return spoil


def one_row(column: str, value: Any, row: int = 1) -> Callable[[AnnData], None]:
    def spoil(cells: AnnData) -> None:
        entries = cells.obs[column].astype(object)
        entries.iloc[row] = value
        cells.obs[column] = entries

    return spoil


def double_names(axis: str) -> Callable[[AnnData], None]:
    def spoil(cells: AnnData) -> None:
        names = getattr(cells, f"{axis}_names").tolist()
        setattr(cells, f"{axis}_names", [names[1], *names[1:]])

    return spoil
