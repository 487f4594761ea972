"""Which order of the genes of a token puts known markers on top? Compares orders, and tokens with NMF and cNMF.

``python -m benchmarks.studies.token_ranking --data pbmc3k paul15 pbmc68k --seeds 0 1``

Cells and training differ between seeds. Every training is kept under ``parts/`` beside the results and not repeated.
cNMF runs in an environment of its own: ``--export FOLDER`` writes the cells and trains nothing, ``python -m
benchmarks.external.cnmf FOLDER`` makes programs of them, ``--cnmf FOLDER`` reads these.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from unittest.mock import patch

import numpy as np
import pandas as pd
import scvi
from numpy.typing import NDArray
from scipy import sparse
from scipy.stats import spearmanr
from sklearn.decomposition import NMF, PCA

import scdiffgen.module._token_regression
from benchmarks._data import Split, available, load_split
from benchmarks._record import environment, output_folder, start
from benchmarks._tables import markdown, summary
from benchmarks._token_methods import fit_variant
from benchmarks._token_scores import stability
from scdiffgen._log_normalise import log_normalise
from scdiffgen.module._linear_start import varimax
from scdiffgen.module._token_regression import linear_stability, regression_loadings, standardised
from scdiffgen.tl import token_similarity

N_PROGRAMS, TOP = 8, (10, 30)
HUMAN = {
    "NK": "NKG7 GNLY GZMB PRF1 FGFBP2 SPON2 CST7 GZMA KLRD1",
    "B": "CD79A CD79B MS4A1 TCL1A CD19 BANK1 VPREB3 LINC00926",
    "CD14 monocyte": "S100A8 S100A9 LYZ CD14 FCN1 S100A12 LGALS2 MS4A6A CSF3R",
    "CD16 monocyte": "FCGR3A MS4A7 CDKN1C RHOC IFITM3 HES4 LST1",
    "T": "CD3D CD3E CD3G IL7R IL32 CD2 LEF1 TCF7 LCK",
    "dendritic": "FCER1A CD1C CLEC10A HLA-DQA1 HLA-DPB1 HLA-DRA CD74 CST3",
    "platelet": "PPBP PF4 GNG11 SDPR TUBB1 CLU NRGN SPARC",
}
MOUSE = {
    "erythroid": "Hba-a2 Hbb-b1 Beta-s Car1 Car2 Klf1 Gata1 Gypa Blvrb Ermap Epor",
    "neutrophil": "Elane Mpo Prtn3 Ctsg Cebpe Gfi1 Gstm1 Igsf6",
    "monocyte": "Csf1r Ly86 Irf8 Ctss F13a1 Klf4 Psap Cst3",
    "megakaryocyte": "Pf4 Gp9 Mpl Vwf Rap1b Cd9",
    "basophil": "Prss34 Mcpt8 Cpa3 Gata2 Lmo4 Ifitm1",
    "dendritic": "Cd74 H2-Aa H2-Eb1",
}
MARKERS = {"pbmc3k": HUMAN, "pbmc68k": HUMAN, "paul15": MOUSE}


@dataclass(frozen=True)
class Programs:
    """What a method found: loadings ``(genes, programs)`` and the usage of each in the cells ``(cells, programs)``."""

    loadings: NDArray
    usage: NDArray


def correlation(programs: Programs, expression: NDArray) -> NDArray:
    """Of usage and log expression ``(cells, genes)``, gene by gene; 0 where either is constant."""
    return standardised(expression).T @ standardised(programs.usage) / len(expression)


def regression(programs: Programs, expression: NDArray) -> NDArray:
    """Coefficients of standardised expression on the usage of all programs together."""
    return np.linalg.lstsq(standardised(programs.usage), standardised(expression), rcond=None)[0].T


def ridge(penalty: float) -> Callable[[Programs, NDArray], NDArray]:
    """The same, by ridge; the package has it with one penalty."""

    def ordered(programs: Programs, expression: NDArray) -> NDArray:
        with patch.object(scdiffgen.module._token_regression, "PENALTY", penalty):
            return regression_loadings(programs.usage, sparse.csr_matrix(expression))

    return ordered


def predicted(programs: Programs, expression: NDArray) -> NDArray:
    """Loadings of log-rates as changes of log(1 + counts per 10,000) at the mean expression."""
    mean = np.expm1(expression).mean(0)
    return programs.loadings * (mean / (1 + mean))[:, None]


ORDERS: Mapping[str, Callable[[Programs, NDArray], NDArray]] = {
    "loadings": lambda programs, _: programs.loadings,
    "loadings x mean log expression": lambda programs, x: programs.loadings * x.mean(0)[:, None],
    "loadings x share of cells": lambda programs, x: programs.loadings * (x > 0).mean(0)[:, None],
    "loadings x sd of log expression": lambda programs, x: programs.loadings * x.std(0)[:, None],
    "loadings, as change of log(1 + CP10k)": predicted,
    "covariance": lambda programs, x: correlation(programs, x) * x.std(0)[:, None],
    "correlation": correlation,
    "regression": regression,
    **{f"ridge, penalty {penalty:g}": ridge(penalty) for penalty in (0.1, 0.3, 1.0)},
}
OF_OTHERS = ("loadings", "correlation", "ridge, penalty 0.3")


def tokens(split: Split, max_epochs: int | None, kept: Path) -> Programs:
    """Tokens of the default model; a training that was kept is read."""
    if not kept.exists():
        scvi.settings.seed = split.seed
        model = fit_variant(split, "default", max_epochs)
        kept.parent.mkdir(parents=True, exist_ok=True)
        activation = model.get_token_activation(silent=True)
        np.savez_compressed(kept, loadings=model.get_token_loadings(method="readout"), usage=activation)
    with np.load(kept) as stored:
        return Programs(stored["loadings"], stored["usage"])


def nmf(expression: NDArray, seed: int) -> Programs:
    """Non-negative factors of log expression."""
    model = NMF(N_PROGRAMS, init="random", random_state=seed, max_iter=500)
    usage = model.fit_transform(expression)
    return Programs(model.components_.T, usage)


def rotated_pca(expression: NDArray) -> Programs:
    """Principal components after a varimax rotation, which tokens start from."""
    pca = PCA(N_PROGRAMS, svd_solver="randomized", random_state=0).fit(expression)
    loadings = varimax(pca.components_ * np.sqrt(pca.explained_variance_)[:, None]).T
    return Programs(loadings, (expression - pca.mean_) @ np.linalg.pinv(loadings).T)


def found(
    split: Split, expression: NDArray, programs: Programs, cnmf: Path | None
) -> Iterator[tuple[str, str, NDArray]]:
    """Name of the method and of the order, and the numbers that order the genes ``(genes, programs)``."""
    for order, ordered in ORDERS.items():
        yield "tokens", order, ordered(programs, expression)
    for method, other in (("NMF", nmf(expression, split.seed)), ("PCA, varimax", rotated_pca(expression))):
        for order in OF_OTHERS:
            yield method, order, ORDERS[order](other, expression)
    if cnmf is not None:
        table = pd.read_csv(cnmf / f"{split.name}-seed{split.seed}.csv", index_col=0)
        yield "cNMF", "its scores", table.reindex(split.train.var_names, fill_value=0).to_numpy()


def both_ends(method: str, ordered: NDArray) -> NDArray:
    """Lists of genes from the top: of tokens and components, which have two ends, each counts as a list."""
    return np.hstack([ordered, -ordered]) if method in ("tokens", "PCA, varimax") else ordered


def scores(ordered: NDArray, genes: pd.Index, share: NDArray, markers: Mapping[str, str]) -> dict[str, float]:
    """Markers among the top genes of the program that has most of them, by type; how often top genes are detected.

    The share of cells is the median over the top genes of a program, of these the median and the lowest.
    """
    by_rank, result = np.argsort(-ordered, axis=0, kind="stable"), {}
    known = {name: genes.get_indexer([gene for gene in of.split() if gene in genes]) for name, of in markers.items()}
    known = {name: of for name, of in known.items() if len(of) > 2}
    for n_top in TOP:
        most = {name: np.isin(by_rank[:n_top], of).sum(0).max() for name, of in known.items()}
        result |= {f"top {n_top}, {name} of {len(of)}": float(most[name]) for name, of in known.items()}
        possible = [min(len(of), n_top) for of in known.values()]
        result[f"markers in top {n_top}"] = float(sum(most.values()) / sum(possible))
    detected = np.median(share[by_rank[: TOP[0]]], axis=0)
    return result | {"share of cells": float(np.median(detected)), "share of cells, lowest": float(detected.min())}


def table(runs: Sequence[Mapping], similar: Mapping[tuple[str, str, str], float]) -> str:
    """A table for each data set: medians over the seeds and range, and how alike the programs of two seeds are."""
    keys = [f"markers in top {n}" for n in TOP] + ["share of cells", "share of cells, lowest"]
    parts = []
    for data in dict.fromkeys(run["data"] for run in runs):
        rows = []
        for method, order in dict.fromkeys((run["method"], run["order"]) for run in runs if run["data"] == data):
            own = [run["scores"] for run in runs if (run["data"], run["method"], run["order"]) == (data, method, order)]
            by_type = [key.removeprefix("top 30, ") for key in own[0] if key.startswith("top 30")]
            most = ", ".join(f"{name} {np.median([each[f'top 30, {name}'] for each in own]):g}" for name in by_type)
            alike = f"{similar.get((data, method, order), np.nan):.2f}"
            rows.append([method, order, *(summary([each[key] for each in own], 2) for key in keys), alike, most])
        header = ["method", "genes ordered by", *keys, "matched between seeds", "by type, in top 30"]
        parts.append(f"## {data}\n\n" + markdown(header, rows))
    return "\n\n".join(parts)


def foreseen(stable: Mapping[str, Sequence[NDArray]], loadings: Mapping[str, Sequence[pd.DataFrame]]) -> str:
    """Stability of the tokens of the first seed, and how alike their matches of the second are."""
    rows, pairs = [], []
    for name, of_seeds in stable.items():
        if len(of_seeds) > 1:
            matched = token_similarity(*loadings[name][:2])["correlation"].abs().to_numpy()
            pairs.append(np.stack([of_seeds[0][: len(matched)], matched]))
            rows += [[name, *(" ".join(f"{value:.2f}" for value in values) for values in pairs[-1])]]
    rank = spearmanr(*np.hstack(pairs)).statistic if pairs else np.nan
    return markdown(["data", "stability", "match with another seed"], rows) + f"\n\nRank correlation: {rank:.2f}"


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser("python -m benchmarks.studies.token_ranking", description=__doc__.splitlines()[0])
    there = [name for name in available() if name in MARKERS]
    parser.add_argument("--data", nargs="+", choices=list(MARKERS), default=there)
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1])
    parser.add_argument("--export", type=Path, help="folder to write cells to, for cNMF; nothing is trained")
    parser.add_argument("--cnmf", type=Path, help="folder with programs that cNMF found in these cells")
    parser.add_argument("--threads", type=int, default=2, help="threads of everything (2)")
    parser.add_argument("--output", type=Path, help="folder to write to (benchmarks/results)")
    parser.add_argument("--quick", action="store_true", help="two epochs, to see that it runs: results mean nothing")
    options = parser.parse_args(arguments)
    start(options.threads)
    folder = output_folder(options.output, quick=options.quick)
    runs, ranked, stable = [], {}, {}
    for name, seed in product(options.data, options.seeds):
        split = load_split(name, seed)
        if options.export:
            options.export.mkdir(parents=True, exist_ok=True)
            split.train.write_h5ad(options.export / f"{name}-seed{seed}.h5ad")
            continue
        expression, genes = log_normalise(split.train.X.toarray()), split.train.var_names
        kept = folder / "parts" / "token-ranking" / f"{name}-seed{seed}.npz"
        trained = tokens(split, 2 if options.quick else None, kept)
        ours = regression_loadings(trained.usage, sparse.csr_matrix(expression))
        stable.setdefault(name, []).append(linear_stability(ours, sparse.csr_matrix(expression)))
        for method, order, ordered in found(split, expression, trained, options.cnmf):
            of_run = scores(both_ends(method, ordered), genes, (expression > 0).mean(0), MARKERS[name])
            runs.append({"data": name, "seed": seed, "method": method, "order": order, "scores": of_run})
            ranked.setdefault((name, method, order), []).append(pd.DataFrame(ordered, index=genes))
    if runs:
        lines = [json.dumps(run | {"environment": environment(options.threads, options.seeds)}) for run in runs]
        (folder / "study-token-ranking.jsonl").write_text("\n".join(lines) + "\n")
        similar = {key: stability(of_seeds) for key, of_seeds in ranked.items() if len(of_seeds) > 1}
        print(table(runs, similar))
        print(foreseen(stable, {name: ranked[name, "tokens", "ridge, penalty 0.3"] for name in stable}))


if __name__ == "__main__":
    main()
