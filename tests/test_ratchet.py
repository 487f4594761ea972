"""The ratchet of the budget, on git repositories with planted rises."""

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from scripts import check_ratchet

Commit = Callable[[str], None]


def git(root: Path, *arguments: str) -> None:
    """Run git under a name of its own, without the settings of the user."""
    who = ["-c", "user.name=test", "-c", "user.email=test@example.org", "-c", "commit.gpgsign=false"]
    subprocess.run(["git", "-C", str(root), *who, *arguments], check=True, capture_output=True)


def write(root: Path, budget: str) -> None:
    (root / check_ratchet.BUDGET).write_text(f"# a comment\n[lines]\nall = 100\n{budget}\n[constants]\nnn = 5\n")


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A repository whose first commits have a budget and no check, and whose third brings the check."""
    root = tmp_path / "package"
    for folder in ("scripts", "docs/decisions"):
        (root / folder).mkdir(parents=True)
    git(tmp_path, "init", "--quiet", "--initial-branch=main", str(root))
    for decision in ("0007-rows", "0008-more"):
        (root / f"docs/decisions/{decision}.md").write_text("")
    for number in (10, 20):  # a rise before the check
        commit(root, f"nn = {number}")
    (root / check_ratchet.SCRIPT).write_text("")
    commit(root, "nn = 20")
    return root


def commit(root: Path, budget: str) -> None:
    write(root, budget)
    git(root, "add", ".")
    git(root, "commit", "--quiet", "--allow-empty", "--message", "Change")


def test_rises_before_the_check_and_falls_pass(root: Path) -> None:
    commit(root, "nn = 15")
    commit(root, "nn = 12  # raised by decision 0007")
    assert check_ratchet.main(root) == 0


@pytest.mark.parametrize(
    ("versions", "fault"),
    [
        (["nn = 21"], "lines.nn rises from 20 to 21"),
        (["nn = 15", "nn = 2_0"], "lines.nn rises from 15 to 20"),
        (["nn = 21", "nn = 20"], "names no decision"),  # taken back later: history stays
        (["nn = 21  # more rows"], "names no decision"),
        (["nn = 21  # raised by decision 0009"], "0009, which is not in docs/decisions"),
        (["nn = 21  # raised by decision 0007", "nn = 22  # raised by decision 0007"], "comment of an earlier rise"),
        (["", "nn = 21"], "lines.nn rises from 20 to 21"),  # not by way of a row that is taken out
    ],
)
def test_planted_rise_is_found(root: Path, versions: list[str], fault: str, capsys: pytest.CaptureFixture[str]) -> None:
    for budget in versions:
        commit(root, budget)
    assert check_ratchet.main(root) == 1
    (line,) = capsys.readouterr().out.splitlines()
    assert fault in line


def test_rise_in_the_working_tree_and_of_constants_is_found(root: Path) -> None:
    text = (root / check_ratchet.BUDGET).read_text()
    (root / check_ratchet.BUDGET).write_text(text.replace("nn = 5", "nn = 6"))
    assert check_ratchet.main(root) == 1


@pytest.mark.parametrize("second", ["decision 0008", "decision 0007 for wavelets"])
def test_rises_by_decisions_of_their_own_pass(root: Path, second: str) -> None:
    commit(root, "nn = 21  # raised by decision 0007")
    commit(root, f"nn = 22  # raised by {second}")
    assert check_ratchet.main(root) == 0


def test_merge_counts_as_one_step_of_the_branch_it_is_merged_into(root: Path) -> None:
    git(root, "checkout", "--quiet", "-b", "side")
    (root / "other").write_text("")
    commit(root, "nn = 20")
    git(root, "checkout", "--quiet", "main")
    commit(root, "nn = 15")
    git(root, "merge", "--quiet", "--no-ff", "--no-commit", "side")
    assert check_ratchet.main(root) == 0
    commit(root, "nn = 20")  # the merge undoes the fall
    assert check_ratchet.main(root) == 1


def test_shallow_clone_says_so_and_passes(root: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for number in (21, 21):
        commit(root, f"nn = {number}")
    shallow = tmp_path / "shallow"
    git(tmp_path, "clone", "--quiet", "--depth", "1", f"file://{root}", str(shallow))
    assert check_ratchet.main(root) == 1
    assert check_ratchet.main(shallow) == 0
    assert "shallow" in capsys.readouterr().out
    write(shallow, "nn = 22")
    assert check_ratchet.main(shallow) == 1


def test_files_without_history_pass(root: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    inside = root / "unpacked"  # in the folder of another repository
    (inside / "scripts").mkdir(parents=True)
    assert check_ratchet.main(inside) == check_ratchet.main(tmp_path) == 0
    assert capsys.readouterr().out.count("no history") == 2


def test_budget_of_the_package_passes() -> None:
    assert check_ratchet.main() == 0
