"""Which process draws cells best, by molecules per gene? Real cells as they are, thinned, and summed within labels.

``python -m benchmarks.studies.depth --seeds 0 1 --threads 1``, then with ``--figure`` for the picture and the table of
the page, which also have the rows of the generation tables.

Every data set is split twice, so that the cells that other benchmarks report are never used: methods are trained on a
part of the training cells and compared with the rest of them. Sums of ten cells of a label are as deep as plate-based
data; cells with a tenth of their molecules are as shallow as those of large embryos.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import anndata
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import scvi
from anndata import AnnData
from scipy import sparse

from benchmarks._data import FOLDER, LABEL, Split, load_kang, load_paul15, load_pbmc3k, load_pbmc68k, load_split, split
from benchmarks._generation_table import OURS
from benchmarks._models import Sampler, fit_scdiffgen, linear_methods, scdiffgen_methods
from benchmarks._page import write_between_marks
from benchmarks._record import start
from benchmarks._tables import markdown
from scdiffgen.metrics import ExpressionSpace, classifier_auc

RESULTS = Path(__file__).parents[1] / "results" / "study-depth.jsonl"
FIGURE = Path(__file__).parents[1] / "pages" / "figures" / "depth.png"
PAGE = FIGURE.parents[1] / "processes.md"
COLOURS = {"thinning": "tab:blue", "gaussian": "tab:orange", "linear copula": "tab:green", "scVI": "tab:purple"}
COLOURS |= {"other real cells": "0.6"}
RIVALS = {"linear copula": "the linear copula", "gaussian": "Gaussian diffusion"}
SPACES = ("components", "genes")
METHODS = ("thinning", "gaussian", "linear copula", "other real cells", "thinning, measured cells")
N_GENES, MOST_CELLS, LEAST_CELLS, N_SUMMED, LEAST_OF_LABEL = 1_000, 2_500, 200, 10, 8


def labelled(file: str, *columns: str) -> Callable[[], AnnData]:
    """Return a reader of a file whose labels are the values of columns."""

    def read() -> AnnData:
        cells = anndata.read_h5ad(FOLDER / file)
        label = cells.obs[list(columns)].astype(str).agg(" ".join, axis=1)
        return AnnData(sparse.csr_matrix(cells.X, dtype=np.float32), pd.DataFrame({LABEL: label.astype("category")}))

    return read


DATA: dict[str, Callable[[], AnnData]] = {
    "pbmc68k": load_pbmc68k,
    "kang": load_kang,
    "paul15": load_paul15,
    "pbmc3k": load_pbmc3k,
    "pbmc4k": labelled("scdcc_pbmc4k.h5ad", "cell_type"),
    "kidney": labelled("scdcc_kidney.h5ad", "cell_type"),
    "bladder": labelled("scdcc_mouse_bladder.h5ad", "cell_type"),
    "haber": labelled("haber2017_intestine_1000g.h5ad", "cell_type"),
    "celseq2": labelled("tian2019_rnamix_celseq2.h5ad", "mix"),
    "sortseq": labelled("tian2019_rnamix_sortseq.h5ad", "mix"),
}
FORMS = ("as measured", "thinned", "summed", "few")
FEW_CELLS = 1_400  # half of which are trained on
N_DRAWS, N_SEEDS = 4, 100  # draws of each fit, and how far apart their seeds are


def in_form(cells: AnnData, form: str) -> AnnData:
    """Return at most 2,500 cells as measured, a tenth of their molecules, fewer cells, or sums of ten of a label."""
    rng = np.random.default_rng(0)
    if form == "summed":
        whole = [
            rng.permutation(rows)[: len(rows) // N_SUMMED * N_SUMMED].reshape(-1, N_SUMMED)
            for rows in cells.obs.groupby(LABEL, observed=True).indices.values()
        ]
        groups = np.concatenate(whole)
        which = np.repeat(np.arange(len(groups)), N_SUMMED), groups.ravel()
        sums = sparse.csr_matrix((np.ones(len(which[0])), which), (len(groups), cells.n_obs)) @ cells.X
        label = cells.obs[LABEL].iloc[groups[:, 0]].to_numpy()
        cells = AnnData(sums.tocsr().astype(np.float32), pd.DataFrame({LABEL: label}, map(str, range(len(groups)))))
    else:
        cells = cells[np.sort(rng.permutation(cells.n_obs)[: FEW_CELLS if form == "few" else MOST_CELLS])].copy()
    if form == "thinned":
        cells.X.data = rng.binomial(cells.X.data.astype(int), 1 / N_SUMMED).astype(np.float32)
        cells.X.eliminate_zeros()
    n_cells = cells.obs[LABEL].value_counts()
    frequent = cells.obs[LABEL].isin(n_cells.index[n_cells >= LEAST_OF_LABEL])
    return cells[(frequent & (cells.X.sum(1).A1 > 0)).to_numpy()].copy()


def fit(method: str, train: AnnData, real: AnnData, seed: int) -> tuple[Sampler, float]:
    """Fit a method to training cells: how it draws cells of labels, and nats per molecule of real cells or NaN."""
    known = Split("", seed, train, train, train)
    if method == "linear copula":
        return linear_methods(known)[0].sample, np.nan
    process, _, measured = method.partition(", ")
    scvi.settings.seed = seed
    model = fit_scdiffgen(known, process=process, plan_kwargs={"drawn_share": 0} if measured else None)
    sample = scdiffgen_methods(model, [32])[0].sample
    if process == "gaussian":
        return sample, np.nan
    return sample, float(model.get_nll_bound(real.copy(), seed=0, silent=True)["nll"].sum() / real.X.sum())


def record(name: str, form: str, method: str, seed: int) -> dict[str, object]:
    """Measure one method on one data set; AUCs are means over several draws of one fit, which differ as seeds do."""
    outer = split(in_form(DATA[name](), form), name, 100 + seed, N_GENES).train
    outer = outer[outer.X.sum(1).A1 > 0].copy()
    inner = split(outer, name, seed)
    real, nats = anndata.concat([inner.held_out, inner.other]), np.nan
    if method == "other real cells":
        real, drawn, cells = inner.held_out, inner.other.obs[LABEL].to_numpy(dtype=str), [inner.other.X]
    else:
        drawn = real.obs[LABEL].to_numpy(dtype=str)
        sample, nats = fit(method, inner.train, real, seed)
        cells = [sample(drawn, seed + N_SEEDS * turn) for turn in range(N_DRAWS)]
    space = ExpressionSpace.fit(inner.train.X)
    forest = {"n_jobs": 1, "real_labels": real.obs[LABEL].to_numpy(dtype=str), "generated_labels": drawn}
    spaces = {"components": space.pcs, "genes": space.expression}
    return {
        "data": name,
        "form": form,
        "method": method,
        "seed": seed,
        "n_draws": len(cells),
        "n_train": inner.train.n_obs,
        "molecules_per_gene": float(inner.train.X.sum() / np.prod(inner.train.shape)),
        "nats": None if np.isnan(nats) else nats,
    } | {
        key: float(np.mean([classifier_auc(seen(real.X), seen(counts), **forest) for counts in cells]))
        for key, seen in spaces.items()
    }


def table(rows: pd.DataFrame) -> str:
    """Return AUCs on components / genes of each data set, by molecules per gene, and how ours compare."""
    depth = rows.groupby(["data", "form"])["molecules_per_gene"].median().sort_values()
    scores = rows.groupby(["data", "form", "method"])[[*SPACES]].median().unstack("method").loc[depth.index]
    both = scores.map("{:.2f}".format)
    cells = (both["components"] + " / " + both["genes"])[[*COLOURS]].replace("nan / nan", "").to_numpy()
    lines = [[*key, f"{depth[key]:.2g}", *of_key] for key, of_key in zip(depth.index, cells, strict=True)]
    table = markdown(["data", "form", "molecules per gene", *COLOURS], lines, n_left=2)
    return "\n\n".join([table, *(compared(scores, *rival) for rival in RIVALS.items())])


def compared(scores: pd.DataFrame, rival: str, name: str) -> str:
    """Say in how many rows, and by how much, cells by thinning are nearer to real ones than those of a rival."""
    sentences = []
    for space in SPACES:
        gain = (scores[space, rival] - scores[space, "thinning"]).dropna()
        nearer, farther = gain.max(), -gain.min()
        of_all = f"in {(gain > 0).sum()} of {len(gain)} rows on {space}"
        sentences.append(
            f"{of_all}, by {max(nearer, 0):.2f} at most, and elsewhere up to {max(farther, 0):.2f} farther"
        )
    return f"Thinning is nearer than {name} {'; '.join(sentences)}."


def tables() -> Iterator[dict[str, object]]:
    """Read the scores of the generation tables, as rows of this study."""
    names = {OURS: "thinning", "scdiffgen, gaussian, 32 steps": "gaussian", "other real cells": "other real cells"}
    names |= {"linear Gaussian copula, no network": "linear copula", "scVI, Gaussian mixture of the label": "scVI"}
    for path in sorted(RESULTS.parent.glob("generation-*.json")):
        result = json.loads(path.read_text())
        train = load_split(name := result["data"]["name"], 0).train
        depth = {
            "molecules_per_gene": float(train.X.sum() / np.prod(train.shape)),
            "data": name,
            "form": "as in the tables",
        }
        for row in (row for row in result["rows"] if row["method"] in names):
            scores = {"components": row["scores"]["auc_forest_pcs"], "genes": row["scores"]["auc_forest_genes"]}
            yield depth | scores | {"method": names[row["method"]], "seed": row["seed"]}


def figure(rows: pd.DataFrame) -> None:
    """Draw the AUC of each method over molecules per gene, with a straight line through the points of each."""
    drawn, axes = plt.subplots(1, 2, figsize=(9, 3.6), sharey=True, layout="constrained")
    for axis, space in zip(axes, SPACES, strict=True):
        for method, colour in reversed(COLOURS.items()):
            own = rows[rows["method"] == method].groupby(["data", "form"])[["molecules_per_gene", space]].median()
            axis.plot(own["molecules_per_gene"], own[space], "o", color=colour, markersize=4, label=method)
            ends = np.log(own["molecules_per_gene"].agg(["min", "max"]))
            line = np.polynomial.Polynomial.fit(np.log(own["molecules_per_gene"]), own[space], 1)
            axis.plot(np.exp(ends), line(ends), color=colour, linewidth=1)
        axis.set(xscale="log", xlabel="molecules per gene and cell", title=f"random forest on {space}")
        axis.set_xticks((ticks := (0.02, 0.05, 0.2, 0.5, 1, 2, 5)), [f"{tick:g}" for tick in ticks], minor=False)
        axis.minorticks_off()
        axis.spines[["top", "right"]].set_visible(False)
    axes[0].set_ylabel("AUC (0.5 is best)")
    drawn.legend(*axes[0].get_legend_handles_labels(), frameon=False, loc="outside right center")
    drawn.savefig(FIGURE, dpi=110)


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure what is not yet in the results, and print the table."""
    parser = argparse.ArgumentParser("python -m benchmarks.studies.depth", description=__doc__.splitlines()[0])
    parser.add_argument("--data", nargs="+", choices=list(DATA), default=list(DATA))
    parser.add_argument("--forms", nargs="+", choices=FORMS, default=list(FORMS))
    parser.add_argument("--methods", nargs="+", choices=METHODS, default=list(METHODS))
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1])
    parser.add_argument("--threads", type=int, default=2, help="threads of everything (2)")
    parser.add_argument("--figure", action="store_true", help="draw the results and write the page; measure nothing")
    options = parser.parse_args(arguments)
    start(options.threads)
    rows = [json.loads(line) for line in RESULTS.read_text().splitlines()] if RESULTS.exists() else []
    if options.figure:
        everything = pd.DataFrame([*rows, *tables()])
        figure(everything)
        write_between_marks(PAGE, {"by depth": table(everything)}, "benchmarks.studies.depth --figure")
        return
    known = {(row["data"], row["form"], row["method"], row["seed"]) for row in rows}
    for seed in options.seeds:
        for form in options.forms:
            large = [name for name in options.data if in_form(DATA[name](), form).n_obs >= LEAST_CELLS]
            for name in large:
                for method in options.methods:
                    if (name, form, method, seed) not in known:
                        rows.append(record(name, form, method, seed))
                        with RESULTS.open("a") as file:
                            file.write(json.dumps(rows[-1]) + "\n")
    print(table(pd.DataFrame(rows)))


if __name__ == "__main__":
    main()
