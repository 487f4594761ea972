"""Lines of the package by folder: in all, of docstrings, of imports, blank, of code; files, and numeric constants.

``python scripts/count_lines.py`` counts ``src/scdiffgen`` beside this script; another checkout is given by its path.
Constants are names at the level of a module that are bound to a number. ``budget.toml`` bounds lines and constants.
"""

from __future__ import annotations

import ast
import sys
from collections import defaultdict
from pathlib import Path

COLUMNS = ("lines", "docstring", "import", "blank", "code", "files", "constants")
DOCUMENTED = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef
ROOT = Path(__file__).parents[1]


def counted(path: Path) -> list[int]:
    """One file, in the order of ``COLUMNS``."""
    text = path.read_text()
    lines, tree = text.splitlines(), ast.parse(text)
    documented, imported = set(), set()
    for node in ast.walk(tree):
        if isinstance(node, DOCUMENTED) and ast.get_docstring(node) is not None:
            documented.update(range(node.body[0].lineno, node.body[0].end_lineno + 1))
        listed = isinstance(node, ast.Assign) and any(getattr(target, "id", "") == "__all__" for target in node.targets)
        if listed or isinstance(node, ast.Import | ast.ImportFrom):
            imported.update(range(node.lineno, node.end_lineno + 1))
    blank = {number for number, line in enumerate(lines, 1) if not line.strip()} - documented
    code = len(lines) - len(documented | imported | blank)
    return [len(lines), len(documented), len(imported), len(blank), code, 1, constants(tree)]


def constants(tree: ast.Module) -> int:
    """Names at the level of a module that are bound to a number."""
    n = 0
    for node in tree.body:
        if isinstance(node, ast.Assign | ast.AnnAssign) and node.value is not None:
            (target, *_) = node.targets if isinstance(node, ast.Assign) else [node.target]
            pairs = isinstance(target, ast.Tuple) and isinstance(node.value, ast.Tuple)
            n += sum(map(is_number, node.value.elts)) if pairs else is_number(node.value)
    return n


def is_number(node: ast.expr) -> bool:
    """Whether an expression is a number, or made of numbers."""
    if isinstance(node, ast.UnaryOp):
        return is_number(node.operand)
    if isinstance(node, ast.BinOp):
        return is_number(node.left) and is_number(node.right)
    return isinstance(node, ast.Constant) and type(node.value) in (int, float)


def by_folder(root: Path = ROOT) -> dict[str, list[int]]:
    """Sums over the files of each folder of the package, in the order of ``COLUMNS``."""
    source, folders = root / "src/scdiffgen", defaultdict(list)
    for path in sorted(source.rglob("*.py")):
        inside = path.relative_to(source).parts
        folders[inside[0] if len(inside) > 1 else "root"].append(counted(path))
    return {name: [sum(column) for column in zip(*files, strict=True)] for name, files in folders.items()}


def main(root: Path) -> None:
    folders = by_folder(root)
    folders["all"] = [sum(column) for column in zip(*folders.values(), strict=True)]
    print(f"{'':12}" + "".join(f"{column:>10}" for column in COLUMNS))
    for name, counts in folders.items():
        print(f"{name:12}" + "".join(f"{count:10,}" for count in counts))
    for name in ("tests", "benchmarks"):
        print(f"{name:12}{lines_of(root / name):10,}")


def lines_of(folder: Path) -> int:
    """Lines of all files of Python in a folder."""
    return sum(len(path.read_text().splitlines()) for path in folder.rglob("*.py"))


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT)
