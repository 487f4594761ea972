"""Scores of gene programs against scanpy's, their spread against NumPy, and a cycle that is collapsed in one type."""

import numpy as np
import pandas as pd
import pytest
import scanpy as sc
from anndata import AnnData
from scipy import sparse

from scdiffgen import metrics
from scdiffgen._log_normalise import log_normalise
from scdiffgen.metrics._spread import covariances, program_weights

N_GENES = 150
PROGRAMS = {"S": [f"gene{i}" for i in range(20)], "G2M": [f"gene{i}" for i in range(15, 40)]}


def cycling(n_cells: int, seed: int, *, collapsed: str = "", on_a_line: str = "") -> AnnData:
    """Types a, b and c on a circle of S and G2M, but a type whose cells stand still, and one that lies on a line."""
    rng = np.random.default_rng(seed)
    labels = np.resize(["a", "b", "c"], n_cells)
    angle = rng.uniform(0, 2 * np.pi, n_cells)
    phases = 0.7 * np.array([np.cos(angle), np.sin(angle)])
    phases[:, labels == collapsed] = 0
    phases[1, labels == on_a_line] = phases[0, labels == on_a_line]
    shared = np.random.default_rng(0)
    rates = shared.gamma(1.0, 3.0, N_GENES) * np.exp(0.3 * shared.normal(size=(3, N_GENES)))[np.arange(n_cells) % 3]
    rates[:, :15] *= np.exp(phases[:1].T)
    rates[:, 20:40] *= np.exp(phases[1:].T)
    counts = rng.poisson(rates * rng.gamma(4, 0.25, (n_cells, 1)))
    counts[:, -1] += 1
    obs = pd.DataFrame({"type": labels}, index=[f"{seed}-{i}" for i in range(n_cells)])
    var = pd.DataFrame(index=[f"gene{i}" for i in range(N_GENES)])
    return AnnData(sparse.csr_matrix(counts.astype(np.float32)), obs=obs, var=var)


def test_scores_are_those_of_scanpy_with_all_genes_of_the_bins_as_control() -> None:
    cells = cycling(200, 1)
    found = log_normalise(cells.X) @ program_weights(cells.X, cells.var_names, PROGRAMS)
    sc.pp.normalize_total(cells, target_sum=1e4)
    sc.pp.log1p(cells)
    for column, genes in enumerate(PROGRAMS.values()):
        sc.tl.score_genes(cells, genes, ctrl_size=N_GENES, n_bins=25)
        np.testing.assert_allclose(found[:, column], cells.obs["score"], rtol=1e-4, atol=1e-5)


def test_weighted_covariances_equal_those_of_repeated_cells() -> None:
    rng = np.random.default_rng(0)
    scores, labels = rng.normal(size=(60, 3)) + np.arange(60)[:, None] % 3, np.arange(60) % 3
    weights = rng.poisson(1.0, (4, 60)).astype(float)
    for row, found in zip(weights.astype(int), covariances(scores, weights, labels), strict=True):
        repeated, groups = (np.repeat(each, row, axis=0) for each in (scores, labels))
        centred = pd.DataFrame(repeated).groupby(groups).transform(lambda x: x - x.mean())
        np.testing.assert_allclose(found, centred.T @ centred / (len(centred) - 3))


@pytest.fixture(scope="module")
def wrong() -> pd.DataFrame:
    """Generated cells in which b stands still, and c is on a line."""
    generated = cycling(450, 3, collapsed="b", on_a_line="c")
    return metrics.gene_programs(cycling(900, 1), generated, PROGRAMS, cycling(600, 2), "type", n_bootstrap=100)


def test_values_are_those_of_scanpys_scores(wrong: pd.DataFrame) -> None:
    train, generated = cycling(600, 2), cycling(450, 3, collapsed="b", on_a_line="c")
    scores = log_normalise(generated.X) @ program_weights(train.X, train.var_names, PROGRAMS)
    of_b = scores[generated.obs["type"] == "b"]
    assert wrong.loc[("b", "spread", "S"), "generated"] == pytest.approx(of_b[:, 0].std(ddof=1))
    assert wrong.loc[("b", "correlation", "S, G2M"), "generated"] == pytest.approx(np.corrcoef(of_b.T)[0, 1])
    assert wrong.loc[("b", "spread", "G2M"), "n"] == 150
    spread = wrong.xs("spread", level="statistic")
    np.testing.assert_allclose(spread["off"], spread["generated"] / spread["real"])
    assert (spread["null_shuffled"] < 0.8 * spread["real"]).all()
    assert (spread["other_real"] / spread["real"]).between(0.85, 1.15).all()


def test_the_type_that_stands_still_and_the_one_on_a_line_are_marked(wrong: pd.DataFrame) -> None:
    apart = wrong["apart"].unstack("group")
    assert apart.loc[[("spread", "S"), ("spread", "G2M")], "b"].all() and not apart["a"].any()
    assert apart.loc[("correlation", "S, G2M"), "c"]


def test_new_real_cells_are_not_clearly_apart() -> None:
    for seed in (5, 6):
        table = metrics.gene_programs(cycling(900, 1), cycling(450, seed), PROGRAMS, cycling(600, 2), "type")
        difference = table["generated"] - table["other_real"]
        difference.loc[:, "spread"] /= table["real"].loc[:, "spread"]
        assert not (table["apart"] & (difference.abs() > 0.2)).any()


def test_few_cells_are_nan_and_unknown_genes_are_named() -> None:
    real = cycling(60, 1)
    table = metrics.gene_programs(real, real[:25], PROGRAMS, groupby="type", n_bootstrap=5)
    assert table.loc["a"]["off"].isna().all() and not table.loc["a"]["apart"].any()
    with pytest.raises(ValueError, match=r"`programs\['S'\]` has no gene of the data: 'Gene1'.*'gene1'"):
        metrics.gene_programs(real, real, {"S": ["Gene1"]})
