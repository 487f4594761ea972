"""Results as Markdown tables: median and range over seeds, with marks where scdiffgen is behind."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

AHEAD, AS_REAL = "▲", "≈"
"""Nearer to the best value than scdiffgen; scdiffgen as near to it as real cells. Bold: nothing is nearer."""

Values = Sequence[float | None]  # over seeds


@dataclass(frozen=True)
class Column:
    """A score: its best value, if marks are to be set, or ``"limit"`` for that of real cells; digits or a format."""

    title: str
    ideal: float | Literal["limit"] | None = None
    digits: int | str = 3


def score_table(
    heading: str,
    columns: Mapping[str, Column],
    rows: Mapping[str, Mapping[str, Values]],
    ours: str | None = None,
    rivals: Collection[str] | None = None,
    limit: str | None = None,
) -> str:
    """Write a row a method and a column a score, with the marks of `AHEAD` and `AS_REAL`.

    ``rivals`` of the row ``ours`` are all others by default; ``limit`` is the row of real cells.
    """
    rivals = rows.keys() - {ours, limit} if rivals is None else rivals
    rivals = rivals if ours in rows else ()
    cells = {name: [f"**{name}**" if name == ours else name] for name in rows}
    for key, column in columns.items():
        real = rows[limit].get(key, ()) if limit in rows else ()
        away = {name: distances(values.get(key, ()), column.ideal, real) for name, values in rows.items()}
        nearer = [name for name in rows if name in rivals and _middle(away[name]) < _middle(away[ours])]
        for name, values in rows.items():
            text = summary(values[key], column.digits) if key in values else ""
            if name in nearer and text:
                text += f" {AHEAD}"
            elif name == ours and column.ideal is not None and text:
                text = text if nearer else f"**{text}**"
                text += f" {AS_REAL}" if len(real) and min(away[name]) <= max(away[limit]) else ""
            cells[name].append(text)
    return markdown([heading, *(column.title for column in columns.values())], list(cells.values()))


def distances(values: Values, ideal: float | str | None, real: Values = ()) -> NDArray[np.float64]:
    """How far values are from the best one (of ``"limit"``: the median of real cells); NaN is infinitely far."""
    if ideal == "limit":
        ideal = float(np.median(real)) if len(real) else None
    best = np.nan if ideal is None else float(ideal)
    numbers = np.asarray(values, dtype=np.float64)
    return np.nan_to_num(-np.sign(best) * numbers if np.isinf(best) else np.abs(numbers - best), nan=np.inf)


def _middle(values: Sequence[float] | NDArray[np.float64]) -> float:
    return float(np.median(values)) if len(values) else np.inf


def value_table(columns: Mapping[str, tuple[str, str]], rows: Sequence[Mapping[str, Any]]) -> str:
    """Write single values by title and format; - where there is none."""
    shown = [
        ["-" if row.get(key) is None else format(row[key], form) for key, (_, form) in columns.items()] for row in rows
    ]
    return markdown([title for title, _ in columns.values()], shown)


def summary(values: Values, digits: int | str) -> str:
    """Median and range, as ``0.58 (0.55 to 0.61)``; - where nothing could be measured."""
    numbers = np.asarray(values, dtype=np.float64)
    if not np.isfinite(numbers).any():
        return "-"
    form = digits if isinstance(digits, str) else f".{digits}f"
    median, low, high = (format(of(numbers), form) for of in (np.nanmedian, np.nanmin, np.nanmax))
    return median if low == high else f"{median} ({low} to {high})"


def markdown(header: Sequence[str], rows: Sequence[Sequence[str]], n_left: int = 1) -> str:
    """Markdown table; the first columns are to the left, the others to the right."""
    lines = [header, [*["---"] * n_left, *["---:"] * (len(header) - n_left)], *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)
