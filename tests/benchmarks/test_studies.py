"""The table of studies of variants of the model."""

import pandas as pd
from benchmarks._variants import study_table
from benchmarks.studies import depth


def test_a_table_has_the_last_run_of_each_seed() -> None:
    runs = [("a", 0, 9.0), ("a", 0, 1.0), ("a", 1, 2.0), ("a", 2, 4.0), ("b", 0, None)]
    lines = [{"size": size, "seed": seed, "scores": {"nll": score}, "environment": {}} for size, seed, score in runs]
    assert study_table(lines, {"nll": 1}).splitlines()[2:] == ["| a | 2.0 (1.0 to 4.0) |", "| b | - |"]


def test_the_table_by_depth_has_medians_over_seeds_and_says_who_is_nearer() -> None:
    def row(data: str, method: str, seed: int, components: float, genes: float) -> dict[str, object]:
        about = {"data": data, "form": "few", "molecules_per_gene": {"shallow": 0.2, "deep": 3.0}[data]}
        return about | {"method": method, "seed": seed, "components": components, "genes": genes}

    rows = [row("deep", "thinning", seed, auc, 0.6) for seed, auc in enumerate((0.5, 0.6, 0.9))]
    rows += [row("deep", "gaussian", 0, 0.7, 0.55), row("deep", "linear copula", 0, 0.8, 0.61)]
    rows += [row("shallow", "thinning", 0, 0.61, 0.7), row("shallow", "linear copula", 0, 0.52, 0.68)]
    rows += [row("deep", name, 0, 0.5, 0.5) for name in ("scVI", "other real cells")]
    lines = depth.table(pd.DataFrame(rows)).splitlines()
    assert lines[2:4] == [
        "| shallow | few | 0.2 | 0.61 / 0.70 |  | 0.52 / 0.68 |  |  |",
        "| deep | few | 3 | 0.60 / 0.60 | 0.70 / 0.55 | 0.80 / 0.61 | 0.50 / 0.50 | 0.50 / 0.50 |",
    ]
    assert lines[5] == (
        "Thinning is nearer than the linear copula in 1 of 2 rows on components, by 0.20 at most, and elsewhere up to "
        "0.09 farther; in 1 of 2 rows on genes, by 0.01 at most, and elsewhere up to 0.02 farther."
    )
    assert "in 0 of 1 rows on genes, by 0.00 at most, and elsewhere up to 0.05 farther" in lines[7]
