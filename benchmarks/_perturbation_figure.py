"""Figure of predicted responses: a panel a score, a row a prediction."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from benchmarks._figures import COLOURS, LIMIT, legend, panels, tidy
from benchmarks._perturbation_table import SCORES, kinds_of, primary, summary_of

LEFT_OUT = ("weighted_mse", "de_overlap", "fold_change_spearman")  # the table has them
NAMES = {"ours": "scdiffgen", "other": "other models", "null": "no model"}


def perturbation_figure(result: Mapping[str, Any]) -> Figure:
    """Scores as in the table; a line is what real cells score, the large dot the default of the package."""
    table = summary_of(pd.DataFrame(result["rows"]))
    kinds = kinds_of(result)
    rows = [index for index in table.index if kinds[_prediction(index)] != "limit"][::-1]
    scores = [name for name in table if name not in LEFT_OUT]
    figure, axes = panels(len(scores), 0.19 * len(rows))
    colours = [COLOURS[kinds[_prediction(index)]] for index in rows]
    areas = [90 if _prediction(index) == primary(result) else 28 for index in rows]
    for axis, name in zip(axes, scores, strict=True):
        values = table[name]
        axis.scatter(values.loc[rows], np.arange(len(rows)), c=colours, s=areas, zorder=3, linewidths=0)
        for index in table.index[[kinds[_prediction(index)] == "limit" for index in table.index]]:
            if not isinstance(index, tuple):
                axis.axvline(values[index], color=LIMIT, linewidth=1.5)
                continue
            of_span = [place for place, row in enumerate(rows) if row[0] == index[0]]
            axis.vlines(values[index], min(of_span) - 0.5, max(of_span) + 0.5, color=LIMIT, linewidth=1.5)
        axis.set_yticks(range(len(rows)), [", ".join(row) if isinstance(row, tuple) else row for row in rows])
        axis.set_ylim(-0.7, len(rows) - 0.3)
        tidy(axis, SCORES[name].title, "y")
    shown = {kind: name for kind, name in NAMES.items() if kind in kinds.values()}
    legend(figure, "real cells: the ceiling", shown, "o", len(shown) + 1)
    return figure


def _prediction(index: str | tuple[str, str]) -> str:
    return index[-1] if isinstance(index, tuple) else index
