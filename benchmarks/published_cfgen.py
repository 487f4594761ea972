"""CFGen's table of generators on pbmc3k (Palma et al. 2025): cells of ours for its own scorer, and what that says.

``python -m benchmarks.published_cfgen --cells FOLDER --seeds 0 1 2 --threads 1`` trains, and writes the cells of each
seed; ``python -m benchmarks.external.cfgen_scores``, in an environment of CFGen, scores them with a checkout of it; the
same command with ``--scores`` reads the scores of all checkouts.
"""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import scvi
from anndata import AnnData
from scipy import sparse

from benchmarks._data import LABEL, Split, load_pbmc3k
from benchmarks._models import Method, fit_scdiffgen, linear_methods, null_methods, real_cells, scdiffgen_methods
from benchmarks._record import benchmark_parser, environment, output_folder, start, write_result
from benchmarks._tables import Column, markdown, score_table

OURS, LIMIT = "scdiffgen, 32 steps", "training cells"
SEURAT = {"Naive CD4 T": "CD4 T", "Memory CD4 T": "CD4 T"}  # CFGen has one label for both
TEST_CELLS = {"CD4 T": 217, "B": 92, "CD14+ Mono": 90, "CD8 T": 68, "NK": 28, "FCGR3A+ Mono": 26, "DC": 6}
TEST_CELLS |= {"Platelet": 1}  # all: what the training cells that CFGen's notebook counts leave of each label
VERSIONS = {"e347d1a": "mended", "dbedd23": "former"}  # commits of CFGen
SCORES = {"MMD": "RBF_MMD_PCA", "WD": "2-Wasserstein_PCA"}
COLUMNS = {
    f"{score}, {version}": Column(f"{score}, {version}", 0.0, 3 if score == "MMD" else 2)
    for version in VERSIONS.values()
    for score in SCORES
}
PUBLISHED = {  # Petrovic et al. (2026), table 5
    "CFGen": (0.45, 11.17),
    "CFGen, linear interpolant": (0.41, 10.27),
    "scDiffusion": (0.67, 12.11),
    "scVI": (0.58, 13.39),
    "Global Transport": (0.39, 9.80),
}


def main(arguments: Sequence[str] | None = None) -> None:
    parser = benchmark_parser("benchmarks.published_cfgen", __doc__)
    parser.add_argument("--cells", type=Path, required=True, metavar="FOLDER", help="of the cells and their scores")
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1, 2], help="of splits, training and drawing")
    parser.add_argument("--scores", action="store_true", help="read the scores; train nothing")
    options = parser.parse_args(arguments)
    start(options.threads)
    seeds, max_epochs = (options.seeds[:1], 2) if options.quick else (options.seeds, None)
    if not options.scores:
        for seed in seeds:
            write_cells(split_of(labelled_cells(), seed), options.cells / f"seed{seed}", max_epochs)
        return
    result = {
        "benchmark": "published-cfgen",
        "data": {"name": "pbmc3k", "n_train": 2110, "n_held_out": 528, "n_genes": 8573, "n_labels": len(TEST_CELLS)},
        "environment": environment(options.threads, seeds),
        "rows": read_scores(options.cells, seeds).to_dict("records"),
    }
    write_result(output_folder(options.output, quick=options.quick), "published-cfgen-pbmc3k", result)
    print(published_cfgen_table(result), label_table(result), sep="\n\n")


def labelled_cells() -> AnnData:
    """Labelled cells and genes of at least 30 of them, with the labels of CFGen's table."""
    cells = load_pbmc3k()
    cells.obs[LABEL] = cells.obs[LABEL].astype(str).replace(SEURAT).astype("category")
    return cells


def split_of(cells: AnnData, seed: int) -> Split:
    """Hold out as many cells of each label as CFGen does; train on all others."""
    rng, labels = np.random.default_rng(seed), cells.obs[LABEL].to_numpy(dtype=str)
    held_out = [rng.choice(np.flatnonzero(labels == label), n, replace=False) for label, n in TEST_CELLS.items()]
    test = np.isin(np.arange(cells.n_obs), np.concatenate(held_out))
    return Split("pbmc3k", seed, cells[~test].copy(), cells[test].copy(), cells[~test].copy())


def methods(split: Split, max_epochs: int | None) -> Iterator[Method]:
    """Fit each method on the training cells."""
    yield Method(LIMIT, "limit", real_cells(split).sample)
    yield from null_methods(split)
    yield from linear_methods(split)
    scvi.settings.seed = split.seed
    yield from scdiffgen_methods(fit_scdiffgen(split, max_epochs=max_epochs), [32])


def write_cells(split: Split, folder: Path, max_epochs: int | None) -> None:
    """Write test cells, the cells of each method, and what a recipe for another program needs."""
    (folder / "generated").mkdir(parents=True, exist_ok=True)
    split.train.write_h5ad(folder / "train.h5ad")
    split.held_out.write_h5ad(folder / "real.h5ad")
    split.held_out.obs[LABEL].value_counts().rename("n_cells").to_csv(folder / "labels.csv")
    for method in methods(split, max_epochs):
        counts = sparse.csr_matrix(method.sample(split.labels, split.seed), dtype=np.float32)
        AnnData(counts, split.held_out.obs[[LABEL]]).write_h5ad(folder / "generated" / f"{method.name}.h5ad")
        print(f"{folder}: {method.name}", flush=True)


def read_scores(folder: Path, seeds: Sequence[int]) -> pd.DataFrame:
    """Scores of methods, seeds and labels with at least two test cells: the mended scorer leaves out the others."""
    found = pd.concat(
        [pd.read_csv(folder / f"scores-{commit}.csv").assign(version=version) for commit, version in VERSIONS.items()]
    ).rename(columns={"ct": "label", **{key: score for score, key in SCORES.items()}})
    found = found[found["seed"].isin(seeds) & found["label"].map(TEST_CELLS).gt(1)]
    scores = found.set_index(["method", "seed", "label", "version"])[[*SCORES]].unstack("version")
    scores.columns = [", ".join(column) for column in scores.columns]
    return scores.reset_index()


def published_cfgen_table(result: Mapping[str, Any]) -> str:
    """Means over labels: medians and ranges over seeds of our rows, training cells first; published numbers."""
    means = _rows(result).groupby(["method", "seed"], sort=False)[[*COLUMNS]].mean().reset_index()
    ours = {name: {key: found[key].tolist() for key in COLUMNS} for name, found in means.groupby("method", sort=False)}
    published = {
        f"{name}, published": {"MMD, mended": [mmd], "WD, mended": [wd]} for name, (mmd, wd) in PUBLISHED.items()
    }
    return score_table("", COLUMNS, {**ours, **published}, OURS, limit=LIMIT)


def label_table(result: Mapping[str, Any]) -> str:
    """WD of the mended scorer by label, and the numbers of test cells."""
    medians = _rows(result).groupby(["method", "label"], sort=False)["WD, mended"].median().unstack("label")
    labels = [label for label in TEST_CELLS if label in medians]
    rows = [[str(name), *(f"{of[label]:.2f}" for label in labels)] for name, of in medians.iterrows()]
    return markdown(["", *(f"{label}, {TEST_CELLS[label]}" for label in labels)], rows)


def _rows(result: Mapping[str, Any]) -> pd.DataFrame:
    """Scores of the result, training cells first."""
    return pd.DataFrame(result["rows"]).sort_values("method", key=lambda names: names != LIMIT, kind="stable")


if __name__ == "__main__":
    main()
