"""Summary of results: scdiffgen beside the best other program and baseline, a negative control and the ceiling."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from benchmarks._figures import COLOURS, LIMIT, legend, tidy
from benchmarks._tables import distances, markdown

HEADER = {
    **{"ours": "scdiffgen", "other": "best other program", "simple": "best simple baseline"},
    **{"null": "negative control", "limit": "ceiling"},
}
ARROWS = {0.0: "↓", 0.5: "→\N{NO-BREAK SPACE}0.5"}  # to the best score, upwards otherwise
NAMES = {  # clearer than those of the tables
    "linear Gaussian copula": "linear copula",
    "real, classes weighted": "real, classes weighted",  # in full, while other names end at their comma
    "totalVI, posterior of real cells": "totalVI given real cells",
    "MULTIVI, posterior of real cells": "MULTIVI given real cells",
    **dict.fromkeys(("nearest_context", "controls + change of the nearest"), "shift of the nearest"),
    **dict.fromkeys(("other_contexts", "controls + mean change of the others"), "mean shift of the others"),
    **dict.fromkeys(("similar_contexts", "controls + mean change of similar ones"), "weighted mean shift"),
    **dict.fromkeys(("train_mean", "controls + mean change of the training cells"), "mean shift"),
    **{"latent_scvi": "scVI arithmetic", "latent_pca": "arithmetic on components", "no_change": "no change"},
}


@dataclass(frozen=True)
class Line:
    """A score of every method, over seeds, and kinds of methods as in `HEADER`; ``best`` is a perfect score."""

    data: str
    score: str
    best: float
    values: Mapping[str, Any]
    kinds: Mapping[str, str]
    form: str = ".3f"

    def leader(self, kind: str) -> tuple[str, float] | None:
        """The method of a kind whose median is nearest to the best score."""
        names = [name for name, of in self.kinds.items() if of == kind and name in self.values]
        medians = {name: float(pd.Series(self.values[name], dtype=float).dropna().median()) for name in names}
        return min((item for item in medians.items() if np.isfinite(item[1])), key=self._away, default=None)

    def cells(self, kinds: Collection[str] = tuple(HEADER)) -> list[str]:
        """Data, score and the leader of each kind by name; the best of all methods is bold."""
        leaders = {kind: self.leader(kind) for kind in kinds}
        best = min((leader for kind, leader in leaders.items() if leader and kind != "limit"), key=self._away)
        cells = [self.data, f"{self.score}\N{NO-BREAK SPACE}{ARROWS.get(self.best, '↑')}"]
        for kind, leader in leaders.items():
            number = format(leader[1], self.form) if leader else "-"
            bold = kind != "limit" and number == format(best[1], self.form)
            name = NAMES.get(leader[0], leader[0].partition(",")[0]) if leader else ""
            name = f" ({NAMES.get(name, name)})" if name and kind not in ("ours", "limit") else ""
            cells.append(f"**{number}**{name}" if bold else number + name)
        return cells

    def place(self, kind: str) -> float:
        """Where a leader stands from the negative control, 0, to the ceiling, 1; NaN without both, or if equal."""
        found = [leader[1] if (leader := self.leader(of)) else np.nan for of in (kind, "null", "limit")]
        return (found[0] - found[1]) / (found[2] - found[1] or np.nan)

    def _away(self, leader: tuple[str, float]) -> float:
        return float(distances([leader[1]], self.best)[0])


def summary_table(lines: Iterable[Line], first: str = "data", kinds: Collection[str] = tuple(HEADER)) -> str:
    """A row a score and a column a kind of methods; the data are named in their first row."""
    rows = [line.cells(kinds) for line in lines]
    pairs = zip([[""], *rows], rows, strict=False)
    shown = [["" if row[0] == before[0] else row[0], *row[1:]] for before, row in pairs]
    return markdown([first, "score", *(HEADER[kind] for kind in kinds)], shown, n_left=2)


def summary_figure(lines: Iterable[Line]) -> Figure:
    """Place of the leaders between the negative control and the ceiling; beyond the axis they are drawn at its end."""
    shown = [line for line in lines if np.isfinite(line.place("ours"))][::-1]
    figure, axis = plt.subplots(figsize=(9, 1 + 0.2 * len(shown)), layout="constrained")
    for kind, colour in (("simple", "null"), ("other", "other"), ("ours", "ours")):
        places = np.clip([line.place(kind) for line in shown], -0.5, 1.2)
        axis.plot(places, np.arange(len(shown)), "o", color=COLOURS[colour], markersize=7, zorder=3)
    axis.axvline(1, color=LIMIT, linewidth=1.5)
    axis.axvline(0, color=COLOURS["null"], linewidth=1.5)
    axis.set_yticks(range(len(shown)), [f"{line.data.partition(' (')[0]}: {line.score}" for line in shown])
    axis.set_xlim(-0.55, 1.25)
    tidy(axis, "0: negative control, 1: ceiling", "y")
    names = {"ours": HEADER["ours"], "other": HEADER["other"], "null": HEADER["simple"]}
    legend(figure, HEADER["limit"], names, "o", len(names) + 1)
    return figure
