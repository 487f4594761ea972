"""Tables of results: medians, ranges and marks, and the pages that hold them."""

from importlib import import_module
from pathlib import Path
from pkgutil import walk_packages
from typing import Any

import benchmarks
import numpy as np
import pandas as pd
import pytest
from benchmarks import render
from benchmarks._generation_table import generation_table, primary
from benchmarks._page import END, START, shown, write_between_marks
from benchmarks._perturbation_figure import perturbation_figure
from benchmarks._perturbation_table import kinds_of, response_table, summary_of
from benchmarks._perturbation_table import primary as response_primary
from benchmarks._record import distinct_environments, environment, read_result, write_result
from benchmarks._tables import AHEAD, AS_REAL, Column, score_table, summary

ENVIRONMENT = environment(2, [0, 1])


def generation_result(ours: list[float], other: list[float], bound: float = 1.0) -> dict[str, Any]:
    """W2, where other real cells score 2.0 and 2.2, and an AUC in which all are perfect."""
    scores = {"real": ("limit", [2.0, 2.2]), "scdiffgen, 16 steps": ("ours", ours), "VAE": ("other", other)}
    return {
        "benchmark": "generation",
        "data": {"description": "made up", "n_train": 8, "n_held_out": 2, "n_genes": 3, "n_labels": 1},
        "metrics": {
            "w2": {"title": "W2", "ideal": "limit", "n_digits": 2},
            "auc": {"title": "AUC", "ideal": 0.5, "n_digits": 3},
        },
        "environment": ENVIRONMENT,
        "rows": [
            {"method": name, "kind": kind, "seed": seed, "scores": {"w2": values[seed], "auc": 0.5}}
            for seed in (0, 1)
            for name, (kind, values) in scores.items()
        ],
        "likelihood": [{"seed": seed, "scdiffgen": bound, "mean": 1.5, "dispersed": 1.4} for seed in (0, 1)],
    }


def cells(table: str) -> dict[str, list[str]]:
    """Cells of a table by the name of their row, which is bold for ours."""
    lines = [[cell.strip() for cell in line.split("|")[1:-1]] for line in table.splitlines()]
    return {name.strip("*"): rest for name, *rest in lines}


SCORES = {
    "real": {"w2": [2.0, 2.2], "auc": [0.45, 0.55]},
    "ours": {"w2": [2.6, 2.6], "auc": [0.54, 0.58]},
    "theirs": {"w2": [1.9, 1.9], "auc": [0.8, 0.8]},
    "variant": {"w2": [2.1, 2.1], "auc": [0.5, 0.5]},
    "missing": {"w2": [None, None]},
}
COLUMNS = {"w2": Column("W2", "limit", 1), "auc": Column("AUC", 0.5, 2), "n": Column("cells")}


def test_rivals_ahead_are_marked_and_an_unbeaten_row_is_bold() -> None:
    table = cells(score_table("", COLUMNS, SCORES, "ours", ["theirs", "missing"], "real"))
    assert table["ours"] == ["2.6", f"**0.56 (0.54 to 0.58)** {AS_REAL}", ""]
    assert table["theirs"] == [f"1.9 {AHEAD}", "0.80", ""]
    assert table["variant"] == ["2.1", "0.50", ""]  # no rival
    assert table["missing"] == ["-", "", ""]
    everything = cells(score_table("", COLUMNS, SCORES, "ours", limit="real"))
    assert everything["variant"] == [f"2.1 {AHEAD}", f"0.50 {AHEAD}", ""] and "**" not in everything["ours"][1]


def test_a_missing_score_is_worst_and_without_our_row_nothing_is_marked() -> None:
    missing = SCORES | {"ours": {"w2": [np.nan]}}
    assert AHEAD in cells(score_table("", COLUMNS, missing, "ours", limit="real"))["theirs"][0]
    assert not {AHEAD, AS_REAL, "*"} & {*score_table("", COLUMNS, SCORES)}


def test_a_score_that_is_missing_in_a_file_is_shown_as_such(tmp_path: Path) -> None:
    result = read_result(write_result(tmp_path, "x", generation_result(ours=[np.nan, np.nan], other=[9.0, 9.0])))
    assert result["rows"][1]["scores"]["w2"] is None
    table = cells(generation_table(result))
    assert table["scdiffgen, 16 steps"][0] == "-" and table["VAE"][0] == f"9.00 {AHEAD}"


