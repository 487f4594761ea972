"""One tiny model with every common kind of condition, trained once for all tests of what goes wrong."""

import pytest
from anndata import AnnData
from small_cells import trained_model
from treated_cells import SETUP, treated_cells

from scdiffgen.model import TokenDiffusion

collect_ignore = ["killed.py", "killed_generating.py"]  # tests run these in processes of their own


@pytest.fixture(scope="session")
def tiny() -> TokenDiffusion:
    """Not to be changed, nor its cells."""
    return trained_model(treated_cells(), **SETUP)


@pytest.fixture
def cells() -> AnnData:
    """Cells of its own for each test."""
    return treated_cells()
