"""CFGen's own scores of generated cells on pbmc3k, by the scorer of a checkout of it.

Run from the repository, in an environment with the requirements of CFGen: ``python -m benchmarks.external.cfgen_scores
--source CHECKOUT --cells FOLDER``. FOLDER is the one of ``python -m benchmarks.published_cfgen``.
"""

import argparse
import subprocess
import sys
from pathlib import Path

import anndata
import pandas as pd
from anndata import AnnData

from benchmarks.external._recipe import LABEL, set_threads

LAYER = "X_counts"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--source", type=Path, required=True, help="checkout of CFGen")
    parser.add_argument("--cells", type=Path, required=True, help="folder of the cells, and of the scores")
    options = parser.parse_args()
    set_threads(1)
    sys.path.insert(0, str(options.source.resolve()))
    git = ["git", "-C", str(options.source), "rev-parse", "--short=7", "HEAD"]
    commit = subprocess.run(git, capture_output=True, text=True, check=True).stdout.strip()
    scores = pd.concat(
        score(seed, path) for seed in sorted(options.cells.glob("seed*")) for path in sorted(seed.glob("generated/*"))
    )
    scores.to_csv(options.cells / f"scores-{commit}.csv", index=False)
    print(scores.groupby(["method", "seed"]).mean(numeric_only=True))


def score(seed: Path, path: Path) -> pd.DataFrame:
    """Score the cells of a method against the test cells of a seed: a row a label."""
    from cfgen.eval.launch_evaluation_metrics_unimodal import _compare_real_generated

    real, generated = with_layer(seed / "real.h5ad"), with_layer(path)
    scores, _ = _compare_real_generated(real, generated, counts_layer=LAYER, cluster_key=LABEL)
    return scores.assign(method=path.stem, seed=int(seed.name.removeprefix("seed")))


def with_layer(path: Path) -> AnnData:
    """Read cells, with counts where the scorer looks for them."""
    cells = anndata.read_h5ad(path)
    cells.layers[LAYER] = cells.X.copy()
    return cells


if __name__ == "__main__":
    main()