def test_the_default_stands_for_the_package_wherever_it_was_run() -> None:
    result = generation_result([2.0, 2.0], [2.0, 2.0])
    more = [{**row, "method": "scdiffgen, 64 steps"} for row in result["rows"] if row["kind"] == "ours"]
    result["rows"] += more
    assert primary(result) == "scdiffgen, 16 steps"
    result["rows"] = more
    assert primary(result) == "scdiffgen, 64 steps"


@pytest.mark.parametrize(
    ("values", "text"), [([1.0, 3.0, 2.0], "2.00 (1.00 to 3.00)"), ([0.5], "0.50"), ([0.501, 0.502], "0.50")]
)
def test_summary_is_median_and_range(values: list[float], text: str) -> None:
    assert summary(values, 2) == text


def test_wins_are_of_the_default_and_other_programs_and_seeds_are_counted() -> None:
    result = generation_result([2.1, 2.3], [9.0, 9.0])  # an AUC of 0.5 is won by both
    table = cells(generation_table(result))
    assert {name: row[-2:] for name, row in table.items() if name not in ("", "---")} == {
        "real": ["", "2"],
        "scdiffgen, 16 steps": ["2", "2"],
        "VAE": ["1", "2"],
    }
    result["metrics"]["w2"]["table"] = "spread"
    result["rows"] = [row for row in result["rows"] if (row["method"], row["seed"]) != ("VAE", 0)]
    spread, distribution = map(cells, generation_table(result).split("\n\n"))
    assert (spread["VAE"][-2:], distribution["VAE"][-2:]) == (["0", "1"], ["1", "1"])


def test_seeds_of_an_environment_are_those_that_were_run() -> None:
    made = {**ENVIRONMENT, "seeds": [0, 1, 2, 3]}
    other = {**made, "commit": "def5678"}
    found = distinct_environments([(made, 2), (made, 0), (other, 1), (made, 2)])
    assert [(of["commit"], of["seeds"]) for of in found] == [(made["commit"], [0, 2]), ("def5678", [1])]


def speed_result(ours: float, other: float) -> dict[str, Any]:
    stages = {"imports": 10.0, "data": 20.0, "training": 30.0}
    return {
        "benchmark": "speed",
        "data": {"name": "made-up", "n_train": 8, "n_genes": 3},
        "environment": ENVIRONMENT,
        "training": [
            {"model": "scdiffgen", "cells_per_second": [ours, ours]},
            {"model": "scVI", "cells_per_second": [other, other]},
        ],
        "generating": [{"model": "scdiffgen, 8 steps", "cells_per_second": [10.0]}],
        "memory": [
            {"model": "scdiffgen", "generating": 40.0, **stages},
            {"model": "scVI", "generating": 50.0, **stages},
        ],
    }


def augmentation_result(**f1: float) -> dict[str, Any]:
    f1 = {"real": 0.1, "real + copies": 0.2, "real + generated": 0.4, "all real cells": 0.9} | f1
    rows = [{"seed": 0, "n_kept": 5, "training": name, "f1_rare": value, "f1_other": 0.8} for name, value in f1.items()]
    return {"benchmark": "augmentation", "data": {"description": "made up"}, "environment": ENVIRONMENT, "rows": rows}


def response_result(**scores: tuple[float, float, float]) -> dict[str, Any]:
    """W2, AUC and slope of predictions of two responses, which are alike; real cells score 2.0, .5 and 1."""
    scores = {"effect: coupled": (2.5, 0.6, 0.8), "real_half": (2.0, 0.5, 1.0)} | scores
    rows = [
        {"seed": seed, "fold": fold, "context": "all", "perturbation": "p", "prediction": name}
        | dict(zip(("wasserstein", "c2st_auc", "fold_change_slope"), values, strict=True))
        for seed in (0, 1)
        for fold in ("x", "y")
        for name, values in scores.items()
    ]
    settings = {"models": ["effect", "embedding"], "external": ["theirs"]}
    return {
        "benchmark": "perturbation",
        "task": "norman",
        "settings": settings,
        "environment": ENVIRONMENT,
        "rows": rows,
    }


def marked(result: dict[str, Any]) -> dict[str, list[bool]]:
    """Whether the slope, W2 and AUC of each prediction are ahead of ours."""
    table = cells(response_table(summary_of(pd.DataFrame(result["rows"])), result))
    return {name: [AHEAD in cell for cell in row] for name, row in table.items() if name not in ("prediction", "---")}


