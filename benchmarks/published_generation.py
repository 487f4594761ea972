"""Our place in a published table of generators on pbmc3k (Turgut et al. 2025): its cells and its recipe.

``python -m benchmarks.published_generation --seeds 0 1 2 3 4 5 6 7 8 9 --threads 1``

The published split is not available, so each seed makes a split of our own. The row of training cells can be compared
with the published ceiling. Models see the 2,000 genes, and one more column with the remaining molecules of the cell.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
import scanpy as sc
import scvi
from anndata import AnnData
from numpy.typing import NDArray
from scipy import sparse
from scipy.stats import wasserstein_distance
from sklearn.decomposition import PCA
from sklearn.metrics.pairwise import rbf_kernel
from sklearn.model_selection import train_test_split
from sklearn.preprocessing import StandardScaler

from benchmarks._data import FOLDER, LABEL, Split, load_pbmc3k
from benchmarks._models import Method, fit_scdiffgen, linear_methods, scdiffgen_methods
from benchmarks._record import benchmark_parser, environment, output_folder, start, write_result
from benchmarks._tables import Column, score_table
from scdiffgen._log_normalise import log_normalise

TABLE = "moefb_pbmc3k.csv"
OURS, LIMIT = "scdiffgen, 32 steps", "training cells"
N_GENES, N_COMPONENTS, GAMMAS = 2000, 50, (2.0, 1.0, 0.5, 0.1, 0.01, 0.005)
COLUMNS = {"WD": Column("WD", 0.0, 3), "CD": Column("CD", 0.0, 4), "MMD": Column("MMD", 0.0, 4)}


def main(arguments: Sequence[str] | None = None) -> None:
    parser = benchmark_parser("benchmarks.published_generation", __doc__)
    parser.add_argument("--seeds", nargs="+", type=int, default=[*range(10)], help="of the splits")
    options = parser.parse_args(arguments)
    start(options.threads)
    seeds, max_epochs = (options.seeds[:1], 2) if options.quick else (options.seeds, None)
    cells, rows = prepared(), []
    for seed in seeds:
        split = split_of(cells, seed)
        scorer = Scorer(split)
        for method in methods(split, max_epochs):
            rows.append({"method": method.name, "seed": seed, **scorer.score(method.sample(split.labels, seed))})
            print(rows[-1], flush=True)
    result = {
        "benchmark": "published-generation",
        "data": {
            "name": "pbmc3k",
            "n_train": split.train.n_obs,
            "n_held_out": split.held_out.n_obs,
            "n_genes": N_GENES,
        },
        "published": pd.read_csv(FOLDER / TABLE).set_index("method").to_dict("index"),
        "environment": environment(options.threads, seeds),
        "rows": rows,
    }
    write_result(output_folder(options.output, quick=options.quick), "published-generation-pbmc3k", result)
    print(published_generation_table(result))


def published_generation_table(result: Mapping[str, Any]) -> str:
    """Medians and ranges over splits of our rows; published numbers."""
    rows = pd.DataFrame(result["rows"])
    ours = {name: {key: found[key].tolist() for key in COLUMNS} for name, found in rows.groupby("method", sort=False)}
    published = {
        f"{name}, published": {key: [value] for key, value in scores.items() if value is not None and value == value}
        for name, scores in result["published"].items()
    }
    rivals = [name for name in published if not name.startswith("training cells")]
    return score_table("", COLUMNS, {**ours, **published}, OURS, rivals)


def prepared() -> AnnData:
    """Counts of the chosen genes, and of all others together."""
    adata = load_pbmc3k(min_cells=3)
    chosen = sc.pp.highly_variable_genes(adata, n_top_genes=N_GENES, flavor="seurat_v3", inplace=False)
    counts, is_chosen = sparse.csr_matrix(adata.X), chosen["highly_variable"].to_numpy()
    rest = sparse.csr_matrix(counts[:, ~is_chosen].sum(axis=1))
    return AnnData(sparse.hstack([counts[:, is_chosen], rest], format="csr"), obs=adata.obs)


def split_of(cells: AnnData, seed: int) -> Split:
    """Hold out a tenth of the cells of each label."""
    train, test = train_test_split(np.arange(cells.n_obs), test_size=0.1, stratify=cells.obs[LABEL], random_state=seed)
    return Split("pbmc3k", seed, cells[np.sort(train)].copy(), cells[np.sort(test)].copy(), cells[:0].copy())


def methods(split: Split, max_epochs: int | None) -> Iterator[Method]:
    """Fit each method on the training cells."""
    yield Method(LIMIT, "limit", lambda labels, seed: split.train.X)
    yield Method("as many training cells", "limit", lambda labels, seed: as_many(split, labels, seed))
    yield from linear_methods(split)
    for name, process in {"scdiffgen": "thinning", "scdiffgen, gaussian": "gaussian"}.items():
        scvi.settings.seed = split.seed
        model = fit_scdiffgen(split, max_epochs=max_epochs, process=process)
        yield from scdiffgen_methods(model, [32], name)


def as_many(split: Split, labels: NDArray[np.str_], seed: int) -> sparse.csr_matrix:
    """Training cells with the requested labels, each at most once."""
    random, rows = np.random.default_rng(seed), split.train.obs.reset_index()
    wanted = pd.Series(labels).value_counts()
    chosen = [random.choice(rows.index[rows[LABEL] == label], n, replace=False) for label, n in wanted.items()]
    return split.train.X[np.concatenate(chosen)]


class Scorer:
    """The published scores: cells in standardised log expression, in components of the training cells."""

    def __init__(self, split: Split) -> None:
        expression = log_normalise(split.train.X)[:, :N_GENES].toarray()
        self.scaler = StandardScaler().fit(expression)
        self.pca = PCA(N_COMPONENTS, random_state=0).fit(self.scaler.transform(expression))
        self.real = self.components(split.held_out.X)

    def components(self, counts: sparse.csr_matrix) -> NDArray[np.float64]:
        """Components of cells ``(cells, components)``."""
        return self.pca.transform(self.scaler.transform(log_normalise(counts)[:, :N_GENES].toarray()))

    def score(self, counts: sparse.csr_matrix) -> dict[str, float]:
        """Wasserstein distance by component, difference of correlations, squared MMD with equal cells counted."""
        x, y = self.real, self.components(counts)
        kernels = [[rbf_kernel(a, b, gamma).mean() for gamma in GAMMAS] for a, b in ((x, x), (y, y), (x, y))]
        of_components = zip(x.T, y.T, strict=True)
        return {
            "WD": float(np.mean([wasserstein_distance(*both) for both in of_components])),
            "CD": float(np.abs(np.corrcoef(x.T) - np.corrcoef(y.T)).mean()),
            "MMD": float(np.mean(kernels[0]) + np.mean(kernels[1]) - 2 * np.mean(kernels[2])),
        }


if __name__ == "__main__":
    main()
