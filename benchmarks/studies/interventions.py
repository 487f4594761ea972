"""Compare perturbations that are registered as such with labels, in measured and unmeasured conditions.

``python -m benchmarks.studies.interventions --seeds 0 1 2 --threads 1``

On Kang 2018, Zhao 2021 and Papalexi 2021, generated cells are compared with held-out cells of the same contexts and
perturbations. In neurons of Packer 2019, 20 genes change fourfold in one cell type and 20 others in all. Stimulated B
cells, five pairs of Norman 2019 and one knock-out of Papalexi 2021 (another for each seed) are held out entirely, as
are doses of simulated cells. Models of a task are trained for the same number of steps, or by default. The variant
*label* has one label for cell type and treatment together; *transfer alone* is the mean response, which needs no
network. *effect* and *embedding* are earlier forms (decision 35): a second network for perturbations that saw no label,
and embedded perturbations without a direct path to genes and without transfer.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

import anndata
import numpy as np
import pandas as pd
from anndata import AnnData
from numpy.typing import NDArray
from scipy import sparse

from benchmarks._data import FOLDER, LABEL
from benchmarks._data import split as stratified_split
from benchmarks._dose_task import SPANS, dose_scores, simulated_cells
from benchmarks._perturbation_data import (
    CONTEXT,
    CONTROL,
    PAPALEXI,
    RESPONSE,
    ZHAO,
    Fold,
    Settings,
    Target,
    kang_cells,
    norman,
    papalexi,
    read,
    split,
)
from benchmarks._perturbation_models import start_cells, trained_model, untrained_model
from benchmarks._perturbation_time import PACKER
from benchmarks._perturbation_transfer import _Means
from benchmarks._tables import markdown, summary
from benchmarks._variants import Run, study_options, study_runs
from benchmarks.generation import timed
from scdiffgen._log_normalise import log_normalise
from scdiffgen.metrics import ExpressionSpace, classifier_auc, pearson_delta
from scdiffgen.model import TokenDiffusion

REAL, NO_NETWORK, BY_DEFAULT = "real cells", "transfer alone", ", default length"
VARIANTS = ("perturbation", "label", f"perturbation{BY_DEFAULT}", f"label{BY_DEFAULT}")
EARLIER = ("effect", "embedding")
N_TRAINING_STEPS, N_GENES, N_CELLS, N_TREES = 500, 1000, 400, 50
N_PLANTED, SHARE, FOCAL = 20, 0.25, "ADL"  # genes of each kind, thinned share, cell type with changes of its own
SETUP = {"labels_key": CONTEXT, "perturbation_key": RESPONSE}
FILES = {"zhao": (ZHAO, "condition", "donor"), "papalexi": (PAPALEXI, "perturbation", None)}
KNOCK_OUTS, DOSE_KINDS = ("STAT1", "IFNGR2", "JAK2"), {"perturbation": "sinusoidal"}


def fit(fold: Fold, variant: str, seed: int, *, quick: bool) -> tuple[TokenDiffusion, float]:
    """Train a variant for the number of steps; return seconds of training, too."""
    by_default = variant.endswith(BY_DEFAULT) and not quick
    return timed(lambda: trained_model(fold, seed, None if by_default else epochs(fold.train.n_obs, quick=quick)))


def epochs(n_cells: int, *, quick: bool) -> int:
    """Number of epochs of the training steps, in minibatches of 256."""
    return 2 if quick else round(N_TRAINING_STEPS / math.ceil(0.9 * n_cells / 256))


def with_setup(fold: Fold, variant: str) -> tuple[Fold, list[str]]:
    """Register one label if that is the variant; return the registered columns, too."""
    setup = {"labels_key": LABEL} if variant.startswith("label") else dict(fold.setup)
    return Fold(fold.name, fold.train, fold.real, fold.targets, setup), list(setup.values())


def described(adata: AnnData, response: str, context: str | None) -> AnnData:
    """Name responses, contexts and labels as the helpers do."""
    adata.obs[RESPONSE] = adata.obs[response].astype(str).replace({"ctrl": CONTROL})
    adata.obs[CONTEXT] = "all" if context is None else adata.obs[context].astype(str)
    adata.obs[LABEL] = adata.obs[CONTEXT].astype(str) + ", " + adata.obs[RESPONSE].astype(str)
    adata.X = sparse.csr_matrix(adata.X, dtype=np.float32)
    return adata


def measured_fold(task: str, seed: int) -> tuple[Fold, AnnData]:
    """Held-out cells of measured contexts and responses, and other real cells."""
    if task == "kang":
        cells = described(kang_cells(FOLDER), "condition", "cell_type")
    else:
        file, response, context = FILES[task]
        cells = described(read(FOLDER, file), response, context)
    if task == "papalexi":
        frequent = cells.obs[RESPONSE].value_counts().drop("unassigned").index[:7]  # and the control
        cells = cells[cells.obs[RESPONSE].isin(frequent)]
        cells = cells[np.sort(np.random.default_rng(seed).permutation(cells.n_obs)[:5000])].copy()
    parts = stratified_split(cells, task, seed, N_GENES if task == "kang" else None)
    pairs = parts.held_out.obs.loc[parts.held_out.obs[RESPONSE] != CONTROL, [RESPONSE, CONTEXT]].drop_duplicates()
    targets = [Target(*pair, {}) for pair in pairs.itertuples(index=False)]
    setup = {"perturbation_key": RESPONSE} if task == "papalexi" else SETUP
    return Fold(task, parts.train, parts.held_out, targets, setup), parts.other


def agreement(real: Sequence[NDArray], predicted: Sequence[NDArray], name: str = "") -> dict[str, float]:
    """Pearson correlation of changes and slope of predicted on real ones, means over responses."""
    pairs = list(zip(real, predicted, strict=True))
    slope = np.mean([x @ y / (x @ x) for x, y in pairs])
    return {f"pearson{name}": float(np.nanmean([pearson_delta(*pair) for pair in pairs])), f"slope{name}": float(slope)}


def measured_scores(task: str, seed: int, variants: Sequence[str], *, quick: bool) -> Iterator[tuple[str, Run]]:
    """Compare generated with held-out cells, separately for control and treated cells."""
    whole, other = measured_fold(task, seed)
    space = ExpressionSpace.fit(whole.train.X)

    def scores(cells: AnnData) -> dict[str, float]:
        found = {}
        for arm in ("control", "treated"):
            real, own = (part[(part.obs[RESPONSE] == CONTROL) == (arm == "control")] for part in (whole.real, cells))
            of = {"real_labels": real.obs[LABEL], "generated_labels": own.obs[LABEL], "n_trees": N_TREES}
            for form, to in {"pcs": space.pcs, "genes": space.expression}.items():
                found[f"auc_forest_{form}_{arm}"] = classifier_auc(to(real.X), to(own.X), **of)
        changes = [[_Means(part).change(*target[:2]) for target in whole.targets] for part in (whole.real, cells)]
        return found | agreement(*changes)

    yield REAL, {"scores": scores(other) | {"seconds": 0.0}}
    for variant in variants:
        fold, columns = with_setup(whole, variant)
        model, seconds = fit(fold, variant, seed, quick=quick)
        table = fold.real.obs[columns].astype(str).reset_index(drop=True)
        cells = AnnData(model.generate(table, seed=seed, silent=True).X, obs=fold.real.obs, var=fold.train.var)
        yield variant, {"scores": scores(cells) | {"seconds": seconds}}


def planted_scores(seed: int, variants: Sequence[str], *, quick: bool) -> Iterator[tuple[str, Run]]:
    """Mean log2 fold changes, in the planted direction, where 2 or 0 is true."""
    cells, rng = described(read(FOLDER, PACKER), "cell_type", "cell_type"), np.random.default_rng(seed)
    cells = cells[cells.obs[CONTEXT] != "AWC_ON"]  # nine cells
    cells = cells[:, np.argsort(-np.asarray(cells.X.mean(0)).ravel())[:N_GENES]].copy()
    cells.obs[RESPONSE] = np.where(rng.integers(2, size=cells.n_obs) == 1, "treated", CONTROL)
    described(cells, RESPONSE, CONTEXT)
    genes = 20 + rng.permutation(180)[: 2 * N_PLANTED].reshape(2, -1)  # own, shared: well expressed
    counts, treated = cells.X.toarray(), (cells.obs[RESPONSE] == "treated").to_numpy()
    for kind, chosen in enumerate(genes):
        where = (cells.obs[CONTEXT] == FOCAL).to_numpy() | (kind == 1)
        for arm, falling in ((treated, chosen[::2]), (~treated, chosen[1::2])):
            block = np.ix_(arm & where, falling)
            counts[block] = rng.binomial(counts[block].astype(int), SHARE)
    cells.X, sign = sparse.csr_matrix(counts), np.where(np.arange(N_PLANTED) % 2 == 0, -1, 1)
    rest, types = np.setdiff1d(np.arange(N_GENES), genes), sorted(cells.obs[CONTEXT].unique())

    def scores(found: AnnData) -> dict[str, float]:
        """Folds of sums over cells, relative to genes that do not change, with half a molecule added."""
        logs = {}
        for name, own in found.obs.groupby([CONTEXT, RESPONSE]).indices.items():
            sums = np.asarray(found.X[own].sum(0)).ravel()
            logs[name] = np.log2(sums + 0.5) - np.log2(sums[rest].sum())
        folds = {name: (logs[name, "treated"] - logs[name, CONTROL])[genes] * sign for name in types}
        others = np.mean([folds[name] for name in types if name != FOCAL], axis=0)
        truth = {name: np.array([2.0 * (name == FOCAL), 2.0])[:, None] for name in types}
        errors = [folds[name] - truth[name] for name in types]
        return {
            "fold_own_type": float(folds[FOCAL][0].mean()),
            "fold_own_elsewhere": float(others[0].mean()),
            "fold_shared": float(np.mean([of[1].mean() for of in folds.values()])),
            "fold_rmse": float(np.sqrt(np.mean(np.square(errors)))),
        }

    yield REAL, {"scores": scores(cells) | {"seconds": 0.0}}
    for variant in variants:
        fold, columns = with_setup(Fold("planted", cells, cells[:0], [], SETUP), variant)
        model, seconds = fit(fold, variant, seed, quick=quick)
        obs = cells.obs[[*SETUP.values(), LABEL]].drop_duplicates().loc[lambda of: of.index.repeat(N_CELLS)]
        found = model.generate(obs[columns].astype(str).reset_index(drop=True), seed=seed, silent=True)
        generated = AnnData(found.X, obs=obs.reset_index(drop=True), var=cells.var)
        yield variant, {"scores": scores(generated) | {"seconds": seconds}}


def unmeasured_fold(task: str, seed: int) -> Fold:
    """A response that is held out entirely."""
    if task == "norman":
        pairs = [target.response for target in next(norman(FOLDER)).targets]
        return next(norman(FOLDER, sorted(np.random.default_rng(seed).permutation(pairs)[:5])))
    if task == "papalexi-genes":
        return next(papalexi(FOLDER, [KNOCK_OUTS[seed % len(KNOCK_OUTS)]]))
    cells, name = described(kang_cells(FOLDER), "condition", "cell_type"), "B cells"
    held_out = ((cells.obs[CONTEXT] == name) & (cells.obs[RESPONSE] == "stim")).to_numpy()
    return split(name, cells, held_out, [Target("stim", name, {CONTEXT: name, RESPONSE: "stim"})], SETUP, N_GENES)


def unmeasured_scores(task: str, seed: int, variants: Sequence[str], *, quick: bool) -> Iterator[tuple[str, Run]]:
    """Correlate predicted changes with real ones: generated as by default, by transfer, and by the network alone."""
    fold = unmeasured_fold(task, seed)
    key, options = fold.setup["perturbation_key"], {"seed": seed, "silent": True}
    real = [_Means(anndata.concat([fold.train, fold.real])).change(*target[:2]) for target in fold.targets]
    plain = untrained_model(fold.train, dict(fold.setup))
    means = [plain.get_mean_response(target.conditions)["change"].to_numpy() for target in fold.targets]
    yield NO_NETWORK, {"scores": agreement(real, means) | {"seconds": 0.0}}

    for variant in [name for name in variants if not name.startswith("label")]:
        model, seconds = fit(fold, variant, seed, quick=quick)
        changes: dict[str, list[NDArray]] = {"_generate": [], "_transferred": [], "_network": []}
        for target in fold.targets:
            untreated = {**target.conditions, key: CONTROL}
            after, before = (model.generate(asked, N_CELLS, **options) for asked in (target.conditions, untreated))
            start, treatment = start_cells(fold, target, N_CELLS, seed), {key: target.conditions[key]}
            moved = plain.predict_perturbation(before, treatment, **options)
            network = model.predict_perturbation(None, treatment, indices=start, source="network", **options)
            pairs = ((after, before), (moved, before), (network, fold.train[start]))
            for name, pair in zip(changes, pairs, strict=True):
                ends = [np.asarray(log_normalise(cells.X).mean(0)).ravel() for cells in pair]
                changes[name].append(ends[0] - ends[1])
        scores = {k: v for name, found in changes.items() for k, v in agreement(real, found, name).items()}
        yield variant, {"scores": scores | {"seconds": seconds}}


def dose_errors(seed: int, variants: Sequence[str], *, quick: bool) -> Iterator[tuple[str, Run]]:
    """Errors of mean log expression at seen doses, between and beyond them, by the network and by default."""
    cells = simulated_cells(2000, 200, seed)
    settings = Settings(max_epochs=epochs(cells.n_obs, quick=quick), max_cells=150)
    for variant, kind in DOSE_KINDS.items():
        if variant in variants:
            frame, seconds = timed(lambda kind=kind: dose_scores(cells, [kind], settings, seed))
            errors = frame.groupby(["prediction", "span"])["rmse"].mean()
            names = {"network": kind, "default": f"{kind}: transferred"}
            scores = {f"rmse_{span}_{how}": errors[name, span] for how, name in names.items() for span in SPANS}
            yield variant, {"scores": scores | {"seconds": seconds}}


TASKS = ("kang", "planted", "zhao", "papalexi", "kang-b", "norman", "dose", "papalexi-genes")


def table(runs: Sequence[Run]) -> str:
    """A row a task and score, a column a variant: medians and ranges over seeds."""
    last = {(run["data"], run["variant"], run["seed"]): run["scores"] for run in runs}
    values = [(*key[:2], name, of[name]) for key, of in last.items() for name in of if name != "seconds"]
    frame = pd.DataFrame(values, columns=["d", "v", "s", "x"])
    columns, rows = [name for name in (*EARLIER, *VARIANTS, NO_NETWORK, REAL) if (frame["v"] == name).any()], []
    for task, score in frame[["d", "s"]].drop_duplicates().itertuples(index=False):
        own = frame[(frame["d"] == task) & (frame["s"] == score)]
        rows.append([task, score, *(summary(own.loc[own["v"] == name, "x"], 3) for name in columns)])
    return markdown(["data", "score", *columns], rows)


def main(arguments: Sequence[str] | None = None) -> None:
    about = "benchmarks.studies.interventions", __doc__.splitlines()[0]
    options = study_options(*about, TASKS, TASKS, [0, 1, 2], VARIANTS).parse_args(arguments)
    other: dict[str, Any] = {"planted": planted_scores, "dose": dose_errors}

    def measured(task: str, seed: int) -> Iterator[tuple[str, Run]]:
        if task in other:
            return other[task](seed, options.variants, quick=options.quick)
        scores = measured_scores if task in ("kang", *FILES) else unmeasured_scores
        return scores(task, seed, options.variants, quick=options.quick)

    print(table(study_runs(options, "study-interventions.jsonl", measured)))


if __name__ == "__main__":
    main()
