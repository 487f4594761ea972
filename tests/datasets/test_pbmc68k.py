import numpy as np
import pytest
import scanpy as sc
from anndata import AnnData
from scipy import sparse

import scdiffgen


@pytest.fixture(scope="module")
def adata() -> AnnData:
    return scdiffgen.datasets.pbmc68k()


@pytest.fixture(scope="module")
def source() -> AnnData:
    return sc.datasets.pbmc68k_reduced()


def test_counts_are_whole_and_agree_with_the_zeros_of_the_source(adata: AnnData, source: AnnData) -> None:
    counts = adata.layers["counts"]
    assert isinstance(counts, sparse.csr_matrix)
    assert counts.dtype == np.float32
    assert counts.nnz == 174_400
    assert np.array_equal(counts.data, np.rint(counts.data))
    assert counts.data.min() >= 1
    assert ((counts > 0) != (source.raw.X > 0)).nnz == 0


def test_counts_give_back_the_expression_of_the_source(adata: AnnData, source: AnnData) -> None:
    """The source is rounded to three decimals, so nothing may differ by more than half of the third."""
    counts = adata.layers["counts"].toarray().astype(float)
    expression = np.log1p(1e4 * counts / source.obs["n_counts"].to_numpy(dtype=float)[:, None])
    assert np.abs(expression - source.raw.X.toarray()).max() < 5.01e-4


def test_no_other_whole_number_would_do(adata: AnnData, source: AnnData) -> None:
    library = source.obs["n_counts"].to_numpy(dtype=float)[:, None]
    unrounded = np.expm1(source.raw.X.toarray().astype(float)) * library / 1e4
    assert np.abs(unrounded - adata.layers["counts"].toarray()).max() < 0.09


def test_x_is_normalised_and_logged_by_scanpys_definition(adata: AnnData) -> None:
    """Scanpy normalises over the genes at hand, so the genes left out go into a column of their own."""
    counts = adata.layers["counts"]
    left_out = adata.obs["n_counts"].to_numpy() - counts.sum(axis=1).A1
    whole = AnnData(sparse.hstack([counts, sparse.csr_matrix(left_out[:, None])], format="csr"))
    sc.pp.normalize_total(whole, target_sum=1e4)
    sc.pp.log1p(whole)
    np.testing.assert_allclose(adata.X.toarray(), whole.X.toarray()[:, :-1], rtol=1e-5)


def test_labels_names_and_embeddings_are_those_of_the_source(adata: AnnData, source: AnnData) -> None:
    assert adata.obs["cell_type"].tolist() == source.obs["bulk_labels"].tolist()
    assert len(adata.obs["cell_type"].cat.categories) == len(adata.uns["cell_type_colors"]) == 10
    assert adata.obs_names.is_unique and adata.var_names.is_unique
    assert adata.var_names.equals(source.raw.var_names.rename(None))
    np.testing.assert_array_equal(adata.obsm["X_umap"], source.obsm["X_umap"])
    np.testing.assert_array_equal(adata.obsm["X_pca"], source.obsm["X_pca"])
