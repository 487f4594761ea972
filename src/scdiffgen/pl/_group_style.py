"""Style of real cells, generated cells and groups: colours, numbers and legend."""

from collections.abc import Sequence
from textwrap import fill

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.colors import to_rgb
from matplotlib.figure import FigureBase
from matplotlib.lines import Line2D
from matplotlib.patheffects import withStroke
from numpy.typing import NDArray

from scdiffgen.pl._figure import BLUE, GREEN, ORANGE, VERMILION

SOURCES = {"real": BLUE, "generated": ORANGE}
OKABE_ITO = (GREEN, "#CC79A7", "#56B4E9", VERMILION, "#F0E442", "#999999", BLUE, ORANGE)
LABEL_LETTERS = 32  # letters of a group per line of a legend
ROWS, COLUMN_INCHES = 18, 2.4  # rows and width of a column of a legend

Colour = str | tuple[float, float, float]


def colours(n_groups: int) -> list[Colour]:
    """Return colours of Okabe and Ito, then darker and lighter shades."""
    plain = np.array([to_rgb(colour) for colour in OKABE_ITO])
    shades = np.concatenate([plain, 0.6 * plain, 1 - 0.45 * (1 - plain)])
    return [tuple(shades[i % len(shades)]) for i in range(n_groups)]


def numbered(names: Sequence[str]) -> bool:
    """Test whether groups are too many to distinguish by colour alone."""
    return len(names) > len(OKABE_ITO)


def dots(shades: Sequence[Colour], labels: Sequence[str]) -> list[Line2D]:
    """Create legend entries."""
    return [
        Line2D([], [], marker="o", linestyle="", markersize=5, color=colour, label=label)
        for colour, label in zip(shades, labels, strict=True)
    ]


def legend_inches(names: Sequence[str]) -> float:
    """Compute the width of the legend of groups."""
    return COLUMN_INCHES * -(-len(names) // ROWS)


def add_legend(figure: FigureBase, names: Sequence[str]) -> None:
    """Add a legend of groups next to a figure, with numbers for numbered groups."""
    labels = [f"{i + 1}  {name}" for i, name in enumerate(names)] if numbered(names) else names
    figure.legend(
        handles=dots(colours(len(names)), [fill(label, LABEL_LETTERS) for label in labels]),
        ncols=-(-len(names) // ROWS),
        frameon=False,
        fontsize=7,
        handletextpad=0.2,
        columnspacing=1.0,
        loc="outside right center",
    )


def number(axis: Axes, points: NDArray[np.float64], groups: NDArray, names: Sequence[str]) -> None:
    """Write the number of every group at the median of its points."""
    for name, (x, y) in pd.DataFrame(points).groupby(groups).median().iterrows():
        text = axis.text(x, y, str(list(names).index(name) + 1), ha="center", va="center", fontsize=7)
        text.set_path_effects([withStroke(linewidth=2, foreground="white")])
