"""Curves of losses, dose responses and power, ranked experiments, and membership inference attacks."""

import math
from collections.abc import Mapping, Sequence
from typing import Literal

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from matplotlib.axes import Axes

from scdiffgen._arguments import check_choice, check_whole_number
from scdiffgen._names import as_names
from scdiffgen._shared_docs import shared_docs
from scdiffgen.pl._figure import BLUE, GREY, ORANGE, VERMILION, Ax, Names, Save, Show, finish, panels, plain, shortened

MOST_GENES = 12  # number of panels unless genes are named
OFFSETS = (-0.25, 0.0, 0.25)  # of the attacks within a row


@shared_docs
def training_history(
    history: Mapping[str, pd.DataFrame], *, ax: Ax = None, show: Show = None, save: Save = None
) -> Axes:
    """Draw training and validation loss over the epochs; a point marks the lowest validation loss.

    The model generates with its last weights, unless training restored the weights of the lowest validation loss.

    Parameters
    ----------
    history
        ``model.history`` of a trained model.

    Raises
    ------
    TypeError
        If ``history`` is not a mapping.
    ValueError
        If ``history`` holds no loss.

    Examples
    --------
    >>> axis = training_history(model.history)
    """
    if not isinstance(history, Mapping):
        raise TypeError(f"`history` is of type {type(history).__name__}: pass `model.history` of a trained model.")
    if "train_loss" not in history:
        raise ValueError(f"`history` holds {list(history)} and no loss: pass `model.history` of a trained model.")
    (axis,) = panels(1, 1, (4.2, 2.8), ax)
    axis.plot(history["train_loss"].iloc[:, 0].dropna(), color="#999999", label="training", linewidth=1.2)
    if "validation_loss" in history:
        validation = history["validation_loss"].iloc[:, 0].astype(float).dropna()
        axis.plot(validation, color=BLUE, marker=".", label="validation", linewidth=1.2)
        axis.plot([validation.idxmin()], [validation.min()], "o", color=BLUE, markersize=7, label="lowest")
    plain(axis, "epoch", "loss (nats per molecule)")
    axis.legend(frameon=False, fontsize=8)
    return finish(axis, "training_history", show, save)


@shared_docs
def dose_response(
    frame: pd.DataFrame,
    genes: Names = None,
    *,
    ncols: int = 4,
    dose_unit: str | None = None,
    ax: Ax = None,
    show: Show = None,
    save: Save = None,
) -> list[Axes]:
    """Draw dose-response curves of mean expression with intervals, one panel per gene.

    The dose axis is logarithmic, with a linear part on the left from dose 0 to the smallest positive dose. Dose 0 is a
    grey point, and a dotted line extends its mean across the panel. Extrapolated doses have a dashed line.

    Parameters
    ----------
    frame
        One row per dose and gene, with the columns ``dose``, ``gene``, ``mean``, ``low``, ``high`` and optionally
        ``extrapolated``, as returned by :meth:`scdiffgen.model.TokenDiffusion.dose_response`.
    genes
        Gene or genes to draw, in this order. ``None`` draws the 12 genes whose mean changes most between two doses, the
        largest change first, or all genes in their order if there are at most 12.
    dose_unit
        Unit of the doses in the axis label; by default ``frame.attrs["dose_unit"]``, the registered unit.

    Returns
    -------
    The axes, one per gene, in units of dose.

    Raises
    ------
    ValueError
        If a column or gene is missing, a dose is negative or occurs twice, ``ncols`` is below 1, or ``ax`` is given for
        several genes.

    Examples
    --------
    >>> import pandas as pd
    >>> curve = pd.DataFrame({"dose": [0, 1, 10], "gene": "IFIT1", "mean": [0.1, 0.9, 2.0]})
    >>> (axis,) = dose_response(curve.assign(low=curve["mean"] - 0.1, high=curve["mean"] + 0.1))
    """
    chosen = _checked(frame, genes)
    axes = panels(len(chosen), ncols, (3.0, 2.4), ax)
    for axis, gene in zip(axes, chosen, strict=True):
        _draw(axis, frame[frame["gene"] == gene].sort_values("dose"))
        axis.set_title(gene)
    if axes[0].get_legend_handles_labels()[0]:
        axes[0].legend(fontsize=8, handlelength=3)
    unit = frame.attrs.get("dose_unit") if dose_unit is None else dose_unit
    for axis in axes[::ncols]:
        axis.set_ylabel("mean log expression")
    for axis in axes[-ncols:]:
        axis.set_xlabel(f"dose ({unit})" if unit else "dose")
    return finish(axes, "dose_response", show, save)


