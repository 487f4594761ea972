"""Offsets of labels of few cells, against simulated truth and closed forms."""

import numpy as np
import pytest
import scvi
import torch
from anndata import AnnData
from scipy import sparse
from small_cells import QUIET

from scdiffgen.conditions import Condition, Conditions
from scdiffgen.model import TokenDiffusion
from scdiffgen.module._group_sums import LabelSums

N_GENES, DEPTH = 400, 2000
N_CELLS = {"common": 600, "rare": 12, "pair": 2, "unlike": 120}  # those that are unlike differ as the rare ones do
MARKERS = np.arange(10)


def simulated(shape: float = 5.0, seed: int = 0) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Negative binomial counts, labels, and the mean counts of each label; markers are six times as high or low."""
    random = np.random.default_rng(seed)
    means = np.tile(random.gamma(1.0, 1.0, N_GENES), (4, 1))
    means[1, MARKERS] *= np.where(MARKERS % 2, 6.0, 1 / 6)
    means[3] = means[1]
    means *= DEPTH / means.sum(1, keepdims=True)
    labels = np.repeat(np.arange(4), list(N_CELLS.values()))
    return random.poisson(random.gamma(shape, means[labels] / shape)), labels, means


def conditions_of(labels: np.ndarray) -> Conditions[torch.Tensor]:
    ids = torch.from_numpy(labels)[:, None]
    there = ids >= 0
    return Conditions({"type": Condition(ids.clamp(min=0), ids * 0.0, there, there[:, 0])}, len(ids))


def sums_of(counts: np.ndarray, labels: np.ndarray) -> LabelSums:
    sums = LabelSums("type", 4, counts.shape[1])
    for rows in np.array_split(np.random.default_rng(1).permutation(len(labels)), 5):
        sums.add(sparse.csr_matrix(counts[rows].astype(np.float32)), conditions_of(labels[rows]))
    return sums


def test_offsets_of_a_rare_label_are_large_for_its_markers_only() -> None:
    counts, labels, means = simulated()
    average = torch.from_numpy(counts.sum(0) / counts.sum()).float()
    offsets = sums_of(counts, labels).offsets(average).numpy()
    true = np.log(means[1] / means[1].sum()) - np.log(average.numpy())
    clear = MARKERS[means[1:3, MARKERS].max(0) * N_CELLS["rare"] > 60]
    assert len(clear) >= 5
    np.testing.assert_allclose(offsets[1, clear], true[clear], rtol=0.5)
    others = np.setdiff1d(np.arange(N_GENES), MARKERS)
    assert (offsets[1, others] != 0).mean() < 0.03 and np.abs(offsets[1, others]).mean() < 0.01


def test_labels_of_many_cells_and_of_next_to_none_get_nothing() -> None:
    counts, labels, _ = simulated()
    offsets = sums_of(counts, labels).offsets(torch.full((N_GENES,), 1 / N_GENES))
    assert not offsets[[0, 2, 3]].any() and offsets[1].any()


def test_dispersion_is_that_of_the_negative_binomial() -> None:
    counts, labels, means = simulated(shape=2.0)
    expected = 1 + means[0] / 2.0  # variance over mean; the size of a cell hardly varies
    found = sums_of(counts, labels).dispersion()
    large = means[0] > 1
    assert abs(np.median(found[large] / expected[large]) - 1) < 0.1
    poisson, labels, _ = simulated(shape=1e6)
    assert np.median(sums_of(poisson, labels).dispersion()) < 1.1


def test_cells_without_molecules_count_for_none() -> None:
    """As cells in which a modality was not measured."""
    counts, labels, _ = simulated()
    more, of_more = np.concatenate([counts, 0 * counts]), np.concatenate([labels, labels])
    average = torch.full((N_GENES,), 1 / N_GENES)
    assert torch.equal(sums_of(more, of_more).offsets(average), sums_of(counts, labels).offsets(average))


def test_cells_without_a_label_count_for_none() -> None:
    counts, labels, _ = simulated()
    with_missing = np.concatenate([labels, np.full(50, -1)])
    more = np.concatenate([counts, counts[:50]])
    np.testing.assert_allclose(sums_of(more, with_missing).counts, sums_of(counts, labels).counts)


@pytest.fixture(scope="module")
def trained() -> TokenDiffusion:
    counts, labels, _ = simulated()
    kept = labels < 3
    adata = AnnData(counts[kept].astype(np.float32))
    adata.obs["type"] = np.array([*N_CELLS])[labels[kept]]
    TokenDiffusion.setup_anndata(adata, labels_key="type")
    scvi.settings.seed = 0
    model = TokenDiffusion(adata, n_tokens=2, token_dim=16)
    model.train(max_epochs=2, train_size=1.0, **QUIET)
    return model


def test_cells_of_a_rare_label_come_out_as_themselves(trained: TokenDiffusion) -> None:
    _, _, means = simulated()
    drawn = trained.generate({"type": "rare"}, n_cells=200, silent=True).X.mean(0).A1
    up = MARKERS[1::2]
    change = np.log((drawn[up] + 0.1) / (means[0, up] + 0.1))
    truth = np.log((means[1, up] + 0.1) / (means[0, up] + 0.1))
    assert change.sum() > 0.6 * truth.sum()


def test_contributions_of_tokens_and_of_the_label_add_up(trained: TokenDiffusion) -> None:
    parts = trained.get_token_contributions(silent=True)
    assert parts.uns["terms"][-1] == "type"
    rare = (parts.obs["type"] == "rare").to_numpy()
    assert np.abs(parts.layers["type"][rare]).max() > 0.5
    assert not np.ptp(parts.layers["type"][~rare], axis=1).any()
    terms = sum(parts.layers[name] for name in parts.uns["terms"])
    np.testing.assert_allclose(terms + parts.var["baseline"].to_numpy(), parts.X, atol=1e-4)


def test_new_labels_of_a_query_model_have_no_offset(trained: TokenDiffusion) -> None:
    counts, labels, _ = simulated()
    new = AnnData(counts[labels == 3][:30].astype(np.float32))
    new.obs["type"] = "unlike"
    query = TokenDiffusion.load_query_data(new, trained)
    table = query.module.ema_denoiser.label_offsets.table
    torch.testing.assert_close(table[: len(table) - 1], trained.module.ema_denoiser.label_offsets.table)
    assert not table[-1].any()
