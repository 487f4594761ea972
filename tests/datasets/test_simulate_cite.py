"""Simulated RNA and protein have the shares, and the ties, that they say they have."""

from typing import Any

import numpy as np
import pytest
from mudata import MuData

from scdiffgen.datasets import simulate_cite


@pytest.fixture(scope="module")
def mdata() -> MuData:
    return simulate_cite(n_cells=3_000, n_genes=30, n_proteins=8, seed=1)


@pytest.mark.parametrize("modality", ["rna", "protein"])
def test_counts_have_the_expected_shares_within_every_type(mdata: MuData, modality: str) -> None:
    counts, share = mdata[modality].X.toarray(), mdata[modality].layers["share"]
    np.testing.assert_allclose(share.sum(1), 1, rtol=1e-5)
    for kind in mdata.obs["cell_type"].cat.categories:
        cells = (mdata.obs["cell_type"] == kind).to_numpy()
        found = (counts[cells] / counts[cells].sum(1, keepdims=True)).mean(0)
        error = np.sqrt(share[cells].mean(0) / 300 / cells.sum())  # at most, of Dirichlet shares; molecules add less
        assert (np.abs(found - share[cells].mean(0)) < 6 * error + 1e-4).all()


def test_activity_ties_protein_to_rna_and_to_its_depth(mdata: MuData) -> None:
    activity = mdata.obs["activity"].to_numpy()
    depth = {name: np.log(np.asarray(mdata[name].X.sum(1)).ravel()) for name in ("rna", "protein")}
    assert np.corrcoef(activity, depth["protein"])[0, 1] == pytest.approx(0.3 / np.hypot(0.3, 0.3), abs=0.05)
    assert abs(np.corrcoef(activity, depth["rna"])[0, 1]) < 0.08
    assert np.exp(np.median(depth["rna"])) == pytest.approx(500, rel=0.05)
    for name in ("rna", "protein"):
        tied = [abs(np.corrcoef(activity, share)[0, 1]) for share in mdata[name].layers["share"].T]
        assert max(tied) > 0.5


def test_the_same_seed_gives_the_same_cells(mdata: MuData) -> None:
    again, other = (simulate_cite(n_cells=3_000, n_genes=30, n_proteins=8, seed=seed) for seed in (1, 2))
    assert (again["protein"].X != mdata["protein"].X).nnz == 0
    assert (other["protein"].X != mdata["protein"].X).nnz > 0


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"n_cells": 0}, "`n_cells` is 0: pass at least 1"),
        ({"n_proteins": -1}, "`n_proteins` is -1"),
        ({"library_sizes": (500.0, 0.0)}, "`library_sizes` is .*: pass two positive numbers"),
        ({"library_sizes": (500.0,)}, "pass two positive numbers"),
    ],
)
def test_sizes_that_make_no_sense(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        simulate_cite(**arguments)