def _checked(frame: pd.DataFrame, genes: Sequence[str] | None) -> list[str]:
    """Return the genes to draw; raise if the table cannot be drawn."""
    absent = [name for name in ("dose", "gene", "mean", "low", "high") if name not in frame]
    if absent:
        raise ValueError(f"`frame` lacks the columns {absent}: pass what `TokenDiffusion.dose_response` returns.")
    known = list(frame["gene"].unique())
    chosen = known if genes is None else as_names(genes)
    if genes is None and len(known) > MOST_GENES:
        means = frame.groupby("gene", observed=True, sort=False)["mean"]
        chosen = (means.max() - means.min()).nlargest(MOST_GENES).index.tolist()
    unknown = [gene for gene in chosen if gene not in known]
    if unknown or not chosen:
        raise ValueError(f"`genes` is {unknown or chosen}: choose from the genes of `frame`, {known[:5]} and so on.")
    if (frame["dose"] < 0).any():
        raise ValueError(f"`frame` holds the dose {frame['dose'].min():g}: pass doses of at least 0.")
    for row in frame[frame["gene"].isin(chosen) & frame.duplicated(["gene", "dose"])].itertuples():
        raise ValueError(f"`frame` holds gene {row.gene!r} at dose {row.dose:g} twice: pass the rows of one group.")
    return chosen


def _draw(axis: Axes, curve: pd.DataFrame) -> None:
    """Draw one gene: untreated cells as a point, positive doses as a curve with a band, dashed where extrapolated."""
    untreated, treated = curve[curve["dose"] == 0], curve[curve["dose"] > 0]
    axis.fill_between(treated["dose"], treated["low"], treated["high"], color=BLUE, alpha=0.25, linewidth=0)
    beyond = treated.get("extrapolated", pd.Series(False, treated.index)).astype(bool)
    axis.plot(treated["dose"][~beyond], treated["mean"][~beyond], "o-", color=BLUE, markersize=4)
    if beyond.any():
        dashed = pd.concat([treated[~beyond].tail(1), treated[beyond]])
        axis.plot(dashed["dose"], dashed["mean"], "o--", color=BLUE, markersize=4, label="beyond measured doses")
    for row in untreated.itertuples():
        axis.axhline(row.mean, color=GREY, linewidth=1, linestyle=":")
        axis.vlines(0, row.low, row.high, color=GREY, linewidth=1.5)
        axis.plot([0], [row.mean], color=GREY, marker="o", markersize=4)
    if len(treated):
        _scale(axis, treated["dose"].to_numpy(), with_zero=len(untreated) > 0)
    axis.spines[["top", "right"]].set_visible(False)


def _scale(axis: Axes, doses: np.ndarray, *, with_zero: bool) -> None:
    """Set a logarithmic dose axis with ticks at powers of ten, and at 0 if drawn."""
    lowest, highest = doses.min(), doses.max()
    margin = (highest / lowest) ** 0.05 * 1.1
    exponents = np.arange(math.floor(math.log10(lowest)), math.ceil(math.log10(highest)) + 1)
    ticks = 10.0 ** exponents[:: math.ceil(len(exponents) / 6)]
    ticks = ticks[(ticks >= lowest / margin) & (ticks <= highest * margin)]
    if len(ticks) < 2:
        ticks = doses
    if with_zero:
        decades = max(math.log10(highest / lowest), 1.0)
        axis.set_xscale("symlog", linthresh=lowest, linscale=0.25 * decades)  # a fifth of the axis is linear
        axis.set_xlim(-0.2 * lowest, highest * margin)
        ticks = np.append(0.0, ticks)
    else:
        axis.set_xscale("log")
        axis.set_xlim(lowest / margin, highest * margin)
    axis.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
    axis.set_xticks([], minor=True)


@shared_docs
def power_curves(
    table: pd.DataFrame,
    x: Literal["n_donors", "n_cells"] = "n_donors",
    *,
    stratum: str = "all",
    ncols: int = 3,
    ax: Ax = None,
    show: Show = None,
    save: Save = None,
) -> list[Axes]:
    """Draw power against donors or cells, one line per fold change (decreases dashed) with its interval.

    Parameters
    ----------
    table
        Result of :func:`scdiffgen.tl.power_analysis`.
    x
        Column on the axis; each value of the other column has a panel. The dotted line is a power of 0.8.
    stratum
        Stratum of expression: ``"all"``, ``"low"``, ``"middle"`` or ``"high"``.

    Raises
    ------
    ValueError
        If ``x`` or ``stratum`` is unknown, or ``ax`` is given for several panels.

    Examples
    --------
    >>> from scdiffgen import tl
    >>> table = tl.power_analysis(model, [1.0], n_donors=[2, 3], n_cells=[9], n_replicates=1, experiment={"n_steps": 4})
    >>> axes = power_curves(table)
    """
    check_choice("x", x, ("n_donors", "n_cells"))
    check_choice("stratum", stratum, table["stratum"].unique().tolist())
    other, names = {"n_donors": ("n_cells", "cells"), "n_cells": ("n_donors", "donors")}[x]
    by_panel = list(table[table["stratum"] == stratum].groupby(other))
    axes = panels(len(by_panel), ncols, (3.2, 2.6), ax)
    colours, sizes = plt.get_cmap("viridis"), pd.Index(np.unique(table["effect"].abs()))
    for axis, (number, rows) in zip(axes, by_panel, strict=True):
        for effect, line in rows.sort_values(x).groupby("effect"):
            colour, style = colours(sizes.get_loc(abs(effect)) / len(sizes)), "o-" if effect > 0 else "o--"
            axis.plot(line[x], line["power"], style, color=colour, markersize=3, label=f"{2**effect:.2g}-fold")
            axis.fill_between(line[x], line["low"], line["high"], color=colour, alpha=0.2, linewidth=0)
        axis.axhline(0.8, color=GREY, linestyle=":", linewidth=1)
        axis.set(ylim=(-0.02, 1.02), xticks=sorted(rows[x].unique()))
        axis.set_title(f"{number} {names} per {'donor' if x == 'n_donors' else 'arm'}", fontsize=9)
        plain(axis, {"n_donors": "donors per arm", "n_cells": "cells per donor"}[x], "power")
    axes[-1].legend(frameon=False, fontsize=8, loc="upper left", bbox_to_anchor=(1, 1))
    return finish(axes, "power_curves", show, save)


