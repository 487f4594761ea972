"""The table of studies of variants of the model."""

from benchmarks._variants import study_table


def test_a_table_has_the_last_run_of_each_seed() -> None:
    runs = [("a", 0, 9.0), ("a", 0, 1.0), ("a", 1, 2.0), ("a", 2, 4.0), ("b", 0, None)]
    lines = [{"size": size, "seed": seed, "scores": {"nll": score}, "environment": {}} for size, seed, score in runs]
    assert study_table(lines, {"nll": 1}).splitlines()[2:] == ["| a | 2.0 (1.0 to 4.0) |", "| b | - |"]
