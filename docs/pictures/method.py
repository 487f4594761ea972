"""Draw the method: ``python docs/pictures/method.py`` writes ``docs/_static/method.png``."""

from __future__ import annotations

from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import FancyArrowPatch

COUNTS = np.array([9, 1, 4, 0, 7, 2, 0, 5, 3, 1])
KEPT = np.array([3, 0, 1, 0, 3, 1, 0, 1, 1, 0])
RATES = np.array([8.2, 1.6, 4.3, 0.7, 6.4, 1.8, 0.5, 4.6, 2.6, 1.2])
KEPT_COLOUR, NEW_COLOUR, TOKEN_COLOURS = "#4c72b0", "#dd8452", ("#55a868", "#8172b3", "#c44e52", "#937860")
GENES = np.arange(len(COUNTS))


def main() -> None:
    figure = plt.figure(figsize=(9, 3.4), dpi=160)
    _bars(figure, 0.02, "measured cell", KEPT, COUNTS - KEPT)
    _bars(figure, 0.27, "thinned cell", KEPT, np.zeros_like(COUNTS))
    _tokens(figure.add_axes((0.52, 0.36, 0.18, 0.4)))
    _bars(figure, 0.80, "rates of missing molecules", RATES, np.zeros_like(RATES), NEW_COLOUR)
    for start, end, words in (
        (0.2, 0.27, "remove\nmolecules\nat random"),
        (0.45, 0.52, "network"),
        (0.71, 0.8, "scores\nadd up"),
    ):
        _arrow(figure, (start, 0.56), (end, 0.56))
        figure.text((start + end) / 2, 0.6, words, ha="center", va="bottom", fontsize=7)
    figure.text(0.61, 0.21, "conditions: cell type, batch,\nperturbation, dose", ha="center", va="top", fontsize=8)
    _arrow(figure, (0.61, 0.22), (0.61, 0.33))
    figure.text(0.5, 0.95, "Training: predict the molecules that are missing", ha="center", va="top", fontsize=10)
    _arrow(figure, (0.89, 0.28), (0.36, 0.28), color=NEW_COLOUR, connectionstyle="arc3,rad=-0.27")
    words = "Generation: start from no molecules, draw some by the rates, add them, repeat"
    figure.text(0.5, 0.02, words, ha="center", fontsize=10, color=NEW_COLOUR)
    figure.savefig(Path(__file__).parents[1] / "_static/method.png")


def _bars(
    figure: Figure, left: float, title: str, kept: np.ndarray, rest: np.ndarray, colour: str = KEPT_COLOUR
) -> None:
    axes = figure.add_axes((left, 0.36, 0.18, 0.4))
    axes.bar(GENES, kept, color=colour)
    axes.bar(GENES, rest, bottom=kept, color="#d5d5d5")
    axes.set(title=title, ylim=(0, 10), xticks=[], yticks=[])
    axes.set_xlabel("genes", fontsize=8)
    axes.title.set_fontsize(9)
    axes.spines[["top", "right"]].set_visible(False)


def _tokens(axes: Axes) -> None:
    axes.set_title("tokens", fontsize=9)
    for row, colour in enumerate(TOKEN_COLOURS):
        for column, alpha in enumerate(np.random.default_rng(row).uniform(0.25, 1, 5)):
            axes.add_patch(plt.Rectangle((column, row), 0.86, 0.7, color=colour, alpha=alpha))
    axes.set(xlim=(0, 5), ylim=(0, len(TOKEN_COLOURS)))
    axes.axis("off")


def _arrow(figure: Figure, start: tuple[float, float], end: tuple[float, float], **style: str) -> None:
    shape = {"arrowstyle": "->", "mutation_scale": 12, "transform": figure.transFigure}
    figure.add_artist(FancyArrowPatch(start, end, **shape, **style))


if __name__ == "__main__":
    main()
