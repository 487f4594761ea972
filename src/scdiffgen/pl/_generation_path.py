"""A cell from empty to full."""

from __future__ import annotations

from collections.abc import Mapping
from textwrap import fill, wrap

import numpy as np
from anndata import AnnData
from matplotlib.axes import Axes
from scanpy.plotting.palettes import default_20, default_102

from scdiffgen._names import check_column
from scdiffgen._shared_docs import shared_docs
from scdiffgen._stored_tokens import annotation_column
from scdiffgen.pl._figure import Ax, Save, Show, colour_bar, finish, panels, unticked
from scdiffgen.pl._group_colours import LABEL_LETTERS
from scdiffgen.tl import path_coordinates

LETTER_INCHES = 0.065


@shared_docs
def generation_path(
    path: AnnData,
    adata: AnnData,
    layer: str | None = None,
    *,
    groupby: str | None = None,
    ax: Ax = None,
    show: Show = None,
    save: Save = None,
) -> Axes:
    """Draw generated cells from empty to full, among measured ones, in the first two principal components.

    A state stands where the full cell is that the model expects from it; see :func:`scdiffgen.tl.path_coordinates`.

    Parameters
    ----------
    {path}
    adata
        Measured cells.
    layer
        Layer of their counts; by default ``adata.X``.
    groupby
        Column of ``adata.obs`` whose groups colour the measured cells, in scanpy's colours.
    {drawn}

    Returns
    -------
    The axes.

    Examples
    --------
    >>> path = model.get_generation_path({"cell_type": "Dendritic"}, n_steps=4, seed=0)
    >>> axis = generation_path(path, adata, layer="counts", groupby="cell_type")
    """
    if groupby is not None:
        check_column(groupby)
    places = path_coordinates(path, adata, layer)
    groups = np.full(adata.n_obs, "") if groupby is None else annotation_column(adata, groupby).astype(str).to_numpy()
    colours = {"": "#BBBBBB"} if groupby is None else _colours(adata, groupby)
    lines = [len(line) for name in colours for line in wrap(name, LABEL_LETTERS)]
    (axis,) = panels(1, 1, (4.2 + LETTER_INCHES * max(lines, default=0), 4.0), ax)
    _draw_cells(axis, places.cells, groups, colours)
    for cell in path.obs["cell"].unique():
        states = (path.obs["cell"] == cell).to_numpy()
        axis.plot(places.path[states, 0], places.path[states, 1], color="black", linewidth=0.8, zorder=2)
    shares = 100 * path.obs["level"].to_numpy()
    drawn = axis.scatter(places.path[:, 0], places.path[:, 1], c=shares, cmap="viridis", s=18, zorder=3, linewidths=0)
    colour_bar(drawn, axis, "molecules there (%)", location="bottom", shrink=0.6, aspect=25, labelsize=8)
    unticked(axis, *(f"PC{i + 1} ({places.explained[i]:.0%} of variance)" for i in range(2)))
    return finish(axis, "generation_path", show, save)


def _colours(adata: AnnData, groupby: str) -> dict[str, str]:
    """Colours of the groups that there are: those that scanpy has given them, or would give them."""
    column = adata.obs[groupby].astype("category").cat
    palette = adata.uns.get(f"{groupby}_colors", ())
    if len(palette) < len(column.categories):
        palette = default_20 if len(column.categories) <= len(default_20) else default_102
    present = set(column.codes)
    named = enumerate(map(str, column.categories))
    return {name: palette[code % len(palette)] for code, name in named if code in present}


def _draw_cells(axis: Axes, places: np.ndarray, groups: np.ndarray, colours: Mapping[str, str]) -> None:
    """Measured cells in pale colours by group, with a legend beside the axes if there are several."""
    size = min(12.0, 12_000 / len(places))
    for name, colour in colours.items():
        x, y = places[groups == name].T
        label = fill(name, LABEL_LETTERS)
        axis.scatter(x, y, s=size, color=colour, alpha=0.35, linewidths=0, label=label, rasterized=True)
    if len(colours) > 1:
        legend = axis.legend(frameon=False, fontsize=7, loc="center left", bbox_to_anchor=(1, 0.5), markerscale=2)
        for handle in legend.legend_handles:
            if handle is not None:
                handle.set_alpha(1)
