"""Compare the power that a pilot predicts with the power of subsamples of the real experiment.

``python -m benchmarks.studies.power --data kang papalexi --seeds 0 1 2 --threads 1``

On Kang et al. 2018 the pilot is the control CD14+ monocytes of four donors. A model of them predicts the power of
paired experiments, by fold change. The full data have eight donors, control and stimulated. On Papalexi et al. 2021 the
pilot is half of the control cells, and four knock-outs are compared with all control cells by the test of cells, since
there are no donors. Genes that are significant in the full data, with a log2 fold change within 19 % of a planted one,
are taken for the truth, and subsamples of donors and cells have the power to find these again. Predictions are means
over thirds of expression, weighted by the number of these genes. Changes are planted as often as in the full data,
because the threshold of the false discovery rate depends on that.

The row of the variation of donors has standard deviations, in natural logarithms, of donors and of samples (donor and
condition) in the expression of genes with 500 molecules or more, and of donors in shares of cell types: root mean
squares over genes or cell types, by covariances between halves of the cells, which are free of sampling noise.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import product
from typing import Any, Literal, NamedTuple

import numpy as np
import pandas as pd
import scvi
from anndata import AnnData
from numpy.typing import NDArray
from scipy import sparse, stats

from benchmarks._data import FOLDER, KANG, _read
from benchmarks._perturbation_data import CONTROL, PAPALEXI, read
from benchmarks._variants import Run, study_options, study_runs, study_table
from benchmarks.generation import timed
from scdiffgen.model import TokenDiffusion
from scdiffgen.tl import power_analysis
from scdiffgen.tl._power import TESTS, log_pseudobulks

EFFECTS, N_PILOT, N_SUBSAMPLES, ALPHA = (-2.0, -1.0, -0.5, 0.5, 1.0, 2.0), 4, 20, 0.05
KNOCK_OUTS = ("IFNGR1", "IFNGR2", "JAK2", "STAT1")
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


class Setting(NamedTuple):
    """The pilot and the comparisons of a data set, by ``load``; how they are designed, tested and simulated."""

    load: Callable[[AnnData, np.random.Generator], tuple[AnnData, list[AnnData]]]
    test: Literal["pseudobulk", "cells"]
    n_donors: Sequence[int]
    n_cells: Sequence[int]
    experiment: dict[str, Any]


def kang(cells: AnnData, rng: np.random.Generator) -> tuple[AnnData, list[AnnData]]:
    """Control monocytes of four donors, and all monocytes."""
    monocytes = cells[cells.obs["cell_type"] == MONOCYTES]
    own = rng.permutation(monocytes.obs["donor"].unique())[:N_PILOT]
    return monocytes[monocytes.obs["donor"].isin(own) & (monocytes.obs["arm"] == "control")], [monocytes]


def papalexi(cells: AnnData, rng: np.random.Generator) -> tuple[AnnData, list[AnnData]]:
    """Half of the control cells, and knock-outs with all control cells, in random halves instead of donors."""
    is_control = cells.obs["perturbation"] == CONTROL
    half, arm = rng.integers(2, size=cells.n_obs), np.where(is_control, *ARMS)
    cells.obs = cells.obs[["perturbation"]].assign(donor=half.astype(str), arm=arm)
    cells.uns = {"simulation": {"paired": False}}
    knock_outs = [cells[is_control | (cells.obs["perturbation"] == name)] for name in KNOCK_OUTS]
    return cells[is_control & (half == 0)], knock_outs


SETTINGS = {
    "kang": Setting(kang, "pseudobulk", (3, 4, 6), (20, 80), {"paired": True}),
    "papalexi": Setting(papalexi, "cells", (2,), (25, 50, 100), {"donor_sd": 0.0, "sample_sd": 0.0}),
}


def subsample(cells: AnnData, n_donors: int, n_cells: int, rng: np.random.Generator) -> AnnData:
    """Random cells of random donors, as many of each arm."""
    chosen = cells.obs["donor"].isin(rng.permutation(cells.obs["donor"].unique())[:n_donors])
    order = pd.Series(rng.permutation(cells.n_obs), cells.obs_names)
    rank = order.groupby([cells.obs["donor"], cells.obs["arm"]], observed=True).rank()
    return cells[chosen & (rank <= n_cells)].copy()


def significant(cells: AnnData, setting: Setting) -> NDArray[np.bool_]:
    """Genes below the false discovery rate, among those that are tested."""
    tested = TESTS[setting.test](cells).dropna()
    found = pd.Series(stats.false_discovery_control(tested) <= ALPHA, tested.index)
    return found.reindex(cells.var_names, fill_value=False).to_numpy()


def fold_changes(cells: AnnData) -> NDArray[np.float64]:
    """Mean log2 fold change of the donors, as the test of pseudobulks sees it; NaN for genes that it leaves out."""
    bulks = log_pseudobulks(cells)
    return (bulks.loc["treated"].mean() - bulks.loc["control"].mean()).reindex(cells.var_names).to_numpy()


def realised(
    comparisons: Sequence[AnnData], setting: Setting, seed: int
) -> Iterator[tuple[int, int, NDArray[np.float64]]]:
    """Designs, and how often each gene of each comparison was found in subsamples of them."""
    rng = np.random.default_rng(seed)
    for donors, n_cells in product(setting.n_donors, setting.n_cells):
        subsamples = [[subsample(cells, donors, n_cells, rng) for cells in comparisons] for _ in range(N_SUBSAMPLES)]
        yield donors, n_cells, np.mean([[significant(cells, setting) for cells in row] for row in subsamples], axis=0)


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
    """A row a design and fold change, and the agreement over all of them, by data set."""
    agreement, last = [], {(run["data"], run["variant"], run["seed"]): run for run in runs}.values()
    for name in dict.fromkeys(run["data"] for run in runs):
        both = pd.DataFrame([run["scores"] for run in last if run["data"] == name and run["variant"] != VARIATION])
        difference, ranks = both["predicted"] - both["realised"], both["predicted"].corr(both["realised"], "spearman")
        within = f"from {difference.min():.2f} to {difference.max():.2f}"
        absolute = f"mean absolute difference {difference.abs().mean():.2f}"
        agreement.append(
            f"{name}, predicted minus realised: mean {difference.mean():.2f}, {within}; {absolute}; "
            f"rank correlation {ranks:.2f}."
        )
    return "\n\n".join([study_table(runs, DIGITS), *agreement])


def main(arguments: Sequence[str] | None = None) -> None:
    about = "benchmarks.studies.power", __doc__.splitlines()[0]
    options = study_options(*about, [*SETTINGS], ["kang"], [0], ["pilot"]).parse_args(arguments)

    def measured(name: str, seed: int) -> Iterator[tuple[str, Run]]:
        setting, rng = SETTINGS[name], np.random.default_rng(seed)
        cells = load_arms() if name == "kang" else read(FOLDER, PAPALEXI)
        if name == "kang":
            everywhere, seconds = timed(lambda: variation(cells, rng))
            yield VARIATION, {"scores": {**everywhere, "seconds": seconds}}
        pilot, comparisons = setting.load(cells, rng)
        genes = np.asarray((pilot.X > 0).mean(0)).ravel() >= LEAST_SHARE
        pilot, comparisons = pilot[:, genes].copy(), [part[:, genes].copy() for part in comparisons]
        change = np.stack([fold_changes(part) for part in comparisons])
        truth = np.stack([significant(part, setting) for part in comparisons])
        third = pd.qcut(pd.Series(np.asarray(pilot.X.mean(0)).ravel()).rank(), 3, labels=["low", "middle", "high"])
        nearest = {effect: truth & (np.abs(np.log2(np.maximum(change / effect, 1e-9))) < 0.25) for effect in EFFECTS}
        numbers = {effect: own.sum() / len(own) for effect, own in nearest.items() if own.any()}  # a comparison
        planted = [effect for effect, n in numbers.items() for _ in range(max(1, round(n / GENES_A_VALUE)))]
        model, seconds = timed(lambda: pilot_model(pilot, seed, quick=options.quick))
        share = round(float(np.mean(truth & (np.abs(change) > min(map(abs, EFFECTS)) / 2**0.5))), 2)
        designs = {"n_donors": setting.n_donors, "n_cells": setting.n_cells, "share_changed": share}
        how = {"experiment": setting.experiment, "test": setting.test, "alpha": ALPHA, "seed": seed}
        expected = power_analysis(model, planted, **designs, **how)
        expected = expected.set_index(["n_donors", "n_cells", "effect", "stratum"])["power"].sort_index()
        for donors, n_cells, found in realised(comparisons, setting, seed):
            design = f"{donors} donors, {n_cells} cells" if name == "kang" else f"{donors * n_cells} cells an arm"
            for effect in numbers:
                own = nearest[effect]
                weights = third.iloc[np.nonzero(own)[1]].value_counts(normalize=True)
                predicted = (expected[donors, n_cells, effect].reindex(weights.index) * weights).sum()
                scores = {"predicted": predicted, "realised": found[own].mean(), "genes": int(own.sum())}
                yield f"{design}, {2**effect:.2g}-fold", {"scores": {**scores, "seconds": seconds}}

    print(table(study_runs(options, "study-power.jsonl", measured)))


if __name__ == "__main__":
    main()
