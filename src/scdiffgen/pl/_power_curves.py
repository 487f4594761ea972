"""Power against the size of the experiment."""

from typing import Literal

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from matplotlib.axes import Axes

from scdiffgen._arguments import check_choice
from scdiffgen._shared_docs import shared_docs
from scdiffgen.pl._figure import GREY, Ax, Save, Show, finish, panels, plain


@shared_docs
def power(
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
        Result of :func:`scdiffgen.tl.power`.
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
    >>> table = tl.power(model, [1.0], n_donors=[2, 3], n_cells=[9], n_replicates=1, experiment={"n_steps": 4})
    >>> axes = power(table)
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
    return finish(axes, "power", show, save)
