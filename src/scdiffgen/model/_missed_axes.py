"""Axes along which generated cells vary otherwise than real ones, in words."""

from __future__ import annotations

import numpy as np
import pandas as pd

FEW_CELLS = 50  # of a group, on each side
SHARE = 0.01  # of the variance on all components
CLEAR = 1.25  # as many times more or less than other real cells
MOST_REMARKS = 5


def missed_axes(dispersion: pd.DataFrame) -> list[str]:
    """Say along which axes the interval of the generated cells excludes that of other real cells, the worst first.

    An axis is named once, for the group where it is worst.
    """
    table = dispersion.reset_index()
    off = np.log(table["ratio"] / table["other_real"])
    matters = table["share"] >= SHARE * table.groupby("group")["share"].transform("sum")
    clear = table["apart"] & matters & (table["n"] >= FEW_CELLS) & (off.abs() > np.log(CLEAR))
    worst = table[clear].loc[off.abs()[clear].sort_values(ascending=False, kind="stable").index]
    found = []
    for row in worst.drop_duplicates("component").head(MOST_REMARKS).itertuples():
        who = "Generated cells" if row.group in ("overall", "within") else f"Generated {row.group} cells"
        where = " within labels" if row.group == "within" else ""
        found.append(
            f"{who} vary {row.ratio:.2f} times as much as real ones{where} along an axis of {row.genes} (other real "
            f"cells {row.other_real:.2f})."
        )
    return found
