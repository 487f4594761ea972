"""Where time goes: shares of kinds, and the operations of matrix products."""

from dataclasses import replace

import numpy as np
import torch
from benchmarks import _where_time_goes as where
from benchmarks._data import load_split
from benchmarks._models import scdiffgen_methods


def test_kinds_of_operations() -> None:
    kinds = {"aten::addmm": "matrix products", "aten::add": "sums, products, copies", "aten::transpose": where.REST}
    kinds |= {"aten::_scaled_dot_product_flash_attention_for_cpu": "attention", "aten::bernoulli_": "random numbers"}
    assert {operation: where.kind_of(operation) for operation in kinds} == kinds


def test_products_are_counted_and_take_most_of_their_own_time() -> None:
    one, other = torch.randn(300, 400), torch.randn(400, 500)
    found = where.shares(lambda: [one @ other for _ in range(20)])
    assert found["operations"] == 20 * 2 * 300 * 400 * 500
    assert found["matrix products"] > 0.8
    assert np.isclose(sum(found[kind] for kind in [*where.KINDS, where.REST]), 1)


def test_a_model_is_profiled() -> None:
    whole = load_split("pbmc68k", 0)
    few = replace(whole, train=whole.train[:200].copy())
    found = where.where_time_goes(few, lambda model: scdiffgen_methods(model, [2])[0])
    assert [*found["rows"]] == ["training", "generating, scdiffgen, 2 steps"]
    assert all(0 < row["at the rate of matrix products"] < 1 for row in found["rows"].values())


def test_the_table_has_the_bound() -> None:
    row = dict.fromkeys([*where.KINDS, where.REST], 0.1) | {"at the rate of matrix products": 0.25}
    table = where.time_table({"rate": 9e10, "rows": {"training": row}})
    assert "| matrix products | 10% |" in table
    assert table.splitlines()[-1] == "| matrix products alone, at 90 billion operations a second | 25% |"
