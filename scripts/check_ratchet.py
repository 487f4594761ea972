"""Check that no number of ``budget.toml`` rises without a decision: part of ``make lint``.

``python scripts/check_ratchet.py`` compares each version of the file with the one before, from the commit that brought
this script to the working tree, along first parents. A row that exceeds the last number it had needs a new comment that
names a decision, ``# raised by decision 0036``, whose record is in ``docs/decisions``. The comment of an earlier rise
does not do for a second one. A shallow clone is checked as far as it reaches, and files without history pass.
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

ROOT = Path(__file__).parents[1]
BUDGET, SCRIPT = "scripts/budget.toml", "scripts/check_ratchet.py"
ROW = re.compile(r"(?P<name>\w+) = (?P<number>[\d_]+)\s*(?:#\s*(?P<comment>.*\S))?")
Rows = dict[str, tuple[int, str]]  # number and comment of "section.name"


def git(root: Path, *arguments: str) -> str:
    """Output of a git command; raises if it fails or if there is no git."""
    return subprocess.run(["git", "-C", root, *arguments], check=True, capture_output=True, text=True).stdout.strip()


def has_history(root: Path) -> bool:
    """Whether the folder is itself the top of a git checkout with a commit."""
    try:
        git(root, "rev-parse", "--verify", "HEAD")
        return Path(git(root, "rev-parse", "--show-toplevel")).samefile(root)
    except (OSError, subprocess.CalledProcessError):
        return False


def rows(text: str) -> Rows:
    """Rows of a version of the budget."""
    found, section = {}, ""
    for line in text.splitlines():
        if line.startswith("["):
            section = line.strip("[] ")
        elif row := ROW.match(line):
            found[f"{section}.{row['name']}"] = int(row["number"].replace("_", "")), row["comment"] or ""
    return found


def versions(root: Path) -> list[tuple[str, Rows]]:
    """The budget of the first commit with this script, of each later commit that changes it, and of the files."""
    log = ("log", "--first-parent", "--diff-merges=first-parent", "--no-patch", "--reverse", "--format=%h")
    added = git(root, *log, "--diff-filter=A", "--", SCRIPT).split()
    if not added:
        return []
    changed = git(root, *log, f"{added[0]}..HEAD", "--", BUDGET).split()
    committed = [(commit, git(root, "show", f"{commit}:{BUDGET}")) for commit in (added[0], *changed)]
    return [(name, rows(text)) for name, text in [*committed, ("the working tree", (root / BUDGET).read_text())]]


def faults(root: Path, history: list[tuple[str, Rows]]) -> Iterator[str]:
    """Rises without a decision of their own; a row that was gone for a while keeps its last number."""
    last: Rows = {}
    for (_, before), (version, after) in pairwise(history):
        last |= before
        for name, (number, comment) in after.items():
            old, old_comment = last.get(name, (number, ""))
            if number <= old:
                continue
            decision = re.search(r"decision (\d{4})", comment)
            rise = f"{BUDGET}: {name} rises from {old:_} to {number:_} in {version}"
            if decision is None:
                yield f"{rise}, and names no decision. Add a comment: # raised by decision NNNN."
            elif not [*(root / "docs/decisions").glob(f"{decision[1]}-*.md")]:
                yield f"{rise}, by decision {decision[1]}, which is not in docs/decisions. Write it down there."
            elif comment == old_comment:
                yield f"{rise} under the comment of an earlier rise. Name the decision that this rise serves."


def main(root: Path = ROOT) -> int:
    """Print all faults, and return 1 if there is one."""
    if not has_history(root):
        print(f"{BUDGET}: no history here, nothing to compare")
        return 0
    if git(root, "rev-parse", "--is-shallow-repository") == "true":
        print(f"{BUDGET}: this clone is shallow, earlier commits are not compared")
    found = [*faults(root, versions(root))]
    print(*found, sep="\n", end="\n" if found else "")
    return int(bool(found))


if __name__ == "__main__":
    sys.exit(main())
