"""What pages of results are made of."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
from matplotlib.figure import Figure


def section(title: str, *parts: str) -> str:
    return "\n" + "\n\n".join([f"## {title}", *filter(None, parts)]) + "\n"


def figure(drawn: Figure, name: str, docs: Path) -> str:
    """Save a figure; the markdown that shows it."""
    path = docs / "_static" / "benchmarks" / f"{name}.png"
    path.parent.mkdir(parents=True, exist_ok=True)
    drawn.savefig(path, dpi=120)
    plt.close(drawn)
    return f"![{name}](_static/benchmarks/{path.name})"


def bullets(title: str, lines: Sequence[str]) -> str:
    """List under a title; without lines, say so."""
    return "\n".join([f"**{title}**", "", *(f"- {line}" for line in lines or ["Nowhere in this table."])])


def measured_with(result: Mapping[str, Any]) -> str:
    with_ = result["environment"]
    packages = ", ".join(f"{name} {number}" for name, number in with_["packages"].items())
    threads = f"{with_['threads']} thread{'' if with_['threads'] == 1 else 's'}"
    added = "".join(f"; rows were added by `{later['command']}`" for later in result.get("added", []))
    return (
        f"*Commit {with_['commit']}, `{with_['command']}`, {threads}, {with_['device']}, "
        f"seeds {', '.join(map(str, with_['seeds']))}; Python {with_['python']}, {packages}{added}.*"
    )
