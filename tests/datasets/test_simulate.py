from collections.abc import Callable
from pathlib import Path
from typing import Any

import anndata as ad
import numpy as np
import pandas as pd
import pytest
from anndata import AnnData
from scipy import sparse, stats

from scdiffgen.datasets import simulate, true_expression


@pytest.fixture(scope="module")
def adata() -> AnnData:
    return simulate(n_cells=4000, n_genes=30, library_size=300, concentration=50, seed=3)


def kinds(**columns: Any) -> pd.DataFrame:
    rows = {"cell_type": "type_0", "batch": "batch_0", "time": 0.0, "dose_A": 0.0, "dose_B": 0.0} | columns
    return pd.DataFrame(rows, index=range(max(np.size(column) for column in rows.values())))


def log_ratio(adata: AnnData, one: pd.DataFrame, other: pd.DataFrame) -> np.ndarray:
    """Log ratio of two kinds of cell, per gene, centred so that the normalisation over genes drops out."""
    ratio = np.log(true_expression(adata, one)) - np.log(true_expression(adata, other))
    return ratio - ratio.mean(axis=1, keepdims=True)


def centred(effect: Any) -> np.ndarray:
    return np.asarray(effect) - np.mean(effect)


def moments(adata: AnnData) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Counts, and their means and variances by scipy, each cell under its own conditions."""
    counts = adata.layers["counts"].toarray().astype(float)
    alpha = adata.uns["simulation"]["concentration"] * true_expression(adata, adata.obs)
    laws = [stats.dirichlet_multinomial(a, int(n)) for a, n in zip(alpha, counts.sum(axis=1), strict=True)]
    return counts, np.array([law.mean() for law in laws]), np.array([law.var() for law in laws])


def test_counts_have_the_means_and_variances_of_a_dirichlet_multinomial(adata: AnnData) -> None:
    counts, mean, variance = moments(adata)
    z = (counts - mean).sum(axis=0) / np.sqrt(variance.sum(axis=0))
    assert np.abs(z).max() < 4  # one of 30 standard normals is beyond 4 in 1 of 500 runs

    squares = ((counts - mean) ** 2).sum(axis=1) / variance.sum(axis=1)
    assert squares.mean() == pytest.approx(1, abs=4 * squares.std() / np.sqrt(len(squares)))


@pytest.mark.parametrize("key", ["cell_type", "batch", "perturbation", "dose", "time"])
def test_means_hold_within_every_condition(adata: AnnData, key: str) -> None:
    counts, mean, variance = moments(adata)
    levels = adata.obs[key].round(1) if key == "time" else adata.obs[key]
    for level in levels.unique():
        inside = (levels == level).to_numpy()
        z = (counts - mean)[inside].sum(axis=0) / np.sqrt(variance[inside].sum(axis=0))
        assert np.abs(z).max() < 4.5, level


def test_library_sizes_are_log_normal(adata: AnnData) -> None:
    log_library = np.log(adata.layers["counts"].sum(axis=1).A1)
    assert stats.kstest(log_library, stats.norm(np.log(300), 0.3).cdf).pvalue > 1e-3


def test_conditions_are_independent_and_uniform(adata: AnnData) -> None:
    table = pd.crosstab([adata.obs["cell_type"], adata.obs["batch"]], adata.obs["perturbation"])
    assert stats.chisquare(table.to_numpy().ravel()).pvalue > 1e-3
    assert stats.kstest(adata.obs["time"], stats.uniform.cdf).pvalue > 1e-3


def test_text_and_numbers_say_the_same_dose(adata: AnnData) -> None:
    for perturbation, dose, a, b in adata.obs[["perturbation", "dose", "dose_A", "dose_B"]].itertuples(index=False):
        doses = dict(zip(perturbation.split("+"), map(float, dose.split("+")), strict=True))
        assert doses.get("A", 0) == a and doses.get("B", 0) == b
        assert (perturbation == "control") == (a == b == 0)


def test_effects_add_up_in_the_logarithm(adata: AnnData) -> None:
    control = kinds()
    changed = log_ratio(adata, kinds(cell_type="type_2"), control)[0]
    effect = adata.varm["cell_type_effect"]
    np.testing.assert_allclose(changed, centred(effect["type_2"] - effect["type_0"]), atol=1e-12)
    changed = log_ratio(adata, kinds(batch="batch_1"), control)[0]
    np.testing.assert_allclose(changed, centred(adata.varm["batch_effect"]["batch_1"]), atol=1e-12)
    changed = log_ratio(adata, kinds(time=0.5), control)[0]
    np.testing.assert_allclose(changed, centred(adata.var["time_effect"] / 2), atol=1e-12)

    together = log_ratio(adata, kinds(dose_A=3.0, dose_B=0.3), control)
    apart = log_ratio(adata, kinds(dose_A=3.0), control) + log_ratio(adata, kinds(dose_B=0.3), control)
    np.testing.assert_allclose(together, apart, atol=1e-12)


def test_response_is_a_sigmoid_of_the_log_dose_for_every_gene(adata: AnnData) -> None:
    effect, half_dose = adata.varm["perturbation_effect"]["A"], adata.varm["half_dose"]["A"]
    silent, dose = int(np.flatnonzero(effect == 0)[0]), np.append(np.geomspace(0.01, 100, 50), 1e9)
    ratio = log_ratio(adata, kinds(dose_A=dose), kinds(dose_A=np.zeros(51)))
    for gene in np.flatnonzero(effect):
        logistic = stats.logistic.cdf(2.0 * np.log(dose / half_dose.iloc[gene]))
        np.testing.assert_allclose(ratio[:, gene] - ratio[:, silent], effect.iloc[gene] * logistic, atol=1e-9)


def test_the_same_seed_gives_the_same_cells_and_touches_nothing_global() -> None:
    before = np.random.get_state()[1].copy()
    one, same, other = (simulate(n_cells=50, n_genes=10, seed=seed) for seed in (1, 1, 2))
    assert (one.layers["counts"] != same.layers["counts"]).nnz == 0
    pd.testing.assert_frame_equal(one.obs, same.obs)
    assert (one.layers["counts"] != other.layers["counts"]).nnz > 0
    assert np.array_equal(before, np.random.get_state()[1])


def test_cells_and_truth_survive_a_file(adata: AnnData, tmp_path: Path) -> None:
    adata.write_h5ad(tmp_path / "simulated.h5ad")
    read = ad.read_h5ad(tmp_path / "simulated.h5ad")
    np.testing.assert_array_equal(true_expression(read, read.obs), true_expression(adata, adata.obs))
    assert isinstance(read.layers["counts"], sparse.csr_matrix)


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: simulate(n_types=0), ValueError, "`n_types` is 0: pass at least 1"),
        (lambda: simulate(doses=()), ValueError, r"`doses` is \(\): pass positive numbers"),
        (lambda: simulate(doses=(0.0, 1.0)), ValueError, "`doses` is"),
        (lambda: simulate(concentration=-1.0), ValueError, r"`concentration` is \[-1.0\]"),
        (lambda: true_expression(simulate(5, 5), kinds(batch="batch_7")), ValueError, r"has batch \['batch_7'\]"),
        (lambda: true_expression(simulate(5, 5), kinds(dose_A=-1.0)), ValueError, "1 negative doses"),
        (
            lambda: true_expression(simulate(5, 5), kinds().drop(columns="time")),
            KeyError,
            r"lacks the columns \['time'\]",
        ),
    ],
)
def test_errors_name_the_argument(call: Callable[[], Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        call()
