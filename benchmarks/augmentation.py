"""Do generated cells help to recognise rare cell types? A classifier of labels trained with and without them.

``python -m benchmarks.augmentation --data kang --seeds 0 1 2``

Half of the labels are made rare: few of their training cells are kept, and the generator sees no more than these. The
classifier, a logistic regression on principal components, is trained on what is left, alone or filled up to the median
size of the other labels, and tested on cells that neither has seen.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import scvi
from numpy.typing import NDArray
from scipy import sparse
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import f1_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from benchmarks._data import DATASETS, LABEL, Split, load_split
from benchmarks._models import Labels, Sampler, fit_scdiffgen, scdiffgen_methods
from benchmarks._record import benchmark_parser, environment, output_folder, start, write_result
from benchmarks._tables import Column, score_table
from scdiffgen.metrics import ExpressionSpace
from scdiffgen.metrics.baselines import null_poisson

KEPT = (5, 20, 50)  # training cells that a rare label keeps
N_STEPS = 32


def main(arguments: Sequence[str] | None = None) -> None:
    parser = benchmark_parser("benchmarks.augmentation", __doc__)
    parser.add_argument("--data", choices=list(DATASETS), default="kang")
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1, 2])
    options = parser.parse_args(arguments)
    start(options.threads)
    seeds, kept = (options.seeds[:1], KEPT[:1]) if options.quick else (options.seeds, KEPT)
    result = {
        "benchmark": "augmentation",
        "data": {"name": options.data, "description": DATASETS[options.data].description},
        "environment": environment(options.threads, seeds),
        "rows": [],
    }
    for seed in seeds:
        split = load_split(options.data, seed)
        for n_kept in kept:
            result["rows"] += measure(split, n_kept, max_epochs=2 if options.quick else None)
        write_result(output_folder(options.output, quick=options.quick), f"augmentation-{options.data}", result)
    print(augmentation_table(result))


def augmentation_table(result: Mapping[str, Any]) -> str:
    """F1 of rare labels by the number of cells that they keep, and of the other labels."""
    columns, rows = {}, {}
    for row in result["rows"]:
        for kind in ("rare", "other"):
            key = (kind, row["n_kept"])
            columns[key] = Column(f"{kind} labels, {row['n_kept']} cells kept", 1.0 if kind == "rare" else None)
            rows.setdefault(row["training"], {}).setdefault(key, []).append(row[f"f1_{kind}"])
    columns = dict(sorted(columns.items(), key=lambda item: item[0][0] == "other"))
    return score_table("mean F1", columns, rows, "real + generated", limit="all real cells")


def measure(split: Split, n_kept: int, *, max_epochs: int | None = None) -> list[dict[str, Any]]:
    """F1 of rare and of other labels, for every way to train the classifier."""
    rare = choose_rare(split, n_kept)
    reduced = make_rare(split, rare, n_kept)
    scvi.settings.seed = split.seed
    (generator,) = scdiffgen_methods(fit_scdiffgen(reduced, max_epochs=max_epochs), [N_STEPS])
    space = ExpressionSpace.fit(reduced.train.X)
    counts = sparse.vstack([split.held_out.X, split.other.X])
    labels = np.concatenate([part.obs[LABEL].to_numpy(dtype=str) for part in (split.held_out, split.other)])
    rows = []
    for name, cells, known, weights in training_sets(split, reduced, rare, generator.sample):
        classifier = make_pipeline(StandardScaler(), LogisticRegression(max_iter=500, class_weight=weights))
        predicted = classifier.fit(space.pcs(cells), known).predict(space.pcs(counts))
        names = np.unique(labels)
        f1 = dict(zip(names, f1_score(labels, predicted, labels=names, average=None, zero_division=0), strict=True))
        rows.append(
            {
                "seed": split.seed,
                "n_kept": n_kept,
                "training": name,
                "f1_rare": np.mean([f1[label] for label in rare]),
                "f1_other": np.mean([value for label, value in f1.items() if label not in rare]),
                "f1": f1,
                "rare": list(rare),
            }
        )
    return rows


def choose_rare(split: Split, n_kept: int) -> Labels:
    """Half of the labels that have cells to lose, the same for every number of cells that is kept."""
    n_cells = split.train.obs[LABEL].value_counts()
    eligible = np.sort(n_cells.index[n_cells >= max(n_kept, *KEPT)].astype(str))
    return np.sort(np.random.default_rng(split.seed).permutation(eligible)[: max(1, len(eligible) // 2)])


def make_rare(split: Split, rare: Labels, n_kept: int) -> Split:
    """Keep few training cells of the rare labels."""
    labels, rng = split.train.obs[LABEL].to_numpy(dtype=str), np.random.default_rng(split.seed)
    keep = ~np.isin(labels, rare)
    for label in rare:
        keep[rng.choice(np.flatnonzero(labels == label), n_kept, replace=False)] = True
    return Split(split.name, split.seed, split.train[keep].copy(), split.held_out, split.other)


def training_sets(
    split: Split, reduced: Split, rare: Labels, generate: Sampler
) -> Iterator[tuple[str, sparse.csr_matrix, Labels, str | None]]:
    """Names, counts, labels and class weights of the sets that the classifier is trained on."""
    real, labels = reduced.train.X, reduced.train.obs[LABEL].to_numpy(dtype=str)
    wanted = missing_labels(labels, rare)
    rng = np.random.default_rng(split.seed)
    again = np.array([rng.choice(np.flatnonzero(labels == label)) for label in wanted])
    added: Mapping[str, sparse.csr_matrix] = {
        "real + copies": real[again],
        "real + Poisson": null_poisson(real, labels, wanted, seed=split.seed),
        "real + generated": generate(wanted, split.seed),
    }
    yield "real", real, labels, None
    yield "real, classes weighted", real, labels, "balanced"
    for name, counts in added.items():
        yield name, sparse.vstack([real, counts]), np.concatenate([labels, wanted]), None
    yield "all real cells", split.train.X, split.train.obs[LABEL].to_numpy(dtype=str), None


def missing_labels(labels: Labels, rare: Labels) -> NDArray[np.str_]:
    """Labels of the cells that fill the rare labels up to the median size of the others."""
    names, n_cells = np.unique(labels, return_counts=True)
    is_rare = np.isin(names, rare)
    target = int(np.median(n_cells[~is_rare]))
    return np.repeat(names[is_rare], np.maximum(target - n_cells[is_rare], 0))


if __name__ == "__main__":
    main()
