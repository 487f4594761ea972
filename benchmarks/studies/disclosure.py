"""Attack generated cells to infer which cells the generator was trained on, and compare what lowers the risk.

``python -m benchmarks.studies.disclosure --data pbmc68k paul15 --seeds 0 1 --threads 1``

Models are trained on three quarters of the training cells of each benchmark, and scored on the rest. Each generates as
many cells as it was trained on, with their labels, which attacks compare with the cells that the benchmark holds out.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import anndata
import numpy as np
import scvi
from anndata import AnnData
from numpy.typing import ArrayLike, NDArray
from scipy.sparse import csr_matrix

from benchmarks._data import LABEL, Split, available, load_split
from benchmarks._models import Method, linear_methods, null_methods, scdiffgen_methods
from benchmarks._scvi import fit_scvi, scvi_methods
from benchmarks._variants import N_TREES, Run, inner_split, study_options, study_runs, study_table
from benchmarks.generation import timed
from scdiffgen.metrics import ExpressionSpace, classifier_auc, membership_inference
from scdiffgen.model import TokenDiffusion
from scdiffgen.model._training_runs import default_max_epochs

N_STEPS, MAX_FPR = 32, 0.1
REAL, COPIES = "other real cells", "training cells"
WITHOUT_MODEL = {
    "shuffled genes": lambda split: null_methods(split)[1],
    "linear Gaussian copula": lambda split: linear_methods(split)[0],
}
SCVI = ("scVI, Gaussian mixture", "scVI, aggregated posterior")
OURS: dict[str, dict[str, Any]] = {  # share of the default epochs, cells of labels that are merged, and options
    "default": {},
    "quarter of the epochs": {"share": 0.25},
    "weight decay 20": {"plan_kwargs": {"weight_decay": 20.0}},
    "labels of fewer than 20 cells merged": {"merged_below": 20},
    "quarter of the epochs, labels merged": {"share": 0.25, "merged_below": 20},
    "four times the epochs": {"share": 4.0, "early_stopping": False},
    "gaussian": {"process": "gaussian"},
}
VARIANTS = (REAL, COPIES, *WITHOUT_MODEL, *OURS, *SCVI)
DIGITS = {
    **{f"auc_{name}": 3 for name in ("distance", "density_ratio", "classifier", "control")},
    **{"tpr_density_ratio": 2, "tpr_classifier": 2, "auc_forest_pcs": 3, "auc_forest_genes": 3, "seconds": 0},
}


def fitted(
    split: Split,
    *,
    share: float = 1.0,
    process: str = "thinning",
    merged_below: int = 0,
    quick: bool = False,
    **options: Any,
) -> tuple[TokenDiffusion, Method]:
    """Train for a share of the default number of epochs; labels of few cells are one, also when they are drawn."""
    adata = split.train.copy()
    n_cells = adata.obs[LABEL].value_counts()
    few = n_cells.index[n_cells < merged_below].astype(str)
    adata.obs[LABEL] = merged(adata.obs[LABEL], few)
    TokenDiffusion.setup_anndata(adata, labels_key=LABEL)
    model = TokenDiffusion(adata, process=process)
    epochs = None if share == 1.0 else round(share * default_max_epochs(round(0.9 * adata.n_obs), 256, has_units=True))
    model.train(max_epochs=2 if quick else epochs, enable_progress_bar=False, **options)
    drawn = scdiffgen_methods(model, [N_STEPS])[0]
    return model, replace(drawn, sample=lambda labels, seed: drawn.sample(merged(labels, few), seed))


def merged(labels: ArrayLike, few: ArrayLike) -> NDArray[np.str_]:
    """Labels, with one name for all of the few."""
    names = np.asarray(labels, dtype=str)
    return np.where(np.isin(names, np.asarray(few, dtype=str)), "merged", names)


def methods(split: Split, variants: Sequence[str], *, quick: bool) -> Iterator[tuple[str, Method, AnnData, float]]:
    """Ways to draw cells, with the cells that each was trained on, and seconds of training."""
    for name, method_of in WITHOUT_MODEL.items():
        if name in variants:
            yield name, method_of(split), split.train, 0.0
    for name, options in OURS.items():
        if name in variants:
            scvi.settings.seed = split.seed
            (model, method), seconds = timed(lambda options=options: fitted(split, quick=quick, **options))
            yield name, method, split.train[model.train_indices], seconds
    if {*SCVI} & {*variants}:
        scvi.settings.seed = split.seed
        model, seconds = timed(lambda: fit_scvi(split, max_epochs=2 if quick else None))
        for name, method in zip(SCVI, scvi_methods(model)[1:], strict=True):
            yield name, method, split.train[model.train_indices], seconds


def attacked(train: AnnData, held_out: AnnData, counts: csr_matrix, seed: int) -> Run:
    """Success of the attacks on single cells, with intervals."""
    generated = AnnData(counts, var=train.var)
    table = membership_inference(train, held_out, generated, LABEL, max_fpr=MAX_FPR, seed=seed).loc["cell"]
    aucs, rates = table["auc"].add_prefix("auc_"), table["tpr"].add_prefix("tpr_")
    control = table.loc["density_ratio", "control"]
    return {"scores": {**aucs, **rates, "auc_control": control}, "attacks": table.reset_index().to_dict("records")}


def table(runs: Sequence[Run]) -> str:
    """A row a way to draw cells."""
    names = ("auc_forest_pcs", "auc_forest_genes")  # which real cells lack
    runs = sorted(runs, key=lambda run: (run["data"], VARIANTS.index(run["variant"])))
    rows = [{key: run[key] for key in run if key != "attacks"} for run in runs]
    return study_table([row | {"scores": dict.fromkeys(names) | row["scores"]} for row in rows], DIGITS)


def main(arguments: Sequence[str] | None = None) -> None:
    about = "benchmarks.studies.disclosure", __doc__.splitlines()[0]
    options = study_options(*about, available(), ["pbmc68k"], [0], VARIANTS).parse_args(arguments)

    def measured(name: str, seed: int) -> Iterator[tuple[str, Run]]:
        outer = load_split(name, seed)
        split, held_out = inner_split(outer), anndata.concat([outer.held_out, outer.other])
        space = ExpressionSpace.fit(split.train.X)

        def scores(counts: csr_matrix) -> dict[str, float]:
            of = {"n_trees": N_TREES, "real_labels": split.labels, "generated_labels": split.labels}
            forms = {"pcs": space.pcs, "genes": space.expression}
            return {f"auc_forest_{k}": classifier_auc(f(split.held_out.X), f(counts), **of) for k, f in forms.items()}

        for variant, counts in {REAL: split.held_out.X, COPIES: split.train.X}.items():
            if variant in options.variants:
                run = attacked(split.train, held_out, counts, seed)
                yield variant, run | {"scores": run["scores"] | {"seconds": 0.0}}
        for variant, method, train, seconds in methods(split, options.variants, quick=options.quick):
            run = attacked(train, held_out, method.sample(split.train.obs[LABEL].to_numpy(dtype=str), seed), seed)
            run["scores"] |= scores(method.sample(split.labels, seed + 1)) | {"seconds": seconds}
            yield variant, run

    print(table(study_runs(options, "study-disclosure.jsonl", measured)))


if __name__ == "__main__":
    main()
