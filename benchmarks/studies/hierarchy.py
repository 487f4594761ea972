"""Does a hierarchy help over plain labels? Cells of leaves, of parents, and of leaves of ten training cells.

``python -m benchmarks.studies.hierarchy --data paul15 kang --seeds 0 1 2``

Clusters within types of Paul 2015, types within lineages of Kang 2018 (where the treatment is a category beside
them). The training cells of the benchmark (at most 4,000) are split again: three fifths train the models, a fifth
trains the judge, a logistic regression of the leaf on log-normalised counts, and a fifth is scored. *All cells*:
likelihood, and forests against generated cells of the same leaves, and of the same parents where these alone are
given; plain labels are then drawn by their shares in training. *Leaves cut*: some leaves at once keep ten cells, what
was cut is scored: Pearson of the change of mean log expression against the parent, and what share the judge takes for
the leaf. Runs are lines of a file; the table shows the last of each.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from string import digits
from typing import Any, NamedTuple

import anndata
import numpy as np
import pandas as pd
import scvi
from anndata import AnnData
from numpy.typing import NDArray
from sklearn.linear_model import LogisticRegression

from benchmarks._data import FOLDER, KANG, PAUL15, available, load_split
from benchmarks._variants import Run, study_options, study_runs, study_table
from benchmarks.generation import timed
from scdiffgen._log_normalise import log_normalise
from scdiffgen.metrics import ExpressionSpace, classifier_auc
from scdiffgen.model import TokenDiffusion

PARENT, LEAF, TREATMENT = "parent", "leaf", "treatment"
LINEAGES = {
    **dict.fromkeys(["CD4 T cells", "CD8 T cells"], "T cells"),
    **dict.fromkeys(["CD14+ Monocytes", "FCGR3A+ Monocytes", "Dendritic cells"], "myeloid cells"),
}  # B cells, NK cells and megakaryocytes are lineages of their own
CUT = {"paul15": ["3Ery", "5Ery", "15Mo"], "kang": ["CD8 T cells", "FCGR3A+ Monocytes"]}
VARIANTS: dict[str, dict[str, Any]] = {
    "plain labels": {"labels_key": LEAF},
    "hierarchy": {"hierarchy_keys": [PARENT, LEAF]},
    "two categories": {"labels_key": LEAF, "categorical_covariate_keys": [PARENT]},
}
MOST_CELLS, N_KEPT = 4000, 10
PENALTY, N_TREES = 0.1, 100  # of the judge, inverse strength; of a forest


class Cells(NamedTuple):
    """Cells by what they are for; ``scored`` are the cut ones where leaves are cut."""

    fit: AnnData
    judge: AnnData
    scored: AnnData


def levels(name: str) -> pd.DataFrame:
    """Leaf and parent of all cells, and their treatment where there is one."""
    if name == "paul15":
        clusters = anndata.read_h5ad(FOLDER / PAUL15, backed="r").obs["paul15_cluster"].astype(str)
        return pd.DataFrame({PARENT: clusters.str.lstrip(digits), LEAF: clusters})
    obs = anndata.read_h5ad(FOLDER / KANG, backed="r").obs.astype(str)
    types = obs["cell_type"]
    return pd.DataFrame({PARENT: types.replace(LINEAGES), LEAF: types, TREATMENT: obs["condition"]})


def training_cells(name: str, seed: int) -> AnnData:
    """Training cells of a benchmark, at most 4,000, with the levels of their hierarchy."""
    train = load_split(name, seed).train
    rows = np.random.default_rng(seed).permutation(train.n_obs)[:MOST_CELLS]
    cells = train[np.sort(rows)].copy()
    cells.obs = levels(name).loc[cells.obs_names]
    return cells


def in_parts(cells: AnnData, seed: int, cut: Sequence[str] = ()) -> Cells:
    """Three fifths, a fifth and a fifth of every leaf; with leaves to ``cut``, what they lose is scored instead."""
    rng, part = np.random.default_rng(seed), np.full(cells.n_obs, "fit", dtype=object)
    for rows in cells.obs.groupby(list(cells.obs)).indices.values():
        shuffled = rng.permutation(rows)
        n = -(-len(rows) // 5)
        part[shuffled[:n]], part[shuffled[n : 2 * n]] = "judge", "scored"
    if cut:
        part[part == "scored"] = "left out"
    for leaf in cut:
        part[rng.permutation(np.flatnonzero((part == "fit") & (cells.obs[LEAF] == leaf)))[N_KEPT:]] = "scored"
    return Cells(*(cells[part == name].copy() for name in Cells._fields))


def fitted(fit: AnnData, variant: str, seed: int, max_epochs: int | None) -> tuple[TokenDiffusion, float]:
    """A model of the cells, registered one way, and the seconds that it took."""
    scvi.settings.seed = seed
    adata, keys = fit.copy(), dict(VARIANTS[variant])
    if TREATMENT in adata.obs:
        keys["categorical_covariate_keys"] = [*keys.get("categorical_covariate_keys", []), TREATMENT]
    TokenDiffusion.setup_anndata(adata, **keys)
    model = TokenDiffusion(adata, preset="small")
    return model, timed(lambda: model.train(max_epochs, enable_progress_bar=False))[1]


def parents_given(obs: pd.DataFrame, fit: pd.DataFrame, variant: str, seed: int) -> pd.DataFrame:
    """A request of cells by parent and treatment alone; plain labels are drawn from training cells of the same."""
    given = [name for name in obs if name != LEAF]
    if variant != "plain labels":
        return obs[given]
    rng, leaves = np.random.default_rng(seed), pd.Series(index=obs.index, dtype=object)
    groups, known = (table[given].agg(", ".join, axis=1) for table in (obs, fit))
    for group in groups.unique():
        leaves[groups == group] = rng.choice(fit.loc[known == group, LEAF].to_numpy(), (groups == group).sum())
    return obs.assign(**{LEAF: leaves})


def request(obs: pd.DataFrame, variant: str) -> pd.DataFrame:
    """The columns that a model of this variant knows."""
    return obs.drop(columns=PARENT) if variant == "plain labels" else obs


def score(model: TokenDiffusion, cells: Cells, variant: str, cut: Sequence[str], seed: int, jobs: int) -> Run:
    """Scores of a model on the cells that are scored."""
    real, obs = cells.scored, cells.scored.obs
    nats = model.get_nll(real.copy(), seed=seed, silent=True)["nll"].sum() / real.X.sum()
    space = ExpressionSpace.fit(cells.fit.X)

    def aucs(level: str, table: pd.DataFrame) -> tuple[Run, AnnData]:
        drawn = model.generate(request(table, variant), seed=seed, silent=True)
        labels = {"real_labels": obs[level], "generated_labels": obs[level]}
        spaces = {"components": space.pcs, "genes": space.expression}
        found = {
            f"{level} AUC, {name}": classifier_auc(to(real.X), to(drawn.X), n_trees=N_TREES, n_jobs=jobs, **labels)
            for name, to in spaces.items()
        }
        return found, drawn

    scores, drawn = aucs(LEAF, obs)
    if cut:
        return {"nats per molecule": float(nats), **scores, **of_leaves(cells, drawn, cut)}
    at_parents = aucs(PARENT, parents_given(obs, cells.fit.obs, variant, seed))[0]
    return {"nats per molecule": float(nats), **scores, **at_parents}


def of_leaves(cells: Cells, drawn: AnnData, leaves: Sequence[str]) -> dict[str, float]:
    """Means over leaves: Pearson of the change against the parent, and shares that the judge takes for the leaf."""
    known, real, generated = (log_normalise(part.X) for part in (cells.judge, cells.scored, drawn))
    judge = LogisticRegression(C=PENALTY, max_iter=500).fit(known, cells.judge.obs[LEAF])
    found = []
    for leaf in leaves:
        rows = np.flatnonzero(cells.scored.obs[LEAF] == leaf)
        parent = known[np.flatnonzero(cells.judge.obs[PARENT] == cells.scored.obs[PARENT].iloc[rows[0]])]
        changes = [mean(side[rows]) - mean(parent) for side in (real, generated)]
        shares = [(judge.predict(side[rows]) == leaf).mean() for side in (real, generated)]
        found.append([np.corrcoef(*changes)[0, 1], *shares])
    names = "Pearson of the change", "recognised, real", "recognised, generated"
    return dict(zip(names, np.mean(found, axis=0).tolist(), strict=True))


def mean(expression: Any) -> NDArray[np.float64]:
    """Mean over the cells of a sparse matrix."""
    return np.asarray(expression.mean(axis=0)).ravel()


def table(runs: Sequence[Run]) -> str:
    """A row a setting and way to give labels."""
    names = [f"{level} AUC, {of}" for level in (LEAF, PARENT) for of in ("components", "genes")]
    names += ["Pearson of the change", "recognised, real", "recognised, generated"]
    return study_table(runs, {"nats per molecule": 4, **dict.fromkeys(names, 2), "seconds": 0})


def main(arguments: Sequence[str] | None = None) -> None:
    there = [name for name in CUT if name in available()]
    about = "benchmarks.studies.hierarchy", __doc__.splitlines()[0]
    options = study_options(*about, [*CUT], there, [0, 1, 2], [*VARIANTS]).parse_args(arguments)

    def measured(name: str, seed: int) -> Iterator[tuple[str, Run]]:
        train = training_cells(name, seed)
        for setting, cut in (("all cells", []), ("leaves cut", CUT[name])):
            cells = in_parts(train, seed, cut)
            for variant in options.variants:
                model, seconds = fitted(cells.fit, variant, seed, 2 if options.quick else None)
                scores = score(model, cells, variant, cut, seed, options.threads)
                yield variant, {"setting": setting, "scores": scores | {"seconds": seconds}}

    print(table(study_runs(options, "study-hierarchy.jsonl", measured)))


if __name__ == "__main__":
    main()
