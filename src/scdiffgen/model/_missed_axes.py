"""Axes and gene programs along which generated cells vary otherwise than real ones, in words."""

from __future__ import annotations

import numpy as np
import pandas as pd

FEW_CELLS = 50  # of a group, on each side
SHARE = 0.01  # of the variance on all components
CLEAR = 1.25  # as many times more or less than other real cells
MOST_REMARKS = 5
FEW_SCORED, CLEAR_CORRELATION = 20, 0.2  # cells of a group, and how much further off than other real cells
POOLED = ("overall", "within")


def missed_axes(dispersion: pd.DataFrame) -> list[str]:
    """Say along which axes generated cells vary otherwise than other real cells, once each, worst first."""
    table = dispersion.reset_index()
    off = np.log(table["ratio"] / table["other_real"])
    matters = table["share"] >= SHARE * table.groupby("group")["share"].transform("sum")
    clear = table["apart"] & matters & (table["n"] >= FEW_CELLS) & (off.abs() > np.log(CLEAR))
    worst = table[clear].loc[off.abs()[clear].sort_values(ascending=False, kind="stable").index]
    found = []
    for row in worst.drop_duplicates("component").head(MOST_REMARKS).itertuples():
        who, where = _subject(row.group)
        found.append(
            f"{who} vary {row.ratio:.2f} times as much as real ones{where} along an axis of {row.genes} (other real "
            f"cells {row.other_real:.2f})."
        )
    return found


def missed_programs(programs: pd.DataFrame) -> list[str]:
    """Say which programs vary, or correlate, otherwise than in real cells, the worst first."""
    table = programs.reset_index()
    of_spread = (table["statistic"] == "spread").to_numpy()
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = np.log(table["off"] / table["other_off"]).abs() / np.log(CLEAR)
    by = np.where(of_spread, ratio, (table["off"] - table["other_off"]).abs() / CLEAR_CORRELATION)
    matters = table["apart"] & (table["n"] >= FEW_SCORED) & (by > 1)
    clear = table.assign(by=by)[matters].sort_values("by", ascending=False)
    in_labels, found = clear[~clear["group"].isin(POOLED)], []
    named = set(zip(in_labels["statistic"], in_labels["program"], strict=True))
    for row in clear.itertuples():
        who, where = _subject(row.group)
        if row.group in POOLED:
            if (row.statistic, row.program) in named:
                continue
            named.add((row.statistic, row.program))
        found.append(
            f"{who} vary {row.off:.2f} times as much as real ones{where} in program {row.program} (other real cells "
            f"{row.other_off:.2f}, genes shuffled {row.null_shuffled / row.real:.2f})."
            if row.statistic == "spread"
            else f"In {who[0].lower()}{who[1:]}{where}, the programs {row.program} correlate at {row.generated:.2f}, "
            f"in real ones at {row.real:.2f} (other real cells {row.other_real:.2f}, genes shuffled "
            f"{row.null_shuffled:.2f})."
        )
    return found[:MOST_REMARKS]


def _subject(group: str) -> tuple[str, str]:
    """Which cells a group is of, and where."""
    who = "Generated cells" if group in POOLED else f"Generated {group} cells"
    return who, " within labels" if group == POOLED[1] else ""
