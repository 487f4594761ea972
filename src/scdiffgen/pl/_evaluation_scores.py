"""Scores of generated cells, group by group."""

from __future__ import annotations

import numpy as np
import pandas as pd
from matplotlib import colormaps
from matplotlib.axes import Axes

from scdiffgen.metrics import relative_scores
from scdiffgen.pl._figure import Save, figure_of, finish, panels

CELL_INCHES = (0.5, 0.24)
LETTER_INCHES = 0.07
PALETTE, NO_PLACE = "Oranges", "#E8E8E8"
DARK = 0.75  # value of the palette from which numbers are white


def evaluation_scores(
    scores: pd.DataFrame,
    *,
    ax: Axes | None = None,
    show: bool | None = None,
    save: Save = None,
) -> Axes:
    """Draw the scores of generated cells as a heat map of groups (rows) and metrics (columns).

    The number is the score, the colour where it stands between other real cells and the worse null: light is as good as
    real cells, dark as bad as cells without a model; see :func:`scdiffgen.metrics.relative_scores`. Grey scores have no
    such place: the metric does not tell the null from real cells, often for want of cells. Arrows say where a metric is
    best, brackets how many cells were compared.

    Parameters
    ----------
    scores
        From :func:`scdiffgen.metrics.evaluate`.
    ax
        Where to draw.
    show
        Whether to show the figure; by default ``scanpy.settings.autoshow``.
    save
        ``True`` or text saves to ``scanpy.settings.figdir`` as scanpy does; a :class:`~pathlib.Path` to that file.

    Returns
    -------
    The axes.

    Raises
    ------
    ValueError
        If these are not the scores of `evaluate`, with the limit, a null and intervals.

    Examples
    --------
    >>> from scdiffgen.metrics import evaluate
    >>> scores = evaluate(adata[::2], adata[1::2], layer="counts", metrics=["mmd", "gene_correlation"])
    >>> axis = evaluation_scores(scores)
    >>> [label.get_text() for label in axis.get_xticklabels()]
    ['mmd ↓', 'gene_correlation ↓']
    """
    relative = relative_scores(scores)
    values = scores.xs("generated", level="source")[list(relative)]
    (axis,) = panels(1, 1, heatmap_inches(scores), ax)
    palette = colormaps[PALETTE].with_extremes(bad=NO_PLACE)
    image = axis.imshow(relative, cmap=palette, vmin=0, vmax=1, aspect="auto", interpolation="nearest")
    for row, column in np.ndindex(values.shape):
        shade = relative.iloc[row, column]
        colour = "white" if shade > DARK else "black"
        axis.text(column, row, _written(values.iloc[row, column]), color=colour, fontsize=6.5, ha="center", va="center")
    axis.set_xticks(range(len(values.columns)), _metric_labels(scores), rotation=90, fontsize=8)
    axis.set_yticks(range(len(values)), _group_labels(scores), fontsize=8)
    axis.set_title("scores of generated cells", fontsize=10)
    axis.tick_params(length=0)
    axis.spines[:].set_visible(False)
    bar = figure_of([axis]).colorbar(image, ax=axis, extend="max", aspect=12, shrink=min(1.0, 8 / len(values)))
    bar.set_ticks([0, 1], labels=["as other\nreal cells", "as the\nnull"])
    bar.ax.tick_params(labelsize=7)
    finish([axis], "evaluation_scores", show, save)
    return axis


def heatmap_inches(scores: pd.DataFrame) -> tuple[float, float]:
    """Size of the heat map with its labels."""
    groups, metrics = _group_labels(scores), _metric_labels(scores)
    width = 1.2 + CELL_INCHES[0] * len(metrics) + LETTER_INCHES * max(map(len, groups))
    height = 0.8 + CELL_INCHES[1] * len(groups) + LETTER_INCHES * max(map(len, metrics))
    return width, height


def _group_labels(scores: pd.DataFrame) -> list[str]:
    """Groups with the cells that were compared."""
    return [f"{group} ({n:.0f})" for group, n in scores["n"].xs("generated", level="source").items()]


def _metric_labels(scores: pd.DataFrame) -> list[str]:
    """Metrics with where they are best."""
    arrows = {"lower": "↓", "higher": "↑"}
    labels = []
    for name, ideal in scores.attrs["ideal"].items():
        best = "real" if isinstance(ideal, str) else f"{ideal:g}"
        labels.append(f"{name} {arrows.get(scores.attrs['direction'][name], f'→ {best}')}")
    return labels


def _written(value: float) -> str:
    """Three digits at most, without a leading zero; a dash if the score is missing."""
    if np.isnan(value):
        return "–"
    size = abs(value)
    text = f"{value:.3f}" if size < 0.1 else f"{value:.2f}" if size < 10 else f"{value:.3g}"
    return text.replace("0.", ".", 1) if size < 1 else text
