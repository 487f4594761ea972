"""What do linear start, weight decay, length and restored weights contribute? Trains without each of them.

``python -m benchmarks.studies.linear_start --data paul700 paul15 --seeds 0 1 2``

Of the training cells of a benchmark alone, a quarter of each label is held out, at most 1,500 cells in all. Runs are
lines of a file; the tables show the last of each variant and seed. ``--variants`` without a name prints them alone.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any
from unittest.mock import patch

import numpy as np
import pandas as pd
import scvi
from anndata import AnnData

from benchmarks._data import DATASETS, LABEL, Split, available, load_split
from benchmarks._scores import METRICS, Scorer, likelihoods
from benchmarks._tables import markdown, summary
from benchmarks._variants import study_options, study_runs
from benchmarks.generation import timed
from scdiffgen.metrics._resampling import unit_weights
from scdiffgen.metrics._spread import log_variance_ratios
from scdiffgen.model import TokenDiffusion
from scdiffgen.train import DiffusionTrainingPlan

SCORES = "auc_forest_pcs auc_forest_genes variance_error least_variance_ratio largest_variance_ratio novelty".split()
COLUMNS = {  # of the table: title and digits
    "seconds": ("training, s", 0),
    "least_loss": ("validation loss, least", 4),
    "least_at": ("at share of epochs", 2),
    "last_loss": ("last", 4),
    "scdiffgen": ("held-out nats per molecule", 4),
    "Dirichlet-multinomial at the label mean": ("Dirichlet-multinomial", 4),
    "variance_error_within": ("mean absolute log2 ratio within labels", 2),
    **{key: (METRICS[key].title, METRICS[key].n_digits) for key in SCORES},
}


def restore_best(plan: DiffusionTrainingPlan, usual: Callable = DiffusionTrainingPlan.on_train_end) -> None:
    """End of training that takes any last weights for clearly worse."""
    plan._last_loss = math.inf
    usual(plan)


@dataclass(frozen=True)
class Variant:
    """What differs from the default; ``decay`` makes the weight decay of the usual one."""

    starts_linearly: bool = True
    decay: Callable[[float], float] = lambda usual: usual
    at_end: Callable[[DiffusionTrainingPlan], None] = DiffusionTrainingPlan.on_train_end
    any_length: bool = False  # also fewer than 1,000 steps

    def fit(self, adata: AnnData, max_epochs: int | None) -> TokenDiffusion:
        """Train, with the default length unless ``max_epochs`` are given."""
        TokenDiffusion.setup_anndata(adata, labels_key=LABEL)
        model, n_train = TokenDiffusion(adata, preset="small"), math.ceil(0.9 * adata.n_obs)
        if self.any_length and max_epochs is None:
            max_epochs = max(1, round(2.5 * n_train**0.8 / math.ceil(n_train / 256)))
        plan = {"weight_decay": self.decay(model.module.regularisation(n_train)[0])}
        if not self.starts_linearly:
            model.module.start_linearly, model.module.linear_weights = lambda sample: None, lambda: ()
        with patch.object(DiffusionTrainingPlan, "on_train_end", self.at_end):
            model.train(max_epochs, plan_kwargs=plan, enable_progress_bar=False)
        return model


VARIANTS = {
    "default": Variant(),
    "no linear start": Variant(starts_linearly=False),
    "as before": Variant(starts_linearly=False, decay=lambda _: 0.01, at_end=lambda _: None, any_length=True),
    "best validation loss always restored": Variant(at_end=restore_best),
    "weight decay .01": Variant(decay=lambda _: 0.01),
    "weight decay x4": Variant(decay=lambda usual: 4 * usual),
}


def inner_split(split: Split) -> Split:
    """Split the training cells alone: of each label a quarter is held out, of all at most 1,500; no cells are left."""
    cells, share = split.train, min(0.25, 1500 / split.train.n_obs)
    labels = cells.obs[LABEL].reset_index(drop=True)
    chosen = labels.index.isin(labels.groupby(labels, observed=True).sample(frac=share, random_state=split.seed).index)
    return Split(split.name, split.seed, cells[~chosen].copy(), cells[chosen].copy(), cells[:0].copy())


def measure(variant: Variant, split: Split, scorer: Scorer, max_epochs: int | None) -> dict[str, Any]:
    """Train, generate as many cells of each label as are held out, and score them."""
    scvi.settings.seed = split.seed
    model, seconds = timed(lambda: variant.fit(split.train.copy(), max_epochs))
    losses = model.history["validation_loss"]["validation_loss"].astype(float)
    counts = model.generate(pd.DataFrame({LABEL: split.labels}), seed=split.seed, silent=True).X
    pcs, each = [scorer.space.pcs(cells) for cells in (split.held_out.X, counts)], unit_weights(counts.shape[0])
    within = log_variance_ratios(*pcs, each, each, labels=(split.labels, split.labels))
    least_at = (losses.idxmin() + 1) / model.trainer.max_epochs
    return {
        **{"seconds": seconds, "least_loss": losses.min(), "least_at": least_at, "last_loss": losses.iloc[-1]},
        **likelihoods(model, split, seed=split.seed),
        **scorer.score(counts),
        "variance_error_within": np.abs(within / np.log(2)).mean(),
    }


def tables(runs: Sequence[dict[str, Any]]) -> str:
    """A table for each data set, of the last run of each variant and seed."""
    last = {(run["data"], run["variant"], run["seed"]): run["scores"] for run in runs}
    scores, parts = pd.DataFrame(list(last.values()), index=pd.MultiIndex.from_tuples(last)), []
    for data, of_data in scores.groupby(level=0, sort=False):
        variants = of_data.groupby(level=1, sort=False)
        rows = [[name, *(summary(found[key], n) for key, (_, n) in COLUMNS.items())] for name, found in variants]
        parts.append(f"**{data}**\n\n" + markdown(["", *(title for title, _ in COLUMNS.values())], rows))
    return "\n\n".join(parts)


def main(arguments: Sequence[str] | None = None) -> None:
    default = available(fewer=True)
    about = "benchmarks.studies.linear_start", __doc__.splitlines()[0]
    options = study_options(*about, [*DATASETS], default, [0, 1, 2], [*VARIANTS]).parse_args(arguments)

    def measured(name: str, seed: int) -> Iterator[tuple[str, dict[str, Any]]]:
        split = inner_split(load_split(name, seed))
        scorer = Scorer.fit(split, n_trees=20 if options.quick else 200, n_jobs=options.threads)
        for variant in options.variants:
            scores = measure(VARIANTS[variant], split, scorer, 2 if options.quick else None)
            yield variant, {"n_train": split.train.n_obs, "scores": scores}

    print(tables(study_runs(options, "study-linear-start.jsonl", measured)))


if __name__ == "__main__":
    main()
