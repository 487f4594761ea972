"""Do labels of few training cells come out as themselves? Trains with and without what is done for them.

``python -m benchmarks.studies.rare_labels --data paul700 kang700 --seeds 10 11 12``

Models are trained on the training cells of a benchmark that are cut to 700. The judge is a logistic regression on
log-normalised counts of half of the training cells that were cut off; the other half shows what share of real cells it
recognises. Held-out cells of the benchmark take no part. Runs are lines of a file; the table shows the last of each.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, nullcontext
from typing import Any
from unittest.mock import patch

import numpy as np
import pandas as pd
import scvi
from anndata import AnnData
from sklearn.linear_model import LogisticRegression

import scdiffgen.module._rare_labels
import scdiffgen.train._plan
from benchmarks._data import DATASETS, LABEL, available, load_split
from benchmarks._tables import markdown, summary
from benchmarks._variants import study_options, study_runs
from benchmarks.generation import timed
from scdiffgen._log_normalise import log_normalise
from scdiffgen.model import TokenDiffusion

WHOLE = {"paul700": "paul15", "kang700": "kang"}
N_GENERATED = 100  # cells of each label
PENALTY = 0.1  # inverse strength
GROUPS = {"fewer than 20": (0, 20), "20 to 69": (20, 70), "70 and more": (70, np.inf)}  # training cells of a label


def without_offsets() -> AbstractContextManager:
    """No label is rare."""
    return patch.object(scdiffgen.module._rare_labels, "LEAST_CELLS", np.inf)


def decayed() -> AbstractContextManager:
    """Embedded conditions decay as all matrices do."""
    return patch.object(scdiffgen.train._plan, "EMBEDDING_DECAY", np.inf)


def neither() -> AbstractContextManager:
    stack = ExitStack()
    stack.enter_context(without_offsets())
    stack.enter_context(decayed())
    return stack


VARIANTS: dict[str, Callable[[], AbstractContextManager]] = {
    "default": nullcontext,
    "no offsets": without_offsets,
    "decayed embeddings": decayed,
    "neither": neither,
}


def other_training_cells(name: str, seed: int, train: AnnData) -> AnnData:
    """Training cells of the whole benchmark that were cut off, over the same genes."""
    whole, held_out = DATASETS[WHOLE[name]].load(), load_split(name, seed)
    used = train.obs_names.union(held_out.held_out.obs_names).union(held_out.other.obs_names)
    return whole[~whole.obs_names.isin(used), train.var_names].copy()


def measure(train: AnnData, others: AnnData, seed: int, max_epochs: int | None) -> dict[str, Any]:
    """Share of cells that the judge takes for their label, real and generated, by training cells of the label."""
    scvi.settings.seed = seed
    adata = train.copy()
    TokenDiffusion.setup_anndata(adata, labels_key=LABEL)
    model = TokenDiffusion(adata, preset="small")
    _, seconds = timed(lambda: model.train(max_epochs, enable_progress_bar=False))
    n_cells = train.obs[LABEL].astype(str).value_counts()
    generated = model.generate(pd.DataFrame({LABEL: n_cells.index}), n_cells=N_GENERATED, seed=seed, silent=True)
    first = np.random.default_rng(seed).permutation(others.n_obs) < others.n_obs // 2
    labels = others.obs[LABEL].astype(str).to_numpy()
    judge = LogisticRegression(C=PENALTY, max_iter=500).fit(log_normalise(others.X[first]), labels[first])
    scores: dict[str, Any] = {"seconds": seconds}
    sides = {"real": (others.X[~first], labels[~first]), "generated": (generated.X, generated.obs[LABEL].astype(str))}
    for side, (counts, given) in sides.items():
        right = pd.Series(judge.predict(log_normalise(counts)) == np.asarray(given)).groupby(np.asarray(given)).mean()
        for group, (least, most) in GROUPS.items():
            of_group = right[right.index.isin(n_cells.index[(n_cells >= least) & (n_cells < most)])]
            scores[f"{side}, {group}"] = float(of_group.mean())
    return scores


def table(runs: Sequence[dict[str, Any]]) -> str:
    """Shares recognised, a row a data set and variant, of the last run of each variant and seed."""
    last = {(run["data"], run["variant"], run["seed"]): run["scores"] for run in runs}
    scores = pd.DataFrame(list(last.values()), index=pd.MultiIndex.from_tuples(last)).groupby(level=[0, 1], sort=False)
    columns = [name for name in next(iter(last.values())) if name != "seconds"]
    rows = [[*names, *(summary(found[name].dropna(), 2) for name in columns)] for names, found in scores]
    return markdown(["data", "variant", *columns], rows)


def main(arguments: Sequence[str] | None = None) -> None:
    default = [*set(WHOLE) & set(available(fewer=True))]
    about = "benchmarks.studies.rare_labels", __doc__.splitlines()[0]
    options = study_options(*about, [*WHOLE], default, [10, 11, 12], [*VARIANTS]).parse_args(arguments)

    def measured(name: str, seed: int) -> Iterator[tuple[str, dict[str, Any]]]:
        train = load_split(name, seed).train
        others = other_training_cells(name, seed, train)
        for variant in options.variants:
            with VARIANTS[variant]():
                yield variant, {"scores": measure(train, others, seed, 2 if options.quick else None)}

    print(table(study_runs(options, "study-rare-labels.jsonl", measured)))


if __name__ == "__main__":
    main()