def test_a_prediction_that_is_nearer_to_the_best_value_is_marked() -> None:
    others = {"no_change": (2.6, 0.3, 1.3), "linear": (1.8, 0.45, 1.1), "theirs": (2.1, 0.9, 1.0)}
    found = marked(response_result(**others))
    assert [found[name] for name in others] == [[False] * 3, [True] * 3, [True, True, False]]
    assert found["effect: coupled"] == found["real_half"] == [False] * 3


def test_a_variant_is_no_excuse_for_the_default() -> None:
    result = response_result(**{"embedding: coupled": (2.0, 0.5, 1.0), "effect: generate": (2.0, 0.5, 1.0)})
    assert response_primary(result) == "effect: coupled"
    assert not any(map(any, marked(result).values()))
    kinds = kinds_of(response_result(theirs=(1, 1, 1), latent_scvi=(1, 1, 1), linear=(1, 1, 1)))
    expected = {"real_half": "limit", "theirs": "other", "latent_scvi": "other", "linear": "null"}
    assert kinds == {"effect: coupled": "ours", **expected}


def test_spans_of_doses_are_judged_apart() -> None:
    rows = [
        {"seed": 0, "fold": "dose", "span": span, "perturbation": "A", "dose": 1.0, "prediction": name, "rmse": rmse}
        for name, of_spans in {"sinusoidal": (0.1, 0.5), "nearest dose": (0.3, 0.3), "real cells": (0.05, 0.05)}.items()
        for span, rmse in zip(("seen", "beyond"), of_spans, strict=True)
    ]
    result = {"task": "dose", "settings": {"models": ["sinusoidal"]}, "rows": rows}
    seen, beyond = response_table(summary_of(pd.DataFrame(rows)), result).split("\n\n")
    assert seen.startswith("| seen |") and cells(seen)["sinusoidal"] == ["**0.1**"]
    assert beyond.startswith("| beyond |") and cells(beyond)["nearest dose"] == [f"0.3 {AHEAD}"]
    axis = perturbation_figure(result).axes[0]
    np.testing.assert_allclose(axis.collections[0].get_offsets()[:, 0], [0.3, 0.5, 0.3, 0.1])


def test_pages_have_a_figure_and_the_tables_of_every_result(tmp_path: Path) -> None:
    results = tmp_path / "results"
    write_result(results, "generation-made-up", generation_result([2.6, 2.6], [1.9, 1.9]))
    write_result(results, "speed-made-up", speed_result(100.0, 250.0))
    write_result(results, "augmentation-made-up", augmentation_result())
    write_result(results, "perturbation-made-up", response_result(linear=(1.8, 0.45, 1.1)))
    (results / "notes.json").write_text("{}")  # what is no result of a benchmark is left out
    pages = {name: path.read_text() for name, path in render.render(results, tmp_path).items()}
    page = "".join(pages.values())
    assert f"| 1.90 {AHEAD} |" in page and f"| 250 {AHEAD} |" in page and f"| 1.8 {AHEAD} |" in page
    for name in ("generation", "speed", "augmentation", "perturbation"):
        assert f"(figures/{name}-made-up.png)" in page
        assert (tmp_path / f"benchmarks/pages/figures/{name}-made-up.png").exists()
    complete = [name for name, text in pages.items() if render.NOTHING not in text]
    assert complete == ["generation.md", "responses.md"], "the others say what is not there"


def test_wide_and_long_tables_are_folded_under_their_columns() -> None:
    head, row = "| a | 1 | 2 |\n| --- | --- | --- |", "\n| x | y | z |"
    assert shown(head + 3 * row, 3, 3) == head + 3 * row and shown("text " * 99) == "text " * 99
    for n_rows, most in ((1, (2, 9)), (4, (9, 3))):
        folded = shown(head + n_rows * row, *most)
        assert f"{n_rows} rows: 1; 2</summary>\n\n{head + n_rows * row}\n\n</details>" in folded
    assert not shown(head)


def test_what_is_written_between_marks_replaces_what_stood_there(tmp_path: Path) -> None:
    page, start, end = tmp_path / "page.md", START.format("x", "benchmarks.render"), END.format("x")
    page.write_text(f"Before\n{start}old{end}\nAfter")
    for _ in range(2):  # the second time, over what the first has written
        write_between_marks(page, {"x": "new"})
    assert page.read_text() == f"Before\n{start}new{end}\nAfter"


@pytest.mark.parametrize("name", [module.name for module in walk_packages(benchmarks.__path__, "benchmarks.")])
def test_every_module_can_be_imported(name) -> None:
    import_module(name)
