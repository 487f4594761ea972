"""Compare the power that a pilot predicts with the power of subsamples of the real experiment (Kang et al. 2018).

``python -m benchmarks.studies.power --seeds 0 1 2 --threads 1``

The pilot is the control CD14+ monocytes of four donors. A model of them predicts the power of paired experiments, by
fold change. The full data have eight donors, control and stimulated. The genes that are significant in them, with a
log2 fold change within 19 % of a planted one, are taken for the truth, and subsamples of donors and cells have the
power to find these again. Predictions are means over thirds of expression, weighted by the number of these genes. The
planted changes are as frequent as in the full data, because the threshold of the false discovery rate depends on that.

The row of the variation of donors has standard deviations, in natural logarithms, of donors and of samples (donor and
condition) in the expression of genes with 500 molecules or more, and of donors in shares of cell types: root mean
squares over genes or cell types, by covariances between halves of the cells, which are free of sampling noise.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import product

import numpy as np
import pandas as pd
import scvi
from anndata import AnnData
from numpy.typing import NDArray
from scipy import sparse, stats

from benchmarks._data import KANG, _read
from benchmarks._variants import Run, study_options, study_runs, study_table
from benchmarks.generation import timed
from scdiffgen.model import TokenDiffusion
from scdiffgen.tl import power
from scdiffgen.tl._arm_tests import log_pseudobulks, pseudobulk_test

EFFECTS, N_DONORS, N_CELLS = (-2.0, -1.0, -0.5, 0.5, 1.0, 2.0), (3, 4, 6), (20, 80)
N_PILOT, N_SUBSAMPLES, ALPHA = 4, 20, 0.05
LEAST_SHARE, LEAST_MOLECULES = 0.05, 500  # of cells with a gene; of a gene
GENES_A_VALUE = 15  # a fold change is planted once for so many genes
VARIATION, MONOCYTES, ARMS = "variation of donors", "CD14+ Monocytes", ("control", "treated")
DIGITS = {"predicted": 2, "realised": 2, "genes": 0, "donor_sd": 2, "sample_sd": 2, "share_sd": 2, "seconds": 0}


def load_arms() -> AnnData:
    """Cells of the eight donors, with the columns of a simulated experiment."""
    cells = _read(KANG)
    cells = cells[cells.obs["donor"].astype(str).ne("unassigned") & cells.obs["cell_type"].notna()].copy()
    cells.X = sparse.csr_matrix(cells.X, dtype=np.float32)
    arm = cells.obs["condition"].map({"ctrl": "control", "stim": "treated"}).astype(str)
    cells.obs = cells.obs[["cell_type", "donor"]].astype(str).assign(arm=arm)
    cells.uns = {"simulation": {"paired": True}}
    return cells


def subsample(cells: AnnData, n_donors: int, n_cells: int, rng: np.random.Generator) -> AnnData:
    """Random cells of random donors, as many of each arm."""
    chosen = cells.obs["donor"].isin(rng.permutation(cells.obs["donor"].unique())[:n_donors])
    order = pd.Series(rng.permutation(cells.n_obs), cells.obs_names)
    rank = order.groupby([cells.obs["donor"], cells.obs["arm"]], observed=True).rank()
    return cells[chosen & (rank <= n_cells)].copy()


def significant(cells: AnnData) -> NDArray[np.bool_]:
    """Genes below the false discovery rate."""
    return stats.false_discovery_control(pseudobulk_test(cells).fillna(1.0)) <= ALPHA


def fold_changes(cells: AnnData) -> NDArray[np.float64]:
    """Mean log2 fold change of the donors, as the test sees it; NaN for genes that it leaves out."""
    bulks = log_pseudobulks(cells)
    return (bulks.loc["treated"] - bulks.loc["control"]).mean().reindex(cells.var_names).to_numpy()


def realised(cells: AnnData, seed: int) -> Iterator[tuple[int, int, NDArray[np.float64]]]:
    """Designs, and how often each gene was found in subsamples of them."""
    rng = np.random.default_rng(seed)
    for donors, n_cells in product(N_DONORS, N_CELLS):
        found = [significant(subsample(cells, donors, n_cells, rng)) for _ in range(N_SUBSAMPLES)]
        yield donors, n_cells, np.mean(found, axis=0)


def variation(cells: AnnData, rng: np.random.Generator) -> dict[str, float]:
    """Standard deviations of donors and samples, in natural logarithms."""
    donors = cells.obs["donor"].unique()

    def moments(values: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Variances between donors within the control arm, and covariances of the arms; values (donors, 2, 2, ...)."""
        centred = values - values.mean(0)
        within = (centred[:, 0, 0] * centred[:, 0, 1]).sum(0) / (len(donors) - 1)
        between = centred.mean(2)
        return within, (between[:, 0] * between[:, 1]).sum(0) / (len(donors) - 1)

    def halves(counts: sparse.csr_matrix, obs: pd.DataFrame) -> NDArray[np.float64]:
        """Sums ``(donors, arms, halves, columns)``."""
        half = rng.integers(2, size=len(obs))
        groups = [((obs["donor"] == d) & (obs["arm"] == arm)).to_numpy() for d, arm in product(donors, ARMS)]
        sums = [np.asarray(counts[own & (half == h)].sum(0)).ravel() for own in groups for h in (0, 1)]
        return np.reshape(sums, (len(donors), 2, 2, -1))

    monocytes = cells[cells.obs["cell_type"] == MONOCYTES]
    bulks = halves(monocytes.X, monocytes.obs)
    bulks = bulks[..., bulks.sum((0, 1, 2)) >= LEAST_MOLECULES]
    total, shared = moments(np.log((bulks + 0.5) / bulks.sum(-1, keepdims=True)))
    types = halves(sparse.csr_matrix(pd.get_dummies(cells.obs["cell_type"], dtype=float)), cells.obs)
    of_shares, _ = moments(np.log((types + 0.5) / types.sum(-1, keepdims=True)))
    sds = {"donor_sd": shared.mean(), "sample_sd": total.mean() - shared.mean(), "share_sd": of_shares.mean()}
    return {name: float(np.sqrt(max(value, 0))) for name, value in sds.items()}


