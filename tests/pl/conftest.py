"""Figures are drawn, not shown."""

from collections.abc import Iterator

import pytest
import scanpy as sc


@pytest.fixture(autouse=True)
def settings() -> Iterator[type]:
    """Settings of scanpy, put back afterwards; figures are not shown unless asked for."""
    names = ("figdir", "autoshow", "autosave", "plot_suffix")
    before = [getattr(sc.settings, name) for name in names]
    sc.settings.autoshow = False
    yield sc.settings
    for name, value in zip(names, before, strict=True):
        setattr(sc.settings, name, value)
