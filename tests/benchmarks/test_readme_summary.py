"""The table of the README holds what was measured."""

from typing import Any

from benchmarks._generation_table import OURS
from benchmarks._readme import AUCS, COPULA, DISTANCE, MODEL, results_table
from verdicts import numbers

PUBLISHED = {
    "task": "types",
    "published": {"means": {"First": {"edistance_5000": 3.0}, "Second": {"edistance_5000": 2.0}}},
    "rows": [
        {"seed": 0, "left_out": "a", "prediction": name, "edistance_5000": value}
        for name, value in (
            ("scdiffgen", 1.0),
            ("controls + mean change of similar ones", 1.5),
            ("one real half against the other", 0.25),
        )
    ],
}
CELLS = {
    "published": {
        "training cells against test cells": {"WD": 0.1, "CD": 0.1, "MMD": None},
        "One": {"WD": 0.5, "CD": 0.2, "MMD": 0.03},
        "Two": {"WD": None, "CD": 0.3, "MMD": 0.02},
    },
    "rows": [
        {"method": method, "seed": seed, "WD": value + seed, "CD": value, "MMD": value}
        for method, value in ((OURS, 0.25), (COPULA, 0.75), ("training cells", 0.125))
        for seed in (0, 0, 2)
    ],
}


def generation(**aucs: list[float]) -> dict[str, Any]:
    rows = [{"method": method, "scores": dict.fromkeys(AUCS, auc)} for method, values in aucs.items() for auc in values]
    return {"metrics": dict.fromkeys(AUCS, {}), "data": {"description": "some cells"}, "rows": rows}


def responses(**distances: tuple[float, float]) -> dict[str, Any]:
    rows = [
        {"fold": fold, "prediction": name, DISTANCE: value}
        for name, values in distances.items()
        for fold, value in zip("ab", values, strict=True)
    ]
    return {"rows": rows}


def test_a_row_has_medians_and_names_the_best_opponent_and_baseline() -> None:
    cells = generation(
        **{
            OURS: [0.5, 0.625, 0.9],
            "scVI, Gaussian of the label": [0.7],
            "CFGen": [0.9],
            COPULA: [0.6],
            "shuffled genes": [0.55],
            "other real cells": [0.5],
        }
    )
    treated = responses(
        **{MODEL: (1.0, 3.0), "CellFlow": (5.0, 6.0), "scGen": (4.0, 6.0)},
        **{"nearest_context": (2.0, 2.5), "other_contexts": (9.0, 9.0), "real_half": (0.5, 0.5)},
    )
    of_cells, published_cells, of_type, left_out = results_table([cells], treated, [PUBLISHED], CELLS).splitlines()[2:]
    assert "some cells" in of_cells and numbers(of_cells) == [0.62, 0.62, 0.7, 0.7, 0.55, 0.55, 0.5, 0.5]
    assert of_cells.count("(scVI)") == of_cells.count("(shuffled genes)") == 2
    assert "0.5 (One); 0.02 (Two)" in published_cells and "0.25; 0.2500" in published_cells
    assert "| 2.00 | 5.00 (scGen) | 2.25 (shift of the nearest type) | 0.50 |" in of_type
    assert "a type left out" in left_out and "| 1.00 | 2.00 (Second) | 1.50 (similarity" in left_out


def test_what_was_not_measured_is_a_dash() -> None:
    cells = generation(**{OURS: [0.6], COPULA: [0.7], "other real cells": [0.5]})
    treated = responses(**{MODEL: (1.0, 3.0), "nearest_context": (2.0, 2.5), "real_half": (0.5, 0.5)})
    assert "| -; - |" in results_table([cells], treated, [PUBLISHED], CELLS).splitlines()[2]
