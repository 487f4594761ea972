"""What stands for whom among predicted responses, and where the package falls short, computed from results."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

import pandas as pd

from benchmarks._perturbation_table import SCORES, summary_of

LIMITS = ("real_half", "real cells")
DEFAULTS = (
    "effect: coupled",
    "sinusoidal: generate",
    "sinusoidal: transferred",
)  # of the package, in one task or another
TRAINED = ("latent_scvi",)  # models of others


def kinds_of(result: Mapping[str, Any]) -> dict[str, Literal["ours", "limit", "other", "null"]]:
    """Kind of every prediction: the package, real cells, other programs, or what needs none."""
    settings = result["settings"]
    others = {*TRAINED, *settings.get("external", [])}
    kinds: dict[str, Literal["ours", "limit", "other", "null"]] = {}
    for name in dict.fromkeys(row["prediction"] for row in result["rows"]):
        ours = name.partition(":")[0] in settings["models"]
        kinds[name] = "ours" if ours else "limit" if name in LIMITS else "other" if name in others else "null"
    return kinds


def primary(result: Mapping[str, Any]) -> str:
    """The prediction that stands for the package: its default, or the first of it that was run."""
    ours = [name for name, kind in kinds_of(result).items() if kind == "ours"]
    return next((name for name in DEFAULTS if name in ours), ours[0])


def response_shortcomings(result: Mapping[str, Any]) -> list[str]:
    """Sentences on predicted responses: where others come nearer to the best value than the default, and real cells do.

    Variants of the package other than its default are left out, on both sides.
    """
    table = summary_of(pd.DataFrame(result["rows"]))
    if "span" not in table.index.names:
        return _of_table(table, result)
    spans = table.index.unique("span")
    return [f"{span.capitalize()}: {line}" for span in spans for line in _of_table(table.xs(span), result)]


def _of_table(table: pd.DataFrame, result: Mapping[str, Any]) -> list[str]:
    kinds, ours = kinds_of(result), primary(result)
    limits = [name for name in table.index if kinds[name] == "limit"]
    lines, short = [], []
    for name in table:
        values, ideal = table[name], SCORES[name].ideal
        best = values[limits[0]] if ideal == "limit" else ideal
        away = (values - best).abs().fillna(float("inf"))
        rivals = [rival for rival in table.index if kinds[rival] in ("other", "null") and away[rival] < away[ours]]
        if rivals:
            named = ", ".join(f"{rival} ({values[rival]:.3g})" for rival in sorted(rivals, key=away.__getitem__))
            lines.append(f"{SCORES[name].title} ({values[ours]:.3g}): nearer to the best value is {named}.")
        short += [SCORES[name].title] * any(away[limit] < away[ours] for limit in limits)
    return [*lines, *([f"Not as good as real cells: {'; '.join(short)}."] if short else [])]
