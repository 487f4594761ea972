"""The table of the README holds what was measured."""

from __future__ import annotations

from typing import Any

from benchmarks import _readme
from verdicts import numbers


def measured(description: str, **aucs: list[float]) -> dict[str, Any]:
    rows = [
        {"method": method, "kind": "", "scores": {_readme.PRIOR_METRIC: auc}} for method in aucs for auc in aucs[method]
    ]
    return {"metrics": {_readme.PRIOR_METRIC: {}}, "data": {"description": description}, "rows": rows}


def test_the_table_holds_medians_and_says_what_was_not_measured() -> None:
    result = measured("Some cells", **{"other real cells": [0.4, 0.5, 0.9], _readme.OURS: [0.611]})
    line = _readme.generation_summary([result]).splitlines()[-1]
    assert line.startswith("| Some cells |") and numbers(line) == [0.5, 0.61]


def test_responses_are_summarised_over_seeds_and_types() -> None:
    rows = [
        {"fold": fold, "prediction": name, **dict.fromkeys(_readme.RESPONSE_SCORES, value)}
        for name, values in (
            (_readme.MODEL, (1.0, 3.0)),
            ("real_half", (0.5, 0.5)),
            ("nearest_context", (2.0, 2.5)),
            ("effect: keep 0", (9.0, 9.0)),
        )
        for fold, value in zip("ab", values, strict=True)
    ]
    lines = _readme.response_summary({"rows": rows}).splitlines()
    assert [numbers(line) for line in lines[2:4]] == [[0.5] * 9, [2.0] * 7 + [1.0, 3.0]]
    assert numbers(lines[4]) == [2.25] * 6 + [2.25, 2.0, 2.5, 1.0, 2.0]  # nearer in one of two
