"""What error messages share reads as a person would write it."""

import numpy as np
import pytest

from scdiffgen._messages import and_others, counted, did_you_mean, listed, plain, unknown_name


def test_at_most_ten_values_are_listed_as_the_user_wrote_them():
    assert repr(plain(np.int64(3))) == "3"
    assert listed(np.array(["B cells", "T cells"])) == "'B cells', 'T cells'"
    assert listed(range(10)) == "0, 1, 2, 3, 4, 5, 6, 7, 8, 9"
    assert listed(range(11)) == "0, 1, 2, 3, 4, 5, 6, 7, 8, 9, ... (11 in all)"


@pytest.mark.parametrize(
    ("value", "known", "sentence"),
    [
        ("cell_typ", ["cell_type", "batch"], " Did you mean 'cell_type'?"),
        ("B CELL", ["B cell", "T cell"], " Did you mean 'B cell' or 'T cell'?"),
        ("7", [3, 7], " Did you mean 7?"),
        ("dose", ["batch"], ""),
    ],
)
def test_what_is_close_is_offered(value, known, sentence):
    assert did_you_mean(value, known) == sentence


def test_numbers_of_things():
    assert [and_others(n, "cell") for n in range(3)] == ["", " and 1 other cell", " and 2 other cells"]
    assert [counted(n, "cell") for n in (1, 1200)] == ["1 cell", "1,200 cells"]
    assert counted(2, "category", "categories") == "2 categories"


def test_the_opening_of_a_message():
    assert unknown_name("column of `adata.obs`", "dose", []) == "'dose' is not a column of `adata.obs` (there is none)."
    assert unknown_name("condition", np.str_("bath"), ["batch"]) == (
        "'bath' is not a condition (they are 'batch'). Did you mean 'batch'?"
    )
