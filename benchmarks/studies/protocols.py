"""Which protocol suits which design: power of experiments, planned from small pilots of four protocols.

``python -m benchmarks.studies.protocols --seeds 0 1 --threads 1``

The pilots are 32 to 42 mouse stem cells by each of CEL-seq2, Drop-seq, MARS-seq and SCRB-seq (Ziegenhain 2017),
in the 764 genes that all four tables have. One model of all cells, with the protocol as label, is asked for each
protocol. Donors differ as by default in `scdiffgen.tl.power_analysis`. Numbers are means over seeds and both signs.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence

import pandas as pd
import scvi

from benchmarks._data import FOLDER
from benchmarks._perturbation_data import read
from benchmarks._record import start
from scdiffgen.model import TokenDiffusion
from scdiffgen.tl import power_analysis

PILOTS = "ziegenhain2017_common.h5ad"
DESIGNS = {"n_donors": (3, 6), "n_cells": (25, 100)}
SHOWN = ["molecules per cell", "power at two-fold", "donors for two-fold"]


def powers(seed: int) -> pd.DataFrame:
    """A row per protocol and design: all genes, mean of both signs."""
    scvi.settings.seed = seed
    cells = read(FOLDER, PILOTS)
    TokenDiffusion.setup_anndata(cells, labels_key="protocol", batch_key="batch")
    model = TokenDiffusion(cells)
    model.train(enable_progress_bar=False)
    tables = []
    for protocol, rows in cells.obs.groupby("protocol", observed=True).groups.items():
        table = power_analysis(
            model,
            (-1.0, -0.5, 0.5, 1.0),
            **DESIGNS,
            n_replicates=3,
            experiment={"conditions": {"protocol": protocol}},
            seed=seed,
        )
        chosen = table[(table["stratum"] == "all") & (table["effect"].abs() == 1)]
        table = chosen.groupby([*DESIGNS])[["power", "donors_needed"]].mean().reset_index()
        tables.append(table.assign(protocol=protocol, molecules=float(cells[rows].X.sum(1).mean())))
    return pd.concat(tables)


def main(arguments: Sequence[str] | None = None) -> None:
    """Print the table."""
    parser = argparse.ArgumentParser("python -m benchmarks.studies.protocols", description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1])
    parser.add_argument("--threads", type=int, default=2, help="threads of everything (2)")
    options = parser.parse_args(arguments)
    start(options.threads)
    every = pd.concat(powers(seed) for seed in options.seeds)
    means = every.groupby(["protocol", *DESIGNS])[["molecules", "power", "donors_needed"]].mean()
    print(means.set_axis(SHOWN, axis=1).round(2).to_string())


if __name__ == "__main__":
    main()
