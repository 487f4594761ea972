"""What a user asks for becomes a table with a number of cells in each row."""

from typing import Any

import numpy as np
import pandas as pd
import pytest

from scdiffgen.conditions import request_table


def test_a_mapping_is_one_row_and_may_hold_a_mapping() -> None:
    table = request_table({"cell_type": "B", "guide": "A+B", "dose": {"A": 1.0, "B": 0.5}}, n_cells=7)
    assert len(table) == 1
    assert table.loc[0].to_dict() == {"cell_type": "B", "guide": "A+B", "dose": {"A": 1.0, "B": 0.5}, "n_cells": 7}


def test_none_tells_nothing() -> None:
    pd.testing.assert_frame_equal(request_table(None, n_cells=3), pd.DataFrame({"n_cells": [3]}))
    pd.testing.assert_frame_equal(request_table(None), pd.DataFrame({"n_cells": [1]}))
    pd.testing.assert_frame_equal(request_table({}), pd.DataFrame({"n_cells": [1]}))
    assert request_table(None, n_training=7)["n_cells"].tolist() == [7]
    assert request_table(None, 2, n_training=7)["n_cells"].tolist() == [2]
    assert request_table({"cell_type": "B"}, n_training=7)["n_cells"].tolist() == [1]


def test_a_table_keeps_its_rows_and_is_not_changed() -> None:
    requested = pd.DataFrame({"cell_type": ["B", "T", "B"]}, index=["x", "y", "z"])
    before = requested.copy()
    assert request_table(requested, n_cells=np.int64(4))["n_cells"].tolist() == [4, 4, 4]
    assert request_table(requested)["n_cells"].tolist() == [1, 1, 1]
    assert request_table(requested).index.tolist() == [0, 1, 2]
    pd.testing.assert_frame_equal(requested, before)


def test_numbers_of_cells_in_the_table() -> None:
    table = request_table(pd.DataFrame({"cell_type": ["B", "T"], "n_cells": [2.0, 5.0]}))
    assert (table["n_cells"].dtype, table["n_cells"].tolist()) == (np.int64, [2, 5])


@pytest.mark.parametrize("n_cells", [0, -1, 2.5, "3", True, np.nan, np.inf, [10, 20]])
def test_what_is_no_number_of_cells_is_named(n_cells: Any) -> None:
    for request in (({"cell_type": "B"}, n_cells), (pd.DataFrame({"n_cells": [1, n_cells]}, dtype=object),)):
        with pytest.raises(ValueError, match="`n_cells` is .*: pass a positive integer; several are"):
            request_table(*request)
