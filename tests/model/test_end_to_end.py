"""Cells simulated from known shares: the model recovers them, and only if the labels are right."""

import numpy as np
import pytest
from anndata import AnnData
from scipy.special import gammaln
from small_cells import simulated_cells, simulated_shares, trained_model

from scdiffgen.model import NetworkOptions, TokenDiffusion

LABELS, GENES = "abc", 30
SHARES = simulated_shares(len(LABELS), GENES)


def cells() -> AnnData:
    return simulated_cells(600, GENES, n_labels=len(LABELS))


def train(adata: AnnData, max_epochs: int) -> TokenDiffusion:
    return trained_model(
        adata, max_epochs, 64, network=NetworkOptions(dropout=0.0), plan_kwargs={"lr": 5e-3}, labels_key="cell_type"
    )


def generate(model: TokenDiffusion, label: str) -> np.ndarray:
    return model.generate({"cell_type": label}, n_cells=400, n_steps=16, seed=1, silent=True).X.toarray()


def squared_error(made: np.ndarray, label: str, trained_on: AnnData) -> float:
    """Mean over genes of the squared error of the shares, in units of its Monte-Carlo variance.

    About 1 if the shares are right, up to the sampling of the generated and of the training cells.
    """
    shares = SHARES[LABELS.index(label)]
    n_made, n_trained = made.sum(), trained_on.X[trained_on.obs["cell_type"] == label].sum()
    variance = shares * (1 - shares) * (1 / n_made + 1 / n_trained)
    return float(((made.sum(0) / n_made - shares) ** 2 / variance).mean())


@pytest.fixture(scope="module")
def recovered() -> TokenDiffusion:
    return train(cells(), max_epochs=30)


@pytest.mark.parametrize("label", LABELS)
def test_the_shares_of_each_label_are_recovered(label: str, recovered: TokenDiffusion) -> None:
    assert squared_error(generate(recovered, label), label, cells()) < 4


@pytest.mark.parametrize("label", LABELS)
def test_cells_vary_as_multinomials_do(label: str, recovered: TokenDiffusion) -> None:
    made = recovered.generate({"cell_type": label}, 400, library_size=100, n_steps=32, seed=2, silent=True).X.toarray()
    shares = SHARES[LABELS.index(label)]
    ratio = made.var(0) / (100 * shares * (1 - shares))
    assert 0.85 < np.median(ratio) < 1.25


def test_library_sizes_are_those_of_the_training_cells(recovered: TokenDiffusion) -> None:
    real, made = np.log(cells().X.sum(1)), np.log(generate(recovered, "a").sum(1))
    assert abs(made.mean() - real.mean()) < 0.1 and 0.8 < made.std() / real.std() < 1.25


def test_the_likelihood_is_near_that_of_the_truth(recovered: TokenDiffusion) -> None:
    held_out = recovered.validation_indices
    counts, labels = cells().X[held_out], cells().obs["cell_type"].iloc[held_out]
    log_shares = np.log(SHARES)[[LABELS.index(label) for label in labels]]
    truth = -(gammaln(counts.sum(1) + 1) - gammaln(counts + 1).sum(1) + (counts * log_shares).sum(1))
    nll = recovered.get_nll_bound(indices=held_out, n_draws=32, seed=0, silent=True)["nll"]
    excess = (nll.to_numpy() - truth) / counts.sum(1)
    assert -0.01 < excess.mean() < 0.03  # nats per molecule; without the labels it is 0.2


def test_with_labels_permuted_nothing_is_recovered() -> None:
    adata = cells()
    adata.obs["cell_type"] = np.random.default_rng(0).permutation(adata.obs["cell_type"])
    model = train(adata, max_epochs=15)
    assert all(squared_error(generate(model, label), label, adata) > 50 for label in LABELS)


def test_expected_expression_separates_the_labels(recovered: TokenDiffusion) -> None:
    """A cell's expression is nearer to the shares of its own label than to the others', for all cells."""
    expression = recovered.get_normalized_expression(return_numpy=True, silent=True)
    distance = np.stack([np.square(expression - shares).sum(1) for shares in SHARES])
    own = [LABELS.index(label) for label in cells().obs["cell_type"]]
    np.testing.assert_array_equal(distance.argmin(0), own)
