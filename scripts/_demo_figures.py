"""The two figures of the demo: real beside generated cells, and what the tokens stand for."""

from __future__ import annotations

from textwrap import fill

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from anndata import AnnData
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from numpy.typing import NDArray

from scdiffgen.tl import token_associations

# Paul Tol's "muted" scheme, told apart under the common kinds of colour blindness, and a grey; by lineage.
COLOURS = {
    "CD34+": "#AA4499",
    "CD14+ Monocyte": "#CC6677",
    "Dendritic": "#332288",
    "CD19+ B": "#DDCC77",
    "CD56+ NK": "#44AA99",
    "CD8+ Cytotoxic T": "#88CCEE",
    "CD8+/CD45RA+ Naive Cytotoxic": "#882255",
    "CD4+/CD25 T Reg": "#117733",
    "CD4+/CD45RO+ Memory": "#999933",
    "CD4+/CD45RA+/CD25- Naive T": "#777777",
}
PALE, TEXT = "#E6E6E6", "#333333"
N_GENES, N_TOKENS = 8, 8
MARKS = 0.8  # AUC of a cell type against all others from which a token is titled with it


def draw_cells(
    real: NDArray[np.float32], generated: NDArray[np.float32], real_labels: pd.Series, generated_labels: pd.Series
) -> Figure:
    """Real and generated cells side by side in one embedding, each before the other in grey."""
    figure, axes = plt.subplots(1, 2, figsize=(11, 3.9), sharex=True, sharey=True, layout="constrained")
    panels = [("real", real, real_labels, generated), ("generated", generated, generated_labels, real)]
    for axis, (title, points, labels, others) in zip(axes, panels, strict=True):
        axis.scatter(*others.T, s=9, c=PALE, linewidths=0)
        shuffled = np.random.default_rng(0).permutation(len(points))  # no cell type lies on top of the others
        axis.scatter(*points[shuffled].T, s=13, c=[COLOURS[label] for label in labels.iloc[shuffled]], linewidths=0)
        axis.set_title(f"{len(points)} {title} cells", fontsize=13, color=TEXT, loc="left")
        axis.set(xticks=[], yticks=[], aspect="equal")
        axis.spines[:].set_color(PALE)
    axes[0].set_xlabel("UMAP of both together; grey: the cells of the other panel", loc="left", color=TEXT)
    handles = [Line2D([], [], marker="o", linestyle="", color=colour, label=name) for name, colour in COLOURS.items()]
    figure.legend(handles=handles, loc="outside right center", frameon=False, handletextpad=0.1, labelcolor=TEXT)
    return figure


def draw_token_loadings(adata: AnnData, label: str) -> Figure:
    """Largest loadings of the tokens that explain most, and how active they are in each cell type."""
    tokens = [name.replace("_", " ") for name in adata.uns["scdiffgen"]["tokens"]]
    loadings = pd.DataFrame(adata.varm["token_loadings"], index=adata.var_names, columns=tokens).iloc[:, :N_TOKENS]
    activation = pd.DataFrame(adata.obsm["X_token_activation"], columns=tokens).iloc[:, :N_TOKENS]
    by_type = activation.groupby(adata.obs[label].to_numpy()).mean().loc[list(COLOURS)]
    aucs = (
        token_associations(adata, label)
        .query("statistic == 'auc'")
        .pivot(index="level", columns="token", values="value")
    )
    aucs.columns = aucs.columns.str.replace("_", " ")

    figure = plt.figure(figsize=(13, 5.6), layout="constrained")
    left, right = figure.subfigures(1, 2, width_ratios=[2, 1])
    axes = left.subplots(2, N_TOKENS // 2, sharex=True)
    for axis, token in zip(axes.flat, loadings, strict=True):
        highest = by_type[token].idxmax()
        _draw_top_genes(axis, loadings[token], highest if aucs.loc[highest, token] >= MARKS else None)
    axes.flat[0].set_xlim(0, 1.05 * loadings.to_numpy().max())
    left.supxlabel(
        f"loading, under the cell type of the highest activation if it stands out (AUC {MARKS:g} or more)",
        fontsize=9,
        color=TEXT,
    )
    _draw_activation(right.subplots(), by_type)
    return figure


def _draw_top_genes(axis: Axes, loadings: pd.Series, cell_type: str | None) -> None:
    top, colour = loadings.nlargest(N_GENES)[::-1], COLOURS.get(cell_type or "", TEXT)
    axis.hlines(top.index, 0, top, color=colour, linewidth=2)
    axis.plot(top, top.index, "o", color=colour, markersize=5)
    axis.set_title(
        f"{loadings.name}\n{fill(cell_type or 'no single cell type', 20)}", fontsize=10, color=TEXT, loc="left"
    )
    axis.tick_params(length=0, labelsize=8.5, labelcolor=TEXT)
    axis.spines[["top", "right", "left"]].set_visible(False)
    axis.spines["bottom"].set_color(PALE)
    for gene in axis.get_yticklabels():
        gene.set_fontstyle("italic")


def _draw_activation(axis: Axes, by_type: pd.DataFrame) -> None:
    limit = by_type.abs().to_numpy().max()
    image = axis.imshow(by_type, cmap="RdBu_r", vmin=-limit, vmax=limit, aspect="auto")
    axis.set_xticks(range(by_type.shape[1]), [name.split()[-1] for name in by_type.columns])
    axis.set_yticks(range(by_type.shape[0]), by_type.index)
    axis.tick_params(length=0, labelsize=9, labelcolor=TEXT)
    axis.spines[:].set_visible(False)
    axis.set_xlabel("token", color=TEXT)
    axis.set_title("mean activation (sd)", fontsize=10, color=TEXT, loc="left")
    bar = axis.figure.colorbar(image, ax=axis, aspect=40, pad=0.02)
    bar.outline.set_visible(False)
    bar.ax.tick_params(length=0, labelsize=8, labelcolor=TEXT)
