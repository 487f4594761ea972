"""Writes results into pages: what stands between two marks of a name, the rest of a page is written by hand."""

from collections.abc import Iterator, Mapping
from html import escape
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
from matplotlib.figure import Figure

START, END = "<!-- {}, written by python -m {} -->\n", "\n<!-- end of {} -->"


def write_between_marks(page: Path, parts: Mapping[str, str], command: str = "benchmarks.render") -> None:
    """Write each part between the two marks of its name, which name the command that writes it."""
    text = page.read_text()
    for name, part in parts.items():
        start, end = START.format(name, command), END.format(name)
        before, rest = text.split(start)
        text = before + start + part + end + rest.split(end)[1]
    page.write_text(text)


def folded(summary: str, text: str) -> str:
    """A text that is shown when a reader asks for it."""
    return f"<details>\n<summary>{escape(summary)}</summary>\n\n{text}\n\n</details>"


def shown(part: str, most_columns: int = 8, most_rows: int = 12) -> str:
    """A part of a section as it is; a wide or long table is folded under its columns, one without rows left out."""
    if not part.startswith("|"):
        return part
    header, _, *rows = part.splitlines()
    titles = [cell.strip() for cell in header.split("|")[2:-1]]
    if len(titles) < most_columns and len(rows) <= most_rows:
        return part if rows else ""
    return folded(f"Table of {len(rows)} rows: {'; '.join(filter(None, titles))}", part) if rows else ""


def save_figure(drawn: Figure, path: Path) -> Path:
    """Save and close a figure."""
    path.parent.mkdir(parents=True, exist_ok=True)
    drawn.savefig(path, dpi=120)
    plt.close(drawn)
    return path


def measured_with(result: Mapping[str, Any]) -> Iterator[str]:
    """Commit, command and versions of each run; of parts that were run again, under their names."""
    for run in result.get("environments") or [result["environment"]]:
        added = "".join(f"; rows were added by `{later['command']}`" for later in result.get("added", []))
        yield _described(run, added)
    for key, run in result.items():
        if key.endswith("_environment"):
            yield f"Runs of {key.removesuffix('_environment')}, except other programs: {_described(run)}"


def _described(run: Mapping[str, Any], added: str = "") -> str:
    packages = ", ".join(f"{name} {number}" for name, number in run["packages"].items())
    threads = f"{run['threads']} thread{'' if run['threads'] == 1 else 's'}"
    return (
        f"*Commit {run['commit']}, `{run['command']}`, {threads}, {run['device']}, "
        f"seeds {', '.join(map(str, run['seeds']))}; Python {run['python']}, {packages}{added}.*"
    )