@shared_docs
def ranked_experiments(
    table: pd.DataFrame, n_experiments: int = 20, *, ax: Ax = None, show: Show = None, save: Save = None
) -> Axes:
    """Draw the expected error that each experiment removes, the best experiment first, beside the cumulative cost.

    Parameters
    ----------
    table
        Result of :func:`scdiffgen.tl.rank_experiments`.
    n_experiments
        Largest number of experiments to draw.

    Examples
    --------
    >>> import pandas as pd
    >>> table = pd.DataFrame({"perturbation": ["A", "B"], "n_cells": 100, "cost": [1.0, 2.0], "gain": [0.6, 0.3]})
    >>> axis = ranked_experiments(table.assign(error_left=[0.4, 0.1]))
    """
    check_whole_number("n_experiments", n_experiments)
    rows = table.head(n_experiments)
    (axis,) = panels(1, 1, (5.0, 0.9 + 0.22 * len(rows)), ax)
    axis.barh(range(len(rows)), rows["gain"], left=rows["error_left"], color=BLUE, height=0.7)
    names = rows.loc[:, :"n_cells"].drop(columns="n_cells").astype(str).agg(", ".join, axis=1)
    for position, (left, cost) in enumerate(zip(rows["error_left"], rows["cost"].cumsum(), strict=True)):
        axis.text(left - 0.01, position, f"{cost:,.6g}", ha="right", va="center", fontsize=7, color=GREY)
    axis.set(xlim=(-0.15, 1.02), ylim=(len(rows) - 0.5, -0.5), xticks=np.linspace(0, 1, 6))
    plain(axis, "expected error, relative to now (numbers: cumulative cost)", "")
    axis.set_yticks(range(len(rows)), names.map(shortened), fontsize=8)
    return finish(axis, "ranked_experiments", show, save)


@shared_docs
def membership_inference(
    attacks: pd.DataFrame | Mapping[str, pd.DataFrame],
    level: Literal["cell", "donor"] = "cell",
    *,
    ax: Ax = None,
    show: Show = None,
    save: Save = None,
) -> Axes:
    """Draw the success of membership inference attacks on training cells: AUC with 95 % intervals.

    Grey intervals are controls, with real cells in place of generated ones. An interval above 0.5 (dotted), beside a
    control at 0.5, shows that the generated cells disclose training cells.

    Parameters
    ----------
    attacks
        Result of :func:`scdiffgen.metrics.membership_inference`, or several results by name, one a row.
    level
        Whether single cells or whole donors are attacked.

    Raises
    ------
    ValueError
        If a table lacks the level.

    Examples
    --------
    >>> from scdiffgen.metrics import membership_inference as attack
    >>> axis = membership_inference(attack(adata[:300], adata[300:], adata[:300], layer="counts"))
    """
    tables = dict(attacks) if isinstance(attacks, Mapping) else {"generated cells": attacks}
    for table in tables.values():
        check_choice("level", level, table.index.unique("level").tolist())
    (axis,) = panels(1, 1, (4.6, 0.9 + 0.6 * len(tables)), ax)
    for position, table in enumerate(tables.values()):
        rows = table.loc[level]
        for offset, colour, (attack, row) in zip(OFFSETS, (BLUE, ORANGE, VERMILION), rows.iterrows(), strict=True):
            for name, shade, below in (("auc", colour, 0.0), ("control", "0.75", 0.08)):
                y = position + offset + below
                axis.hlines(y, row[f"{name}_low"], row[f"{name}_high"], color=shade, linewidth=1.5)
                label = None if position else attack if name == "auc" else "control" if offset > 0 else None
                axis.plot(row[name], y, "o", color=shade, markersize=4, label=label)
    axis.axvline(0.5, color=GREY, linestyle=":", linewidth=1)
    axis.set(xlim=(min(0.4, axis.get_xlim()[0]), 1.02), ylim=(len(tables) - 0.5, -0.5))
    plain(axis, f"AUC of attacks on {level}s", "")
    axis.set_yticks(range(len(tables)), [*tables], fontsize=8)
    axis.legend(frameon=False, fontsize=8, loc="upper left", bbox_to_anchor=(1, 1))
    return finish(axis, "membership_inference", show, save)
