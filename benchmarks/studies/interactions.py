"""Interactions of measured pairs of Norman 2019: verdicts, and their agreement between halves of the cells.

``python -m benchmarks.studies.interactions --seeds 0 1 2 3 4 5 6 7 8 9 --threads 1``

Cells of every arm, controls included, are split at random into two halves. If intervals are right, estimates of the
halves differ by more than the root of the sum of their squared half-widths in 5 % of the genes. *same sign* is the
share of the interactions discovered in one half that have the same sign in the other.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence

import numpy as np
import pandas as pd
from anndata import AnnData

from benchmarks._data import FOLDER
from benchmarks._perturbation_data import NORMAN, read
from benchmarks._record import start
from scdiffgen.tl import interactions


def halves(cells: AnnData, seed: int) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Interactions of two random halves of each arm."""
    rng = np.random.default_rng(seed)
    labels = cells.obs["perturbation"].astype(str)
    rank = pd.Series(rng.permutation(cells.n_obs), labels.index).groupby(labels).rank().to_numpy()
    first, second = (interactions(cells[rank % 2 == half], "perturbation") for half in (0, 1))
    return first, second


def agreement(first: pd.DataFrame, second: pd.DataFrame) -> dict[str, float]:
    """Agreement of two estimates of the same interactions."""
    difference = np.abs(first["interaction"] - second["interaction"])
    allowed = np.hypot(*(table["high"] - table["interaction"] for table in (first, second)))
    both = difference.notna()
    found = both & first["verdict"].isin(["synergistic", "buffering"])
    same = np.sign(first["interaction"]) == np.sign(second["interaction"])
    rank = first["interaction"].corr(second["interaction"], "spearman")
    return {
        "within intervals": (difference <= allowed)[both].mean(),
        "discovered": int(found.sum()),
        "same sign": same[found].mean(),
        "rank correlation": rank,
    }


def main(arguments: Sequence[str] | None = None) -> None:
    """Print verdicts of all cells, and the agreement of halves."""
    parser = argparse.ArgumentParser("python -m benchmarks.studies.interactions", description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", nargs="+", type=int, default=[0], help="of the halves (0)")
    parser.add_argument("--threads", type=int, default=2, help="threads of everything (2)")
    options = parser.parse_args(arguments)
    start(options.threads)
    cells = read(FOLDER, NORMAN)
    table = interactions(cells, "perturbation")
    print(pd.crosstab(table["perturbation"], table["verdict"]).to_string(), "\n")
    found = table[table["verdict"].isin(["synergistic", "buffering"])]
    print(found.loc[found["interaction"].abs().nlargest(10).index].round(2).to_string(index=False), "\n")
    scores = pd.DataFrame([agreement(*halves(cells, seed)) for seed in options.seeds], options.seeds)
    print(scores.round(3).to_string(), "\n\n", scores.mean().round(3).to_string(), sep="")


if __name__ == "__main__":
    main()
