"""Lines of the package by room: in all, of docstrings, of imports, blank, of code, and the number of files.

``python scripts/count_lines.py`` counts ``src/scdiffgen`` beside this script; another checkout is given by its path.
"""

from __future__ import annotations

import ast
import sys
from collections import defaultdict
from pathlib import Path

COLUMNS = ("lines", "docstring", "import", "blank", "code", "files")
DOCUMENTED = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef


def counted(path: Path) -> list[int]:
    """One file, in the order of ``COLUMNS``."""
    text = path.read_text()
    lines = text.splitlines()
    documented, imported = set(), set()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, DOCUMENTED) and ast.get_docstring(node) is not None:
            documented.update(range(node.body[0].lineno, node.body[0].end_lineno + 1))
        listed = isinstance(node, ast.Assign) and any(getattr(target, "id", "") == "__all__" for target in node.targets)
        if listed or isinstance(node, ast.Import | ast.ImportFrom):
            imported.update(range(node.lineno, node.end_lineno + 1))
    blank = {number for number, line in enumerate(lines, 1) if not line.strip()} - documented
    return [len(lines), len(documented), len(imported), len(blank), len(lines) - len(documented | imported | blank), 1]


def main(root: Path) -> None:
    source, rooms = root / "src/scdiffgen", defaultdict(list)
    for path in sorted(source.rglob("*.py")):
        inside = path.relative_to(source).parts
        rooms[inside[0] if len(inside) > 1 else "root"].append(counted(path))
    rooms["all"] = [counts for room in rooms.values() for counts in room]
    print(f"{'':12}" + "".join(f"{column:>10}" for column in COLUMNS))
    for room, counts in rooms.items():
        print(f"{room:12}" + "".join(f"{sum(column):10,}" for column in zip(*counts, strict=True)))


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parents[1])
