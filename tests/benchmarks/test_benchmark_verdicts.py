from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from benchmarks import render
from benchmarks._perturbation_figure import perturbation_figure
from benchmarks._perturbation_verdicts import kinds_of, response_shortcomings
from benchmarks._perturbation_verdicts import primary as response_primary
from benchmarks._record import distinct_environments, read_result, write_result
from benchmarks._tables import distance_from_ideal, fewer_seeds, generation_table, primary, scores_by_method, summary
from benchmarks._verdicts import (
    augmentation_shortcomings,
    shortcomings,
    speed_shortcomings,
)
from verdicts import named, numbers

ENVIRONMENT = {
    "commit": "abc1234",
    "command": "python -m benchmarks",
    "python": "3.11",
    "packages": {"torch": "2"},
    "device": "CPU",
    "threads": 2,
    "seeds": [0, 1],
}


def generation_result(ours: list[float], other: list[float], bound: float = 1.0) -> dict[str, Any]:
    """W2, where other real cells score 2.0 and 2.2, and an AUC in which all are perfect."""
    scores = {"real": ("limit", [2.0, 2.2]), "scdiffgen, 32 steps": ("ours", ours), "VAE": ("other", other)}
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


def test_a_method_nearer_to_real_cells_is_named_with_both_numbers() -> None:
    better, not_real = shortcomings(generation_result(ours=[2.6, 2.6], other=[1.9, 1.9]))
    assert named(better, ["W2", "AUC", "VAE"]) == ["W2", "VAE"] and numbers(better) == [2.60, 1.90]
    assert named(not_real, ["W2", "AUC"]) == ["W2"]


def test_a_method_farther_from_real_cells_is_not_named_whichever_side_it_is_on() -> None:
    for other in ([3.0, 3.0], [1.0, 1.0]):
        assert shortcomings(generation_result(ours=[2.15, 2.2], other=other)) == []


def test_a_better_likelihood_is_named() -> None:
    lines = shortcomings(generation_result([2.1, 2.1], [9.0, 9.0], bound=1.75))
    assert [numbers(line) for line in lines] == [[1.75, 1.5], [1.75, 1.4]]
    (line,) = shortcomings(generation_result([2.1, 2.1], [9.0, 9.0], bound=1.45))
    assert named(line, ["mean", "dispersed"]) == ["dispersed"]


def test_a_score_that_is_missing_is_the_worst(tmp_path: Path) -> None:
    result = generation_result(ours=[np.nan, np.nan], other=[9.0, 9.0])
    result = read_result(write_result(tmp_path, "x", result))
    assert result["rows"][1]["scores"]["w2"] is None
    assert distance_from_ideal(result, "w2")["scdiffgen, 32 steps"] == [np.inf, np.inf]
    assert any("VAE" in line for line in shortcomings(result))


def test_the_default_stands_for_the_package_wherever_it_was_run() -> None:
    result = generation_result([2.0, 2.0], [2.0, 2.0])
    more = [{**row, "method": "scdiffgen, 64 steps"} for row in result["rows"] if row["kind"] == "ours"]
    result["rows"] += more
    assert primary(result) == "scdiffgen, 32 steps"
    result["rows"] = more
    assert primary(result) == "scdiffgen, 64 steps"


@pytest.mark.parametrize(
    ("values", "text"), [([1.0, 3.0, 2.0], "2.00 (1.00 to 3.00)"), ([0.5], "0.50"), ([0.501, 0.502], "0.50")]
)
def test_summary_is_median_and_range(values: list[float], text: str) -> None:
    assert summary(values, 2) == text


def test_scores_are_gathered_by_method_over_seeds() -> None:
    scores = scores_by_method(generation_result([2.1, 2.3], [9.0, 9.0]))
    assert {name: of["w2"] for name, of in scores.items()} == {
        "real": [2.0, 2.2],
        "scdiffgen, 32 steps": [2.1, 2.3],
        "VAE": [9.0, 9.0],
    }


def test_wins_are_of_the_default_and_other_programs() -> None:
    result = generation_result([2.1, 2.3], [9.0, 9.0])  # an AUC of 0.5 is won by both
    table = generation_table(result).splitlines()
    assert [line.split("|")[-2].strip() for line in table] == ["wins", "---:", "", "2", "1"]
    result["metrics"]["w2"]["table"] = "spread"
    tables = [part.splitlines() for part in generation_table(result).split("\n\n")]
    assert [numbers(line.split("|")[-2]) for lines in tables for line in lines[2:]] == [[], [1], [0], [], [1], [1]]


def test_methods_of_fewer_seeds_are_named() -> None:
    result = generation_result([2.1, 2.3], [9.0, 9.0])
    assert fewer_seeds(result) == ""
    result["rows"] = [row for row in result["rows"] if (row["method"], row["seed"]) != ("VAE", 0)]
    line = fewer_seeds(result)
    assert named(line, ["real", "VAE"]) == ["VAE"] and numbers(line) == [1]


