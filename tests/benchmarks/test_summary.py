"""The summary names the best of each kind of method, and the README shows the same table."""

from typing import Any

import numpy as np
from benchmarks._generation_table import OURS
from benchmarks._published_predictions import CONTROLS, HALF, SIMILAR
from benchmarks._sections import lines_of
from benchmarks._summary import Line, summary_figure, summary_table
from benchmarks._summary_lines import AUCS, COPULA

KINDS = {"us": "ours", "them": "other", "also": "other", "mean": "simple", "null": "null", "real": "limit"}
VALUES = {"us": [0.6, 0.7, 0.9], "them": [0.8], "also": [np.nan, 0.72], "mean": [0.4], "null": [0.9], "real": [0.5]}
PUBLISHED = {
    "benchmark": "published",
    "task": "types",
    "published": {"means": {name: {"edistance_5000": 3.0, "pearson_delta_5000": 0.5} for name in ("First", "baseReg")}},
    "rows": [
        {"seed": 0, "left_out": "a", "prediction": name, "edistance_5000": value, "pearson_delta_5000": 0.9}
        for name, value in (("scdiffgen", 1.0), (CONTROLS, 4.0), (SIMILAR, 1.5), (HALF, 0.25))
    ],
}


def generation(**aucs: tuple[str, list[float]]) -> dict[str, Any]:
    metrics = {auc: {"title": auc, "ideal": 0.5} for auc in AUCS}
    of = [(name, kind, value) for name, (kind, values) in aucs.items() for value in values]
    rows = [{"method": name, "kind": kind, "scores": dict.fromkeys(AUCS, value)} for name, kind, value in of]
    return {"benchmark": "generation", "metrics": metrics, "data": {"description": "some cells"}, "rows": rows}


def test_leaders_have_the_nearest_median_and_the_best_of_them_is_bold() -> None:
    line = Line("data", "AUC", 0.5, VALUES, KINDS, ".2f")
    names = ["0.72 (also)", "**0.40** (mean)", "0.90 (null)", "0.50"]
    assert line.cells() == ["data", "AUC\xa0→\xa00.5", "0.70", *names]
    higher = Line("data", "cells/s", np.inf, VALUES, KINDS, ".2f")
    assert higher.cells()[1:] == ["cells/s\xa0↑", "0.70", "0.80 (them)", "0.40 (mean)", "**0.90** (null)", "0.50"]


def test_places_are_between_the_control_and_the_ceiling() -> None:
    line = Line("data", "AUC", 0.5, VALUES, KINDS)
    np.testing.assert_allclose([line.place(kind) for kind in ("ours", "null", "limit")], [0.5, 0.0, 1.0])
    alone = Line("data", "AUC", 0.5, {"us": [0.7]}, KINDS)
    assert np.isnan(alone.place("ours")) and alone.cells()[-4:] == ["-"] * 4
    ours = summary_figure([line, alone]).axes[0].lines[2]
    np.testing.assert_allclose(ours.get_xdata(), [0.5])


def test_programs_simple_baselines_and_controls_are_told_by_their_kind() -> None:
    cells = generation(
        **{OURS: ("ours", [0.5, 0.625, 0.9]), "CFGen, full length": ("other", [0.7]), COPULA: ("other", [0.6])},
        **{"shuffled genes": ("null", [0.55]), "posterior": ("resampled", [0.5]), "real": ("limit", [0.5])},
    )
    rows = summary_table(lines_of(cells)).splitlines()[2:]
    scores = "0.625 | 0.700 (CFGen) | 0.600 (linear copula) | **0.550** (shuffled genes) | 0.500 |"
    assert rows[0].startswith("| some cells |") and rows[1].startswith("|  |")
    assert all(row.endswith(scores) for row in rows)


def test_published_methods_compete_and_published_baselines_are_baselines() -> None:
    distance, pearson = summary_table(lines_of(PUBLISHED)).splitlines()[2:]
    numbers = "**1.000** | 3.000 (First) | 1.500 (weighted mean shift) | 4.000 (controls) | 0.250 |"
    assert "a type left out" in distance and distance.endswith(numbers)
    assert "| **0.900** | 0.500 (First) |" in pearson
