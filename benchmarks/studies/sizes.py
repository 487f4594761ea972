"""How large a network do so many cells need? Sizes compared on the training cells of a benchmark, cut to fewer.

``python -m benchmarks.studies.sizes --data kang --cells 1000 2500 5000 10000 --seeds 0``

Every size is trained as long as it is by default, in the same number of steps. Scores are on the *other real cells* of
the benchmark, which it neither trains on nor reports. Runs are lines of a file; the table shows the last of each.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import replace
from itertools import product
from typing import Any

import numpy as np
import scvi

from benchmarks._data import LABEL, Split, available, load_split
from benchmarks._models import scdiffgen_methods
from benchmarks._scores import likelihoods
from benchmarks.generation import timed
from benchmarks.studies._runner import keep, parse, table
from scdiffgen.metrics import ExpressionSpace, classifier_auc
from scdiffgen.model import NetworkOptions, TokenDiffusion

SIZES: dict[str, dict[str, Any]] = {
    "8 x 64, 2 layers": {},
    "16 x 64, 3 layers": {"n_tokens": 16, "n_layers": 3},
    "16 x 128, 3 layers": {"n_tokens": 16, "token_dim": 128, "n_layers": 3, "network": NetworkOptions(n_heads=4)},
    "32 x 64, 2 layers": {"n_tokens": 32},
}
N_STEPS = 16  # of generation


def fewer_cells(split: Split, n_cells: int) -> Split:
    """The same with so many training cells, drawn at random, and the other real cells to be scored on."""
    rows = np.random.default_rng(split.seed).permutation(split.train.n_obs)[:n_cells]
    train = split.train[np.sort(rows)].copy()
    known = set(train.obs[LABEL])
    scored = split.other[split.other.obs[LABEL].isin(known)].copy()
    return replace(split, train=train, held_out=scored)


def measure(split: Split, size: str, max_epochs: int | None) -> dict[str, float]:
    """Train one size and score it."""
    scvi.settings.seed = split.seed
    adata = split.train.copy()
    TokenDiffusion.setup_anndata(adata, labels_key=LABEL)
    model = TokenDiffusion(adata, preset="small", **SIZES[size])
    _, seconds = timed(lambda: model.train(max_epochs, enable_progress_bar=False))
    counts = scdiffgen_methods(model, [N_STEPS])[0].sample(split.labels, split.seed)
    space = ExpressionSpace.fit(split.train.X)
    spaces = {"components": space.pcs, "genes": space.expression}
    auc = {
        f"forest AUC, {name}": classifier_auc(to_space(split.held_out.X), to_space(counts), n_trees=100)
        for name, to_space in spaces.items()
    }
    nll = likelihoods(model, split, seed=split.seed)["scdiffgen"]
    return {
        "nats per molecule": nll,
        **auc,
        "seconds": seconds,
        "weights": sum(p.numel() for p in model.module.denoiser.parameters()),
    }


def main(arguments: Sequence[str] | None = None) -> None:
    own = argparse.ArgumentParser(add_help=False)
    own.add_argument("--cells", nargs="+", type=int, default=[1000, 2500, 5000, 10000])
    chosen, rest = own.parse_known_args(arguments)
    options = parse("sizes", __doc__, available(), list(SIZES), rest)
    for name, seed, n_cells in product(options.data, options.seeds, chosen.cells):
        split = fewer_cells(load_split(name, seed), n_cells)
        for size in options.variants:
            scores = measure(split, size, options.max_epochs)
            keep(options, seed, {"data": name, "cells": n_cells, "size": size}, scores)
    digits = {"nats per molecule": 4, "forest AUC, components": 3, "forest AUC, genes": 3, "seconds": 0, "weights": 0}
    print(table(options.output, digits))


if __name__ == "__main__":
    main()
