"""Embeddings of real and generated cells, and token activations on an embedding."""

from collections.abc import Sequence
from textwrap import fill
from typing import Literal

import numpy as np
import pandas as pd
from anndata import AnnData
from matplotlib.axes import Axes
from matplotlib.colors import Normalize

from scdiffgen._shared_docs import shared_docs
from scdiffgen._stored_tokens import chosen_tokens, token_activation
from scdiffgen.metrics._summaries import joint_embedding
from scdiffgen.pl import _group_style as groups
from scdiffgen.pl._figure import DIVERGING, Ax, Names, Save, Show, colour_bar, figure_of, finish, panels, unticked

INCHES = (3.1, 3.0)


@shared_docs
def evaluation_embedding(
    real: AnnData,
    generated: AnnData,
    groupby: str | None = None,
    *,
    basis: Literal["umap", "pca"] = "umap",
    layer: str | None = None,
    max_cells: int = 5000,
    seed: int = 0,
    ax: Ax = None,
    show: Show = None,
    save: Save = None,
) -> list[Axes]:
    """Draw real and generated cells in one UMAP, or on the first two principal components.

    The first panel shows all cells in random order. With groups, two further panels show real and generated cells
    separately, coloured by group; more than eight groups are also numbered. An embedding shows gross errors only; for
    scores use :func:`scdiffgen.metrics.evaluate`.

    Parameters
    ----------
    groupby
        Column of ``obs`` of real and generated cells.
    basis
        ``"umap"`` or ``"pca"``.
    seed
        Random seed of the subsampling and of the UMAP.

    Returns
    -------
    The axes: one for all cells, and with groups one for real and one for generated cells.

    Examples
    --------
    >>> axes = evaluation_embedding(adata[::2], adata[1::2], "cell_type", basis="pca", layer="counts")
    """
    places = joint_embedding(real, generated, groupby, basis=basis, layer=layer, max_cells=max_cells, seed=seed)
    names = group_names(places)
    axes = panels(3 if names else 1, 3, INCHES, ax)
    if names:
        figure = figure_of(axes)
        figure.set_size_inches(3 * INCHES[0] + groups.legend_inches(names), INCHES[1])
        groups.add_legend(figure, names)
    draw_embedding(axes, places, names)
    return finish(axes, f"evaluation_{basis}", show, save)


def group_names(places: pd.DataFrame) -> list[str]:
    """Return sorted groups of embedded cells; empty without groups."""
    return sorted(places["group"].unique()) if "group" in places else []


def draw_embedding(axes: Sequence[Axes], places: pd.DataFrame, names: Sequence[str]) -> None:
    """Draw all cells on the first axes, and with groups real and generated cells on the second and third."""
    places = places.sample(frac=1, random_state=0)  # random order, so that no group covers another
    x, y = places.columns[-2:]
    _scatter(axes[0], places, [groups.SOURCES[source] for source in places["source"]])
    axes[0].set_title("real and generated", fontsize=10)
    handles = groups.dots(list(groups.SOURCES.values()), list(groups.SOURCES))
    axes[0].legend(handles=handles, frameon=False, fontsize=8, handletextpad=0.2, loc="best")
    colours = dict(zip(names, groups.colours(len(names)), strict=True))
    for axis, source in zip(axes[1:], groups.SOURCES, strict=False):
        shown = places[places["source"] == source]
        _scatter(axis, shown, [colours[group] for group in shown["group"]])
        axis.set_title(source, fontsize=10)
        axis.set(xlim=axes[0].get_xlim(), ylim=axes[0].get_ylim())
        if groups.numbered(names):
            groups.number(axis, shown[[x, y]].to_numpy(), shown["group"].to_numpy(), names)
    explained = [f" ({share:.0%} of variance)" for share in places.attrs.get("explained", [])] or ["", ""]
    for axis in axes:
        unticked(axis, x + explained[0], y + explained[1])
        axis.spines[["top", "right"]].set_visible(False)


def _scatter(axis: Axes, places: pd.DataFrame, colours: Sequence[groups.Colour]) -> None:
    x, y = places.iloc[:, -2:].to_numpy().T
    size = float(np.clip(6000 / max(len(x), 1), 2, 10))
    axis.scatter(x, y, c=colours, s=size, alpha=0.8, linewidths=0, rasterized=True)


@shared_docs
def token_embedding(
    adata: AnnData,
    tokens: Names = None,
    basis: str = "umap",
    *,
    ncols: int = 4,
    ax: Ax = None,
    show: Show = None,
    save: Save = None,
) -> list[Axes]:
    """Draw token activations on an embedding of the cells, one panel per token.

    Parameters
    ----------
    {stored}
    basis
        Embedding, as in :func:`scanpy.pl.embedding`: ``"umap"`` is ``adata.obsm["X_umap"]``.

    Raises
    ------
    ValueError
        If ``adata.obsm`` has no such embedding, or a token is unknown.

    Examples
    --------
    >>> axes = token_embedding(adata, ["token_1"])
    """
    chosen, labels = chosen_tokens(adata, tokens)
    key = basis if basis in adata.obsm else f"X_{basis}"
    if key not in adata.obsm:
        raise ValueError(f"`basis` is {basis!r}: choose from {list(adata.obsm)}, or run `sc.tl.umap`.")
    axes = panels(len(chosen), ncols, (2.7, 2.4), ax)
    activation = token_activation(adata)[chosen].to_numpy()
    limits = np.quantile(np.abs(activation), 0.99, axis=0)
    points = np.asarray(adata.obsm[key])[:, :2]
    size = min(12.0, 12_000 / len(points))
    name = key.removeprefix("X_").upper() if key in ("X_umap", "X_pca", "X_tsne") else key.removeprefix("X_")
    for axis, values, limit, label in zip(axes, activation.T, limits, labels, strict=True):
        order = np.argsort(np.abs(values))
        x, y = points[order].T
        colours, norm = values[order], Normalize(-limit, limit)
        drawn = axis.scatter(x, y, s=size, c=colours, norm=norm, cmap=DIVERGING, linewidths=0, rasterized=True)
        axis.set_title(fill(label, 28), fontsize=10)
        unticked(axis, f"{name}1", f"{name}2")
        colour_bar(drawn, axis, shrink=0.7, aspect=12)
    return finish(axes, "token_embedding", show, save)
