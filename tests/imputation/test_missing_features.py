"""Features that some cells miss, drawn from the rest of the cell, against planted means."""

import numpy as np
from scipy import sparse

from scdiffgen.imputation import draw_missing


def test_missing_features_have_the_means_of_their_cells() -> None:
    """Two features are known in different halves of the cells; their means differ between two types."""
    rng, kind = np.random.default_rng(0), np.arange(400) % 2
    means = np.array([[200.0, 20.0, 40.0, 90.0], [20.0, 150.0, 40.0, 15.0]])[kind]
    truth, genes = rng.poisson(means), rng.poisson(np.array([[30.0, 2.0, 8.0], [3.0, 25.0, 8.0]])[kind])
    missing = np.zeros(truth.shape, dtype=bool)
    missing[:200, 0] = missing[200:, 3] = True
    truth[5] = 0  # without a molecule of the modality, which is then not drawn
    genes = sparse.csr_matrix(genes, dtype=np.float32)
    drawn = draw_missing(np.where(missing, 0, truth), missing, [genes], fewest=20, most=150)
    np.testing.assert_array_equal(drawn[~missing], truth[~missing])
    assert not drawn[5].any() and (drawn == drawn.round()).all()
    for column, cells in ((0, slice(0, 200)), (3, slice(200, 400))):
        for each in (0, 1):
            of_type = drawn[cells, column][kind[cells] == each]
            np.testing.assert_allclose(of_type.mean(), means[each, column], rtol=0.1)
            assert of_type.std() > 0.6 * np.sqrt(means[each, column])  # draws, not expected counts


def test_few_cells_with_a_feature_give_their_mean_and_none_give_zeros() -> None:
    counts = np.array([[10.0, 4.0, 0.0], [12.0, 6.0, 0.0], [9.0, 0.0, 0.0]])
    missing = np.zeros((3, 3), dtype=bool)
    missing[2, 1] = missing[:, 2] = True
    drawn = draw_missing(counts, missing, [], fewest=20, most=100)
    assert drawn.tolist() == [[10, 4, 0], [12, 6, 0], [9, 5, 0]]
