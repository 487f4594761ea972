"""Figure of the page of physical truths: unseen molecules by set, and deepened wells by protocol."""

from collections.abc import Mapping
from typing import Any

import matplotlib.pyplot as plt
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from benchmarks._figures import COLOURS, LIMIT, TEXT, legend, tidy
from benchmarks._physics_tables import KINDS, by_method

REFERENCE = "mean of the label"
SPACES = {"auc_pcs": "o", "auc_genes": "D"}  # markers
BARS = {"ours": "ours", "other": "other", "simple": "null", "null": "copies"}  # kinds of methods and their colours


def physics_figure(molecules: Mapping[str, Any], depth: Mapping[str, Any]) -> Figure:
    """Nats per unseen molecule against those of label means (a point a set), and AUCs of deepened wells."""
    figure, axes = plt.subplots(1, 2, figsize=(11, 3.8), layout="constrained")
    nats = by_method(molecules, "nats").groupby("data", sort=False).median()
    gain = nats.sub(nats.get(REFERENCE, pd.Series(index=nats.index, dtype=float)), axis=0)
    gain = gain.drop(columns=[REFERENCE, "mean of all cells"], errors="ignore")
    draw_points(axes[0], gain, "o")
    axes[0].axvline(0, color=COLOURS["null"], linewidth=1.5)
    axes[0].margins(x=0.08)
    axes[0].set_xscale("symlog", linthresh=0.1)
    axes[0].set_xticks((ticks := (-0.1, -0.05, 0, 0.05, 0.1, 0.2, 0.5)), [f"{tick:g}" for tick in ticks])
    axes[0].set_xlabel(f"nats per unseen molecule, minus {REFERENCE} (a point a set)", fontsize=8.5, color=TEXT)
    tidy(axes[0], "unseen molecules", "both")
    thinned = pd.DataFrame(depth["rows"]).query("question == 'thinned'")
    for score, marker in SPACES.items():
        draw_points(axes[1], thinned.pivot_table(score, "data", "method", sort=False), marker)
    axes[1].axvline(0.5, color=LIMIT, linewidth=1.5)
    axes[1].set_xlabel("forest AUC on components (circles) and on genes (diamonds)", fontsize=8.5, color=TEXT)
    tidy(axes[1], "thinned wells, deepened", "both")
    names = {"ours": "scdiffgen", "other": "other programs", "null": "simple methods", "copies": "negative control"}
    legend(figure, "wells that cannot be distinguished", names, "o", 5)
    return figure


def draw_points(axis: Axes, table: pd.DataFrame, marker: str) -> None:
    """Draw a row a method, the first above, with a point a set of data and a tick at the median."""
    for place, (name, values) in enumerate(reversed(list(table.items()))):
        colour = COLOURS.get(BARS.get(KINDS.get(name, "ours"), ""), LIMIT)
        axis.plot(values, [place] * len(values), marker, color=colour, markersize=5, alpha=0.6, markeredgewidth=0)
        axis.plot(values.median(), place, marker, color=colour, markersize=8)
    axis.set_yticks(range(table.shape[1]), list(table)[::-1])
