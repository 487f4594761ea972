"""A MuData of RNA and open chromatin as it comes: 1,000 cells, of genes and peaks a part."""

from pathlib import Path

import mudata
import numpy as np
import pytest
from small_cells import trained_model

from scdiffgen.model import TokenDiffusion

MULTIOME = Path("../shared/data/multiome_mini_1000.h5mu")

pytestmark = pytest.mark.skipif(not MULTIOME.exists(), reason="multiome_mini_1000.h5mu is not there")


@pytest.fixture(scope="module")
def model() -> TokenDiffusion:
    return trained_model(mudata.read_h5mu(MULTIOME), 15, 128, modalities=["rna", "atac"])


def test_generated_cells_have_the_mean_share_of_every_gene_and_peak(model: TokenDiffusion) -> None:
    """Up to noise, though training is short."""
    cells = model.generate(n_cells=500, n_steps=8, seed=0, silent=True)
    for name in ("rna", "atac"):
        real, made = (np.asarray(of[name].X.sum(0)).ravel() / of[name].X.sum() for of in (model.adata, cells))
        assert np.corrcoef(np.log(real + 1e-4), np.log(made + 1e-4))[0, 1] > 0.9


def test_what_is_written_back_is_in_the_file(model: TokenDiffusion, tmp_path: Path) -> None:
    model.write_back(model.adata)
    model.adata.write(tmp_path / "cells.h5mu")
    read = mudata.read_h5mu(tmp_path / "cells.h5mu")
    n_tokens = read.obsm["X_token_activation"].shape[1]
    for name, n_vars in (("rna", 45), ("atac", 174)):
        assert read[name].varm["token_loadings"].shape == (n_vars, n_tokens)
    cells = model.generate_modality(read, given="rna", target="atac", n_steps=2, seed=0, silent=True)
    np.testing.assert_array_equal(cells["rna"].X.toarray(), read["rna"].X.toarray())
    assert cells["atac"].X.sum() > 0
