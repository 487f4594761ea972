"""What is compared: every method draws cells for given labels."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy import sparse

from benchmarks._data import LABEL, Split
from benchmarks._external import external_files, read_external
from scdiffgen.metrics.baselines import gaussian_copula, null_poisson, null_shuffled
from scdiffgen.model import GaussianOptions, TokenDiffusion

Labels = NDArray[np.str_]
Sampler = Callable[[Labels, int], sparse.csr_matrix]  # labels of the cells to draw, seed -> counts
Kind = Literal["ours", "process", "limit", "null", "other", "resampled", "copies"]


@dataclass(frozen=True)
class Method:
    """A way to draw cells.

    ``kind`` is ``"limit"`` for real cells, ``"null"`` for cells without a model, ``"resampled"`` for a method that
    takes a real cell for each cell that it draws, ``"copies"`` for training cells, ``"process"`` for another process of
    ours.
    """

    name: str
    kind: Kind
    sample: Sampler


PROCESSES: dict[str, tuple[Any, list[int]]] = {  # process, and numbers of steps
    "gaussian": ("gaussian", [16, 32]),
    "latent": ("latent", [32]),
    "DDPM": (GaussianOptions("eps", schedule="linear", sampler="ancestral"), [1000]),
}
"""Other processes than the default, by the names of their rows."""


def fit_scdiffgen(
    split: Split, *, max_epochs: int | None = None, plan_kwargs: dict[str, Any] | None = None, **options: Any
) -> TokenDiffusion:
    """Train with the defaults, a process or a size apart."""
    adata = split.train.copy()
    TokenDiffusion.setup_anndata(adata, labels_key=LABEL)
    model = TokenDiffusion(adata, **options)
    model.train(max_epochs=max_epochs, plan_kwargs=plan_kwargs, enable_progress_bar=False)
    return model


def scdiffgen_methods(model: TokenDiffusion, steps: list[int], name: str = "scdiffgen") -> list[Method]:
    """Generate from labels, with different numbers of steps."""

    def generate_in(n_steps: int) -> Sampler:
        def generate(labels: Labels, seed: int) -> sparse.csr_matrix:
            table = pd.DataFrame({LABEL: labels})
            return model.generate(table, n_steps=n_steps, seed=seed, silent=True).X

        return generate

    kind = "ours" if name == "scdiffgen" else "process"
    return [Method(f"{name}, {n_steps} steps", kind, generate_in(n_steps)) for n_steps in steps]


def real_cells(split: Split) -> Method:
    """Other real cells, each once."""
    return Method("other real cells", "limit", _from_pool(split.other.X, split.other.obs[LABEL].to_numpy(dtype=str)))


def copies(split: Split) -> Method:
    """Training cells as they are, drawn with replacement: the distribution of real cells, and nothing new."""
    labels = split.train.obs[LABEL].to_numpy(dtype=str)
    return Method("training cells, resampled", "copies", _from_pool(split.train.X, labels, replace=True))


def null_methods(split: Split) -> list[Method]:
    """Cells without a model: right means, or right distributions, of each gene by itself."""
    known, known_labels = split.train.X, split.train.obs[LABEL]
    return [
        Method(name, "null", lambda labels, seed, null=null: null(known, known_labels, labels, seed=seed))
        for name, null in {"independent Poisson": null_poisson, "shuffled genes": null_shuffled}.items()
    ]


def linear_methods(split: Split) -> list[Method]:
    """The classical simulator that a network has to beat."""
    known, known_labels = split.train.X, split.train.obs[LABEL]

    def draw(labels: Labels, seed: int) -> sparse.csr_matrix:
        return gaussian_copula(known, known_labels, labels, seed=seed)

    return [Method("linear Gaussian copula, no network", "other", draw)]


def external_methods(folders: Mapping[str, Path], split: Split) -> list[Method]:
    """Cells that other programs generated: ``<folder>/<data>-seed<seed>.h5ad``, counts in ``.X``.

    There must be at least as many cells of each label, in ``.obs["label"]``, as are held out. A folder without the file
    is left out.
    """
    files = external_files(folders, f"{split.name}-seed{split.seed}.h5ad")
    return [external_method(name, path, split) for name, path in files]


def external_method(name: str, path: Path, split: Split) -> Method:
    """One of `external_methods`."""
    cells = read_external(path, split.train.var_names, [LABEL])
    wanted, there = (part.obs[LABEL].value_counts() for part in (split.held_out, cells))
    short = wanted[there.reindex(wanted.index).fillna(0).to_numpy() < wanted.to_numpy()]
    if len(short):
        raise ValueError(f"{path} has too few cells of {short.index[0]!r}: {short.iloc[0]} are needed.")
    return Method(name, "other", _from_pool(cells.X, cells.obs[LABEL].to_numpy(dtype=str)))


def _from_pool(counts: sparse.csr_matrix, pool: Labels, *, replace: bool = False) -> Sampler:
    """Draw cells of each label, each once unless there are too few, or with replacement."""

    def draw(labels: Labels, seed: int) -> sparse.csr_matrix:
        rng = np.random.default_rng(seed)
        rows = np.empty(len(labels), dtype=int)
        for label in np.unique(labels):
            places = np.flatnonzero(labels == label)
            there = np.flatnonzero(pool == label)
            rows[places] = rng.choice(there, len(places), replace=replace or len(there) < len(places))
        return counts[rows]

    return draw
