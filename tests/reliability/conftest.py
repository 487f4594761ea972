"""One tiny model with every common kind of condition, trained once for all tests of what goes wrong."""

import pytest
import scvi
from anndata import AnnData
from small_cells import QUIET, SMALL
from treated_cells import SETUP, treated_cells

from scdiffgen.model import TokenDiffusion

collect_ignore = ["killed.py", "killed_generating.py"]  # tests run these in processes of their own


@pytest.fixture(scope="session")
def tiny() -> TokenDiffusion:
    """Not to be changed, nor its cells."""
    adata = treated_cells()
    TokenDiffusion.setup_anndata(adata, **SETUP)
    scvi.settings.seed = 0
    model = TokenDiffusion(adata, **SMALL)
    model.train(max_epochs=1, batch_size=32, **QUIET)
    return model


@pytest.fixture
def cells() -> AnnData:
    """Cells of its own for each test."""
    return treated_cells()
