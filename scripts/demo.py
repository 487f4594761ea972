"""Train on 700 real blood cells, generate new ones, compare the two and draw them.

Writes into ``--output``:

================== ==================================================================================
generated.h5ad     generated cells, as many of each type as there are real ones: counts in ``.X``
adata.h5ad         the real cells with what the model says of them in ``.obsm`` and ``.varm``
umap.png           real and generated cells in one embedding (docs/_static/demo.png is a copy of it)
token_loadings.png the genes that each token stands for
================== ==================================================================================
"""

from __future__ import annotations

import os

os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")  # waiting threads sleep: spinning ones starve busy machines

import argparse
import logging
import sys
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import matplotlib
import numpy as np
import pandas as pd
import scanpy as sc
import torch
from _demo_figures import draw_cells, draw_token_loadings
from _demo_scores import HOW_TO_READ, as_text, compare
from anndata import AnnData

import scdiffgen
from scdiffgen.metrics import ExpressionSpace
from scdiffgen.model import TokenDiffusion

Result = TypeVar("Result")

LABEL = "cell_type"
HELD_OUT = 0.3


def main() -> None:
    arguments = parse_arguments()
    quieten_libraries()
    torch.set_num_threads(os.cpu_count() or 1)
    arguments.output.mkdir(parents=True, exist_ok=True)

    adata = scdiffgen.datasets.pbmc68k()
    adata.obs["split"] = split(adata.obs[LABEL], arguments.seed)
    train, held_out = (adata[adata.obs["split"] == name].copy() for name in ("train", "held out"))
    print(f"{adata.n_obs} blood cells x {adata.n_vars} genes, {adata.obs[LABEL].nunique()} cell types: ", end="")
    print(f"{train.n_obs} cells to train on, {held_out.n_obs} held out")

    model = timed("Training", lambda: trained_model(train, arguments.seed))
    table = adata.obs[LABEL].value_counts(sort=False).rename_axis(LABEL).reset_index(name="n_cells")
    generated = timed("Generating", lambda: model.generate(table, seed=arguments.seed, silent=True))
    scores = timed("Comparing", lambda: compare(held_out, generated, train, LABEL))
    print(f"\nAgainst one half of the held-out cells:\n\n{as_text(scores)}\n\n{HOW_TO_READ}\n")

    model.write_back(adata, seed=arguments.seed, silent=True)
    generated.write_h5ad(arguments.output / "generated.h5ad")
    adata.write_h5ad(arguments.output / "adata.h5ad")
    timed("Drawing", lambda: draw(adata, generated, train, arguments.output))
    print("\nWritten:")
    for name in ("generated.h5ad", "adata.h5ad", "umap.png", "token_loadings.png"):
        print(f"  {arguments.output / name}")


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Train on 700 real blood cells, generate new ones, compare and draw.")
    parser.add_argument("--output", type=Path, default=Path("demo_output"), help="folder to write to")
    parser.add_argument("--seed", type=int, default=0, help="seed of split, training and generation")
    return parser.parse_args()


def quieten_libraries() -> None:
    """Leave out what other libraries say about loggers, workers and set-up."""
    matplotlib.use("Agg")
    warnings.filterwarnings("ignore")
    for name in ("lightning.pytorch", "scvi"):
        logging.getLogger(name).setLevel(logging.ERROR)


def timed(what: str, work: Callable[[], Result]) -> Result:
    """Do some work, and say how long it took."""
    print(f"{what} ...", end=" ", flush=True)
    start = time.perf_counter()
    result = work()
    print(f"{time.perf_counter() - start:.0f} s")
    return result


def split(labels: pd.Series, seed: int) -> pd.Categorical:
    """Hold out three in ten cells of every type."""
    rng = np.random.default_rng(seed)
    held_out = np.zeros(len(labels), dtype=bool)
    for positions in labels.groupby(labels, observed=True).indices.values():
        held_out[rng.choice(positions, round(HELD_OUT * len(positions)), replace=False)] = True
    return pd.Categorical(np.where(held_out, "held out", "train"))


def trained_model(train: AnnData, seed: int) -> TokenDiffusion:
    torch.manual_seed(seed)
    TokenDiffusion.setup_anndata(train, layer="counts", labels_key=LABEL)
    model = TokenDiffusion(train)
    model.train(enable_progress_bar=sys.stdout.isatty())
    return model


def draw(adata: AnnData, generated: AnnData, train: AnnData, output: Path) -> None:
    space = ExpressionSpace.fit(train.layers["counts"])
    embedding = embed(np.concatenate([space.pcs(adata.layers["counts"]), space.pcs(generated.X)]))
    panels = np.split(embedding, [adata.n_obs])
    cells = draw_cells(*panels, adata.obs[LABEL], generated.obs[LABEL])
    cells.savefig(output / "umap.png", dpi=150, bbox_inches="tight")
    draw_token_loadings(adata, LABEL).savefig(output / "token_loadings.png", dpi=150)


def embed(components: np.ndarray) -> np.ndarray:
    """UMAP that starts from two components, which keeps clusters near each other that share no neighbours."""
    cells = AnnData(obsm={"X_pca": components})
    sc.pp.neighbors(cells, use_rep="X_pca", random_state=0)
    start = (3 * components[:, :2] / components[:, 0].std()).astype(np.float32)
    sc.tl.umap(cells, min_dist=0.8, spread=1.2, init_pos=start, random_state=0)
    return cells.obsm["X_umap"]


if __name__ == "__main__":
    main()
