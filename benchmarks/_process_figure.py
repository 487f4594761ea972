"""Figure of the comparison of processes."""

from collections.abc import Mapping
from typing import Any

import matplotlib.pyplot as plt
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import LogLocator, StrMethodFormatter

from benchmarks._figures import COLOURS, LIMIT, TEXT, tidy
from benchmarks._process_result import REAL, drawings, of_budget

SHOWN = ("mmd_x1000", "wasserstein_by_label", "auc_forest_pcs", "auc_forest_genes")
BUDGETS = {"steps": "-", "time": "--"}
CONTENDERS = {
    "thinning": COLOURS["ours"],
    "gaussian, x0": "#E69F00",
    "gaussian, v": "#CC79A7",
    "gaussian, eps": "#D55E00",
    "gaussian, flow matching": "#56B4E9",
    "gaussian, DDPM": "#999999",
    "latent": "#000000",
}


def process_figure(result: Mapping[str, Any]) -> Figure:
    """Scores against the number of evaluations (above) and against the speed of drawing (below)."""
    figure, axes = plt.subplots(2, len(SHOWN), figsize=(13, 6), sharey="col", layout="constrained")
    frame = drawings(result)
    contenders = {name: of for name, of in frame.groupby("method", sort=False) if name != REAL}
    all_evaluations = sorted(frame["evaluations"].dropna().unique())
    for column, key in zip(axes.T, SHOWN, strict=True):
        for method, of in contenders.items():
            for budget, style in BUDGETS.items():
                medians = of_budget(of, budget).groupby("evaluations")[[key, "drawing"]].median()
                looks = {"color": CONTENDERS[method], "linestyle": style, "marker": "o", "markersize": 4}
                column[0].plot(medians.index, medians[key], **looks)
                column[1].plot(medians["drawing"], medians[key], **looks)
        for axis, label in zip(column, ("evaluations of the network", "cells drawn a second"), strict=True):
            axis.axhline(frame.loc[frame["method"] == REAL, key].median(), color=LIMIT, linewidth=1.5)
            axis.set_xscale("log")
            if key == "mmd_x1000":
                axis.set_yscale("symlog", linthresh=1)
            axis.set_xlabel(label, fontsize=8.5, color=TEXT)
            axis.minorticks_off()
            tidy(axis, result["metrics"][key]["title"], "both")
        column[0].set_xticks(all_evaluations, [f"{n:,.0f}" for n in all_evaluations])
        column[1].xaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        column[1].xaxis.set_major_formatter(StrMethodFormatter("{x:,.0f}"))
    handles = [Line2D([], [], color=LIMIT, label="other real cells")]
    handles += [Line2D([], [], color=CONTENDERS[name], marker="o", markersize=4, label=name) for name in contenders]
    handles += [
        Line2D([], [], color=TEXT, linestyle=style, label=f"trained for equal {budget}")
        for budget, style in BUDGETS.items()
    ]
    figure.legend(handles=handles, loc="outside lower center", ncols=5, frameon=False, labelcolor=TEXT)
    return figure