def test_seeds_of_an_environment_are_those_that_were_run() -> None:
    made = {**ENVIRONMENT, "seeds": [0, 1, 2, 3]}
    other = {**made, "commit": "def5678"}
    found = distinct_environments([(made, 2), (made, 0), (other, 1), (made, 2)])
    assert [(of["commit"], of["seeds"]) for of in found] == [("abc1234", [0, 2]), ("def5678", [1])]


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


def test_what_is_slower_is_said() -> None:
    (line,) = speed_shortcomings(speed_result(100.0, 250.0))
    assert named(line, ["scVI", "scdiffgen"]) == ["scVI", "scdiffgen"] and numbers(line) == [2.5]
    assert speed_shortcomings(speed_result(250.0, 100.0)) == []
    lower = speed_result(100.0, 250.0)
    lower["training"].append({"model": "scdiffgen, bf16-mixed", "cells_per_second": [900.0]})
    assert speed_shortcomings(lower) == [line]  # what is the default counts


def augmentation_result(**f1: float) -> dict[str, Any]:
    f1 = {"real": 0.1, "real + copies": 0.2, "real + generated": 0.4, "all real cells": 0.9} | f1
    rows = [{"seed": 0, "n_kept": 5, "training": name, "f1_rare": value, "f1_other": 0.8} for name, value in f1.items()]
    return {
        "benchmark": "augmentation",
        "data": {"description": "made up"},
        "environment": ENVIRONMENT,
        "rows": rows,
    }


def test_a_better_way_to_recognise_rare_labels_is_said() -> None:
    assert augmentation_shortcomings(augmentation_result()) == []
    (line,) = augmentation_shortcomings(augmentation_result(**{"real + copies": 0.6}))
    assert named(line, ["real + Poisson", "real + copies"]) == ["real + copies"]
    assert numbers(line) == [5, 0.4, 0.9, 0.6]  # cells kept, ours, of all real cells, of copies


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


NAMES = ("slope", "W2", "AUC", "theirs", "linear", "no_change", "embedding")


def test_a_prediction_that_is_nearer_to_the_best_value_is_named() -> None:
    (short,) = response_shortcomings(response_result(no_change=(2.6, 0.3, 1.3)))
    assert named(short, NAMES) == ["slope", "W2", "AUC"]  # real cells are nearer by each
    *better, again = response_shortcomings(response_result(linear=(1.8, 0.45, 1.1), theirs=(2.1, 0.9, 1.0)))
    assert again == short
    assert [(named(line, NAMES), numbers(line)) for line in better] == [
        (["slope", "theirs", "linear"], [0.8, 1.0, 1.1]),
        (["W2", "theirs", "linear"], [2.5, 2.1, 1.8]),
        (["AUC", "linear"], [0.6, 0.45]),
    ]


def test_a_variant_is_no_excuse_for_the_default() -> None:
    result = response_result(**{"embedding: coupled": (2.0, 0.5, 1.0), "effect: generate": (2.0, 0.5, 1.0)})
    assert response_primary(result) == "effect: coupled"
    (short,) = response_shortcomings(result)
    assert named(short, NAMES) == ["slope", "W2", "AUC"]
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
    seen, better, beyond = response_shortcomings(result)
    assert seen.startswith("Seen") and beyond.startswith("Beyond")
    assert better.startswith("Beyond") and "nearest dose" in better and numbers(better) == [0.5, 0.3]
    axis = perturbation_figure(result).axes[0]
    np.testing.assert_allclose(axis.collections[0].get_offsets()[:, 0], [0.3, 0.5, 0.3, 0.1])


def test_page_has_a_figure_of_every_result_and_every_sentence(tmp_path: Path) -> None:
    results = tmp_path / "results"
    write_result(results, "generation-made-up", generation_result([2.6, 2.6], [1.9, 1.9]))
    write_result(results, "speed-made-up", speed_result(100.0, 250.0))
    write_result(results, "augmentation-made-up", augmentation_result())
    write_result(results, "perturbation-made-up", response_result(linear=(1.8, 0.45, 1.1)))
    (results / "notes.json").write_text("{}")  # what is no result of a benchmark is left out
    page = render.render(results, tmp_path).read_text()
    sentences = shortcomings(generation_result([2.6, 2.6], [1.9, 1.9]))
    sentences += speed_shortcomings(speed_result(100.0, 250.0))
    sentences += response_shortcomings(response_result(linear=(1.8, 0.45, 1.1)))
    assert [sentence for sentence in sentences if sentence not in page] == []
    for name in ("generation", "speed", "augmentation", "perturbation"):
        assert f"(_static/benchmarks/{name}-made-up.png)" in page
        assert (tmp_path / f"_static/benchmarks/{name}-made-up.png").exists()


def test_page_without_results_says_so(tmp_path: Path) -> None:
    tmp_path.joinpath("docs").mkdir()
    assert render.NOTHING in render.render(tmp_path / "results", tmp_path / "docs").read_text()