def pilot_model(pilot: AnnData, seed: int, *, quick: bool) -> TokenDiffusion:
    """A model of the pilot with the defaults."""
    scvi.settings.seed = seed
    TokenDiffusion.setup_anndata(pilot)
    model = TokenDiffusion(pilot)
    model.train(max_epochs=2 if quick else None, enable_progress_bar=False)
    return model


def table(runs: Sequence[Run]) -> str:
    """A row a design and fold change, and the agreement over all of them."""
    both = pd.DataFrame([run["scores"] for run in runs if run["variant"] != VARIATION])
    difference, ranks = both["predicted"] - both["realised"], both["predicted"].corr(both["realised"], "spearman")
    within = f"from {difference.min():.2f} to {difference.max():.2f}"
    agreement = f"Predicted minus realised: mean {difference.mean():.2f}, {within}; rank correlation {ranks:.2f}."
    return f"{study_table(runs, DIGITS)}\n\n{agreement}"


def main(arguments: Sequence[str] | None = None) -> None:
    about = "benchmarks.studies.power", __doc__.splitlines()[0]
    options = study_options(*about, ["kang"], ["kang"], [0], ["pilot"]).parse_args(arguments)

    def measured(name: str, seed: int) -> Iterator[tuple[str, Run]]:
        cells, rng = load_arms(), np.random.default_rng(seed)
        everywhere, seconds = timed(lambda: variation(cells, rng))
        yield VARIATION, {"scores": {**everywhere, "seconds": seconds}}
        monocytes = cells[cells.obs["cell_type"] == MONOCYTES]
        own = rng.permutation(monocytes.obs["donor"].unique())[:N_PILOT]
        pilot = monocytes[monocytes.obs["donor"].isin(own) & (monocytes.obs["arm"] == "control")]
        genes = np.asarray((pilot.X > 0).mean(0)).ravel() >= LEAST_SHARE
        pilot, monocytes = pilot[:, genes].copy(), monocytes[:, genes].copy()
        change, truth = fold_changes(monocytes), significant(monocytes)
        third = pd.qcut(pd.Series(np.asarray(pilot.X.mean(0)).ravel()).rank(), 3, labels=["low", "middle", "high"])
        nearest = {effect: truth & (np.abs(np.log2(np.maximum(change / effect, 1e-9))) < 0.25) for effect in EFFECTS}
        planted = [effect for effect, own in nearest.items() for _ in range(max(1, round(own.sum() / GENES_A_VALUE)))]
        model, seconds = timed(lambda: pilot_model(pilot, seed, quick=options.quick))
        settings = {"n_donors": N_DONORS, "n_cells": N_CELLS, "alpha": ALPHA, "experiment": {"paired": True}}
        share = round(float(np.mean(truth & (np.abs(change) > min(map(abs, EFFECTS)) / 2**0.5))), 2)
        expected = power(model, planted, share_changed=share, seed=seed, **settings)
        expected = expected.set_index(["n_donors", "n_cells", "effect", "stratum"])["power"].sort_index()
        for donors, n_cells, found in realised(monocytes, seed):
            for effect, own in nearest.items():
                weights = third[own].value_counts(normalize=True)
                predicted = (expected[donors, n_cells, effect].reindex(weights.index) * weights).sum()
                scores = {"predicted": predicted, "realised": found[own].mean(), "genes": int(own.sum())}
                kind = f"{donors} donors, {n_cells} cells, {2**effect:.2g}-fold"
                yield kind, {"scores": {**scores, "seconds": seconds}}

    print(table(study_runs(options, "study-power.jsonl", measured)))


if __name__ == "__main__":
    main()
