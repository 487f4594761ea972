"""Figures of the comparison of processes and of forms of the network."""

from collections.abc import Iterable, Mapping
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import LogLocator, MaxNLocator, StrMethodFormatter

from benchmarks._figures import COLOURS, LIMIT, PALE, TEXT, tidy
from benchmarks._process_result import at, evaluations_of, methods, real, runs, shown_evaluations

SHOWN = ("mmd_x1000", "wasserstein_by_label", "auc_forest_pcs", "auc_forest_genes")
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
    colours = {method: CONTENDERS[method] for method in methods(result)}
    all_evaluations = sorted({n for method in colours for n in evaluations_of(result, method)})
    for column, key in zip(axes.T, SHOWN, strict=True):
        for method, colour in colours.items():
            for budget, style in (("steps", "-"), ("time", "--")):
                _curve(column, result, method, budget, key, color=colour, linestyle=style)
        for axis, label in zip(column, ("evaluations of the network", "cells drawn a second"), strict=True):
            axis.axhline(np.median(real(result, key)), color=LIMIT, linewidth=1.5)
            axis.set_xscale("log")
            if key == "mmd_x1000":
                axis.set_yscale("symlog", linthresh=1)
            axis.set_xlabel(label, fontsize=8.5, color=TEXT)
            axis.grid(color=PALE, linewidth=0.6)
            axis.set_axisbelow(True)
            axis.minorticks_off()
            tidy(axis, result["metrics"][key]["title"])
        column[0].set_xticks(all_evaluations, [f"{n:,}" for n in all_evaluations])
        column[1].xaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        column[1].xaxis.set_major_formatter(StrMethodFormatter("{x:,.0f}"))
    handles = [Line2D([], [], color=LIMIT, label="other real cells")]
    handles += [Line2D([], [], color=colour, marker="o", markersize=4, label=name) for name, colour in colours.items()]
    handles += [
        Line2D([], [], color=TEXT, linestyle=style, label=f"trained for equal {budget}")
        for budget, style in (("steps", "-"), ("time", "--"))
    ]
    figure.legend(handles=handles, loc="outside lower center", ncols=5, frameon=False, labelcolor=TEXT)
    return figure


def _curve(column: np.ndarray, result: Mapping[str, Any], method: str, budget: str, key: str, **looks: Any) -> None:
    of_runs = runs(result, method, budget)
    rows = [at(of_runs, n) for n in evaluations_of(result, method)]
    drawn = [of_n for of_n in rows if of_n]
    if not drawn:
        return
    scores = [_median(row["scores"][key] for row in of_n) for of_n in drawn]
    rates = [_median(row["cells_per_second"] for row in of_n) for of_n in drawn]
    column[0].plot([of_n[0]["evaluations"] for of_n in drawn], scores, "o", markersize=4, **looks)
    column[1].plot(rates, scores, "o", markersize=4, **looks)


def network_figure(result: Mapping[str, Any]) -> Figure:
    """Likelihood and scores of every form, trained for the same steps, and speed; a line is the default."""
    names = methods(result)[::-1]
    first = names[-1]
    titles = {key: result["metrics"][key]["title"] for key in SHOWN[1:]}
    panels = {"nll": "nats per molecule", **titles, "training": "training, cells/s", "drawing": "drawing, cells/s"}
    figure, axes = plt.subplots(
        1, len(panels), figsize=(14, 0.9 + 0.24 * len(names)), sharey=True, layout="constrained"
    )
    for axis, (key, title) in zip(axes, panels.items(), strict=True):
        values = [_median(_values(result, name, key)) for name in names]
        colours = [COLOURS["ours"] if name == first else COLOURS["null"] for name in names]
        axis.scatter(values, range(len(names)), c=colours, s=36, zorder=3, linewidths=0)
        axis.axvline(values[-1], color=COLOURS["ours"], linewidth=1)
        if key in titles:
            axis.axvline(np.median(real(result, key)), color=LIMIT, linewidth=1.5)
        axis.set_yticks(range(len(names)), names)
        axis.set_ylim(-0.7, len(names) - 0.3)
        axis.xaxis.set_major_locator(MaxNLocator(4))
        axis.grid(axis="y", color=PALE, linewidth=0.5)
        axis.set_axisbelow(True)
        tidy(axis, title)
    for axis, key in zip(axes[-2:], ("training", "drawing"), strict=True):
        axis.set_xlim(0, 1.1 * max(_median(_values(result, name, key)) for name in names))
    handles = [
        Line2D([], [], color=COLOURS["ours"], marker="o", label="the default"),
        Line2D([], [], color=LIMIT, label="other real cells"),
    ]
    figure.legend(handles=handles, loc="outside lower center", ncols=2, frameon=False, labelcolor=TEXT)
    return figure


def _values(result: Mapping[str, Any], method: str, key: str) -> list[float]:
    of_runs = runs(result, method, "steps")
    if key == "nll":
        return [part["nll"] for part in of_runs]
    if key == "training":
        return [part["training"]["cells_per_second"] for part in of_runs]
    drawn = at(of_runs, shown_evaluations(result))
    return [row["cells_per_second"] if key == "drawing" else row["scores"][key] for row in drawn]


def _median(values: Iterable[float | None]) -> float:
    return float(np.median([np.nan if value is None else value for value in values]))
