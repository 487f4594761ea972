"""What is compared: every method draws cells for given labels."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import anndata
import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy import sparse

from benchmarks._data import LABEL, Split
from scdiffgen.metrics import null_poisson, null_shuffled
from scdiffgen.model import TokenDiffusion

Labels = NDArray[np.str_]
Sampler = Callable[[Labels, int], sparse.csr_matrix]  # labels of the cells to draw, seed -> counts
Kind = Literal["ours", "limit", "null", "other", "redrawn"]


@dataclass(frozen=True)
class Method:
    """A way to draw cells.

    ``kind`` is ``"limit"`` for real cells, ``"null"`` for cells without a model, ``"redrawn"`` for a method that needs
    a real cell for each cell that it draws.
    """

    name: str
    kind: Kind
    sample: Sampler


def fit_scdiffgen(split: Split, *, max_epochs: int | None = None) -> TokenDiffusion:
    """Train with the defaults."""
    adata = split.train.copy()
    TokenDiffusion.setup_anndata(adata, labels_key=LABEL)
    model = TokenDiffusion(adata)
    model.train(max_epochs=max_epochs, enable_progress_bar=False)
    return model


def scdiffgen_methods(model: TokenDiffusion, steps: list[int]) -> list[Method]:
    """Generate from labels, with different numbers of steps."""

    def generate_in(n_steps: int) -> Sampler:
        def generate(labels: Labels, seed: int) -> sparse.csr_matrix:
            table = pd.DataFrame({LABEL: labels})
            return model.generate(table, n_steps=n_steps, seed=seed, silent=True).X

        return generate

    return [Method(f"scdiffgen, {n_steps} steps", "ours", generate_in(n_steps)) for n_steps in steps]


def real_cells(split: Split) -> Method:
    """Other real cells, each once."""
    return Method("other real cells", "limit", _from_pool(split.other.X, split.other.obs[LABEL].to_numpy(dtype=str)))


def null_methods(split: Split) -> list[Method]:
    """Cells without a model: right means, or right distributions, of each gene by itself."""
    known, known_labels = split.train.X, split.train.obs[LABEL]
    return [
        Method(name, "null", lambda labels, seed, null=null: null(known, known_labels, labels, seed=seed))
        for name, null in {"independent Poisson": null_poisson, "shuffled genes": null_shuffled}.items()
    ]


def external_method(name: str, folder: Path, split: Split) -> Method:
    """Cells that another program generated: ``<folder>/<data>-seed<seed>.h5ad``, counts in ``.X``.

    There must be at least as many cells of each label, in ``.obs["label"]``, as are held out.

    Raises
    ------
    ValueError
        If genes or cells are missing.
    """
    path = folder / f"{split.name}-seed{split.seed}.h5ad"
    cells = anndata.read_h5ad(path)
    absent = split.train.var_names.difference(cells.var_names)
    if len(absent):
        raise ValueError(f"{path} lacks {len(absent)} genes (first: {absent[0]!r}). Take those of the exported cells.")
    wanted, there = (part.obs[LABEL].value_counts() for part in (split.held_out, cells))
    short = wanted[there.reindex(wanted.index).fillna(0).to_numpy() < wanted.to_numpy()]
    if len(short):
        raise ValueError(f"{path} has too few cells of {short.index[0]!r}: {short.iloc[0]} are needed.")
    counts = sparse.csr_matrix(cells[:, split.train.var_names].X)
    return Method(name, "other", _from_pool(counts, cells.obs[LABEL].to_numpy(dtype=str)))


def _from_pool(counts: sparse.csr_matrix, pool: Labels) -> Sampler:
    def draw(labels: Labels, seed: int) -> sparse.csr_matrix:
        rng = np.random.default_rng(seed)
        rows = np.empty(len(labels), dtype=int)
        for label in np.unique(labels):
            places = np.flatnonzero(labels == label)
            there = np.flatnonzero(pool == label)
            rows[places] = rng.choice(there, len(places), replace=len(there) < len(places))
        return counts[rows]

    return draw
