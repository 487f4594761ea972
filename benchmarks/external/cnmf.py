"""Consensus NMF (Kotliar et al. 2019) on cells of a folder, in an environment with ``cnmf``.

``python -m benchmarks.external.cnmf FOLDER`` reads every ``NAME.h5ad`` and writes ``NAME.csv``: the scores of all genes
(z-score regression) for eight programs, by which cNMF ranks genes. Runs and the density threshold are arguments.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

from cnmf import cNMF

N_PROGRAMS = 8


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.external.cnmf", description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--runs", type=int, default=100, help="factorisations (100, its default)")
    parser.add_argument("--threshold", type=float, default=0.5, help="density threshold (.5, its default)")
    options = parser.parse_args()
    for path in sorted(options.folder.glob("*.h5ad")):
        with tempfile.TemporaryDirectory() as scratch:
            run = cNMF(output_dir=scratch, name="run")
            run.prepare(counts_fn=str(path), components=[N_PROGRAMS], n_iter=options.runs, seed=0)
            run.factorize(worker_i=0, total_workers=1)
            run.combine()
            run.consensus(k=N_PROGRAMS, density_threshold=options.threshold, show_clustering=False)
            scores = run.load_results(K=N_PROGRAMS, density_threshold=options.threshold)[1]
        scores.to_csv(path.with_suffix(".csv"))
        print(f"{path.name}: {scores.shape}", flush=True)


if __name__ == "__main__":
    main()
