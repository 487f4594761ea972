"""Shared parts of figures: panels, axes, colours, groups of cells, and showing and saving as in scanpy."""

import math
from collections.abc import Sequence
from pathlib import Path
from textwrap import fill
from typing import Any, TypeVar, cast

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.colorbar import Colorbar
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure, FigureBase
from matplotlib.lines import Line2D
from matplotlib.patheffects import withStroke
from numpy.typing import NDArray

Ax = Axes | None  # types of `ax`, `show` and `save` of all figures
Show = bool | None
Save = str | Path | bool | None
Names = Sequence[str] | None  # tokens or genes
Drawn = TypeVar("Drawn", Axes, list[Axes])
BLUE, ORANGE, VERMILION, GREEN = "#0072B2", "#E69F00", "#D55E00", "#009E73"  # Okabe and Ito, colour-blind safe
GREY = "#4D4D4D"
DIVERGING = "RdBu_r"
SLANTED: dict[str, Any] = {"rotation": 45, "ha": "right", "rotation_mode": "anchor", "fontsize": 8}  # names of columns

SOURCES = {"real": BLUE, "generated": ORANGE}
OKABE_ITO = (GREEN, "#CC79A7", "#56B4E9", VERMILION, "#F0E442", "#999999", BLUE, ORANGE)
ROWS = 18  # rows of a legend
Colour = str | tuple[float, float, float]


def panels(n_panels: int, ncols: int, inches: tuple[float, float], ax: Ax = None) -> list[Axes]:
    """Create a figure with axes in a grid; a given ``ax`` is the only panel."""
    if ncols < 1:
        raise ValueError(f"`ncols` is {ncols}: pass at least 1.")
    if ax is not None:
        if n_panels != 1:
            raise ValueError(f"`ax` is one panel, but there are {n_panels} to draw: choose one, or leave out `ax`.")
        return [ax]
    n_columns = min(ncols, n_panels)
    n_rows = math.ceil(n_panels / n_columns)
    size = (inches[0] * n_columns, inches[1] * n_rows)
    figure, grid = plt.subplots(n_rows, n_columns, figsize=size, squeeze=False, layout="constrained")
    axes = list(grid.flat)
    for axis in axes[n_panels:]:
        figure.delaxes(axis)
    return axes[:n_panels]


def figure_of(drawn: Axes | Sequence[Axes]) -> Figure:
    return cast("Figure", (drawn if isinstance(drawn, Axes) else drawn[0]).figure)


def plain(axis: Axes, x: str, y: str) -> None:
    axis.set_xlabel(x, fontsize=9)
    axis.set_ylabel(y, fontsize=9)
    axis.tick_params(labelsize=8)
    axis.spines[["top", "right"]].set_visible(False)


def unticked(axis: Axes, x: str, y: str) -> None:
    axis.set(xticks=[], yticks=[])
    axis.set_xlabel(x, fontsize=8)
    axis.set_ylabel(y, fontsize=8)


def colour_bar(
    image: ScalarMappable,
    ax: Axes | list[Axes],
    label: str = "",
    *,
    shrink: float,
    aspect: float,
    extend: str = "neither",
    location: str | None = None,
    labelsize: int = 7,
) -> Colorbar:
    """Add a small colour bar beside the axes."""
    bar = figure_of(ax).colorbar(image, ax=ax, shrink=shrink, aspect=aspect, extend=extend, location=location)
    bar.set_label(label, fontsize=8)
    bar.ax.tick_params(labelsize=labelsize)
    return bar


def finish(drawn: Drawn, name: str, show: Show, save: Save) -> Drawn:
    """Save and show a figure as scanpy does, and return its axes; ``None`` follows scanpy's settings."""
    import scanpy as sc

    figure = figure_of(drawn).figure  # the whole figure of a subfigure
    save = sc.settings.autosave if save is None else save
    if save:
        path = save if isinstance(save, Path) else _scanpys_path(name, save)
        path.parent.mkdir(parents=True, exist_ok=True)
        figure.savefig(path, dpi=_dpi(), bbox_inches="tight")
        sc.logging.info(f"saved figure to {path}")
    if sc.settings.autoshow if show is None else show:
        plt.show()
    if save:
        plt.close(figure)  # otherwise a notebook shows it again
    return drawn


def _scanpys_path(name: str, save: str | bool) -> Path:
    """Return the path in scanpy's figure folder, with its suffix and format; text is appended to the name."""
    import scanpy as sc

    ending, extension = save if isinstance(save, str) else "", f".{sc.settings.file_format_figs}"
    if ending.endswith((".svg", ".pdf", ".png")):
        ending, extension = ending[:-4], ending[-4:]
    return Path(sc.settings.figdir) / f"{name}{ending}{sc.settings.plot_suffix}{extension}"


def _dpi() -> float:
    """Return the resolution of saved files (``scanpy.set_figure_params(dpi_save=...)``), at least 150."""
    chosen, least = plt.rcParams["savefig.dpi"], 150
    return least if isinstance(chosen, str) else max(least, chosen)


def shortened(name: str) -> str:
    """Shorten a name of more than 30 letters in the middle."""
    return name if len(name) <= 30 else f"{name[:14]}…{name[-14:]}"


def group_colours(n_groups: int) -> list[Colour]:
    """Return group_colours of Okabe and Ito, then darker and lighter shades."""
    plain = np.array([to_rgb(colour) for colour in OKABE_ITO])
    shades = np.concatenate([plain, 0.6 * plain, 1 - 0.45 * (1 - plain)])
    return [tuple(shades[i % len(shades)]) for i in range(n_groups)]


def numbered(names: Sequence[str]) -> bool:
    return len(names) > len(OKABE_ITO)


def dots(shades: Sequence[Colour], labels: Sequence[str]) -> list[Line2D]:
    return [
        Line2D([], [], marker="o", linestyle="", markersize=5, color=colour, label=label)
        for colour, label in zip(shades, labels, strict=True)
    ]


def legend_inches(names: Sequence[str]) -> float:
    return 2.4 * -(-len(names) // ROWS)


def add_legend(figure: FigureBase, names: Sequence[str]) -> None:
    """Add a legend of groups next to a figure, with numbers for numbered groups."""
    labels = [f"{i + 1}  {name}" for i, name in enumerate(names)] if numbered(names) else names
    figure.legend(
        handles=dots(group_colours(len(names)), [fill(label, 32) for label in labels]),
        ncols=-(-len(names) // ROWS),
        frameon=False,
        fontsize=7,
        handletextpad=0.2,
        columnspacing=1.0,
        loc="outside right center",
    )


def number_groups(axis: Axes, points: NDArray[np.float64], groups: NDArray, names: Sequence[str]) -> None:
    for name, (x, y) in pd.DataFrame(points).groupby(groups).median().iterrows():
        text = axis.text(x, y, str(list(names).index(name) + 1), ha="center", va="center", fontsize=7)
        text.set_path_effects([withStroke(linewidth=2, foreground="white")])
