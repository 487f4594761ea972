"""Real and generated cells in one embedding."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import numpy as np
import pandas as pd
from anndata import AnnData
from matplotlib.axes import Axes

from scdiffgen import metrics
from scdiffgen._shared_docs import shared_docs
from scdiffgen.pl._figure import Ax, Save, Show, figure_of, finish, panels, unticked
from scdiffgen.pl._group_colours import (
    SOURCES,
    Colour,
    dots,
    group_colours,
    legend_inches,
    legend_options,
    number_groups,
    numbered,
)

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

    The first panel shows both in random order. With groups, two more show the real and the generated cells by
    themselves, in the same place, coloured by group; more than eight groups are numbered as well. A picture shows gross
    errors only: see :func:`scdiffgen.metrics.joint_embedding`, which places the cells.

    Parameters
    ----------
    {sides}
    groupby
        Column of ``obs`` of both.
    basis
        ``"umap"`` or ``"pca"``.
    {layer}
    max_cells
        Cells taken of each side, as many of one as of the other.
    seed
        Seed of the draws and of the UMAP.
    {drawn}

    Returns
    -------
    The axes: both sides, and with groups those of the real and of the generated cells.

    Examples
    --------
    >>> axes = evaluation_embedding(adata[::2], adata[1::2], "cell_type", basis="pca", layer="counts")
    >>> [axis.get_title() for axis in axes]
    ['real and generated', 'real', 'generated']
    """
    places = metrics.joint_embedding(real, generated, groupby, basis=basis, layer=layer, max_cells=max_cells, seed=seed)
    names = group_names(places)
    axes = panels(3 if names else 1, 3, INCHES, ax)
    if names:
        figure_of(axes).set_size_inches(3 * INCHES[0] + legend_inches(names), INCHES[1])
        figure_of(axes).legend(**legend_options(names))
    draw_embedding(axes, places, names)
    return finish(axes, f"evaluation_{basis}", show, save)


def group_names(places: pd.DataFrame) -> list[str]:
    """Groups of embedded cells, sorted; none if they have no groups."""
    return sorted(places["group"].unique()) if "group" in places else []


def draw_embedding(axes: Sequence[Axes], places: pd.DataFrame, names: Sequence[str]) -> None:
    """Draw both sides into the first of the axes, and by group into the second and third if there are groups."""
    places = places.sample(frac=1, random_state=0)  # neither side, nor any group, covers the others
    x, y = places.columns[-2:]
    _scatter(axes[0], places, [SOURCES[source] for source in places["source"]])
    axes[0].set_title("real and generated", fontsize=10)
    handles = dots(list(SOURCES.values()), list(SOURCES))
    axes[0].legend(handles=handles, frameon=False, fontsize=8, handletextpad=0.2, loc="best")
    colours = dict(zip(names, group_colours(len(names)), strict=True))
    for axis, source in zip(axes[1:], SOURCES, strict=False):
        shown = places[places["source"] == source]
        _scatter(axis, shown, [colours[group] for group in shown["group"]])
        axis.set_title(source, fontsize=10)
        axis.set(xlim=axes[0].get_xlim(), ylim=axes[0].get_ylim())
        if numbered(names):
            number_groups(axis, shown[[x, y]].to_numpy(), shown["group"].to_numpy(), names)
    shares = [f" ({share:.0%} of variance)" for share in places.attrs.get("explained", [])] or ["", ""]
    for axis in axes:
        unticked(axis, f"{x}{shares[0]}", f"{y}{shares[1]}")
        axis.spines[["top", "right"]].set_visible(False)


def _scatter(axis: Axes, places: pd.DataFrame, colours: Sequence[Colour]) -> None:
    x, y = places.iloc[:, -2:].to_numpy().T
    size = float(np.clip(6000 / max(len(x), 1), 2, 10))
    axis.scatter(x, y, c=colours, s=size, alpha=0.8, linewidths=0, rasterized=True)
