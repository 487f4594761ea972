from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest
from PIL import Image
from small_cells import trained_model
from treated_cells import SETUP, treated_cells

from scdiffgen.pl import dose_response

DOSES = [10.0, 0.0, 0.1, 1.0]


@pytest.fixture
def frame() -> pd.DataFrame:
    curves = pd.DataFrame({"dose": DOSES * 3, "gene": np.repeat(["A", "B", "C"], 4)})
    curves["mean"] = np.arange(12.0)
    return curves.assign(low=curves["mean"] - 0.25, high=curves["mean"] + 0.5)


def test_dose_curve_has_means_by_dose_and_a_band_from_low_to_high(frame: pd.DataFrame) -> None:
    axis = dose_response(frame, ["B"])[0]
    np.testing.assert_array_equal(axis.lines[0].get_xydata(), [[0.1, 6], [1, 7], [10, 4]])
    corners = {tuple(corner) for corner in axis.collections[0].get_paths()[0].vertices}
    assert corners >= {(0.1, 5.75), (0.1, 6.5), (1, 6.75), (1, 7.5), (10, 3.75), (10, 4.5)}


def test_extrapolated_doses_are_joined_to_the_measured_curve_by_a_dashed_line(frame: pd.DataFrame) -> None:
    first, second = dose_response(frame.assign(extrapolated=frame["dose"] > 0.5), ["B", "A"])
    solid, dashed = first.lines[:2]
    np.testing.assert_array_equal(solid.get_xydata(), [[0.1, 6]])
    np.testing.assert_array_equal(dashed.get_xydata(), [[0.1, 6], [1, 7], [10, 4]])
    assert (solid.get_linestyle(), dashed.get_linestyle()) == ("-", "--")
    assert [text.get_text() for text in first.get_legend().texts] == ["beyond measured doses"]
    assert second.get_legend() is None
    inside = dose_response(frame.assign(extrapolated=False), ["B"])[0]
    assert len(inside.lines) == 3 and inside.get_legend() is None


def test_dose_zero_is_a_point_with_its_interval_and_a_line_at_its_mean(frame: pd.DataFrame) -> None:
    axis = dose_response(frame, ["B"])[0]
    level, point = axis.lines[1:]
    assert set(level.get_ydata()) == {5}
    np.testing.assert_array_equal(point.get_xydata(), [[0, 5]])
    np.testing.assert_array_equal(axis.collections[1].get_segments()[0], [[0, 4.75], [0, 5.5]])


def test_the_axis_is_logarithmic_over_the_positive_doses_and_reaches_zero(frame: pd.DataFrame) -> None:
    axis = dose_response(frame, ["A"])[0]
    zero, first, second, third = axis.transData.transform([[dose, 0] for dose in (0, 0.1, 1, 10)])[:, 0]
    assert second - first == pytest.approx(third - second, rel=1e-6)
    assert axis.bbox.x0 < zero < first
    assert third < axis.bbox.x1
    assert [label.get_text() for label in axis.get_xticklabels()] == ["0", "0.1", "1", "10"]


def test_without_dose_zero_the_axis_is_purely_logarithmic(frame: pd.DataFrame) -> None:
    axis = dose_response(frame[frame["dose"] > 0], ["A"])[0]
    assert axis.get_xscale() == "log"
    assert len(axis.lines) == 1


def test_doses_within_a_decade_are_ticks_themselves(frame: pd.DataFrame) -> None:
    frame["dose"] = frame["dose"].replace({0.1: 2.0, 1.0: 3.0, 10.0: 5.0})
    axis = dose_response(frame, ["A"])[0]
    assert [label.get_text() for label in axis.get_xticklabels()] == ["0", "2", "3", "5"]


def test_panels_are_the_genes_asked_for_in_rows_of_ncols(frame: pd.DataFrame) -> None:
    axes = dose_response(frame, ["C", "A", "B"], ncols=2, dose_unit="uM")
    assert [axis.get_title() for axis in axes] == ["C", "A", "B"]
    assert [axis.get_ylabel() for axis in axes] == ["mean log expression", "", "mean log expression"]
    assert [axis.get_xlabel() for axis in axes] == ["", "dose (uM)", "dose (uM)"]
    assert len(axes[0].get_figure().axes) == 3
    frame["gene"] = frame["gene"].replace("B", "LYZ")
    assert [axis.get_title() for axis in dose_response(frame, "LYZ")] == ["LYZ"]


def test_the_twelve_most_changed_genes_are_drawn_in_order() -> None:
    changes = np.random.default_rng(0).permutation(30) - 15.0
    table = pd.DataFrame({"dose": np.tile(DOSES, 30), "gene": np.repeat([f"gene{i}" for i in range(30)], 4)})
    table["mean"] = 100.0 * np.repeat(np.arange(30), 4) + np.outer(changes, [0.0, 1.0, 0.5, 0.2]).ravel()
    axes = dose_response(table.assign(low=table["mean"], high=table["mean"]))
    assert len(axes) == 12
    drawn = [abs(changes[int(axis.get_title().removeprefix("gene"))]) for axis in axes]
    assert drawn == sorted(np.abs(changes), reverse=True)[:12]
    few = dose_response(table.assign(low=0, high=0)[::-1][: 4 * 12])
    assert [axis.get_title() for axis in few] == [f"gene{i}" for i in range(29, 17, -1)]


def test_the_unit_is_that_of_the_table_unless_another_is_given(frame: pd.DataFrame) -> None:
    frame.attrs["dose_unit"] = "nM"
    labels = [dose_response(frame, "A", dose_unit=unit)[0].get_xlabel() for unit in (None, "uM", "")]
    assert labels == ["dose (nM)", "dose (uM)", "dose"]


def test_a_model_hands_on_the_registered_unit() -> None:
    cells = treated_cells()
    model = trained_model(cells, **SETUP, dose_unit="nM")
    curves = model.dose_response(None, "A", [0.5, 1.0], indices=[0, 3], n_steps=2, seed=0, silent=True)
    assert dose_response(curves, "gene0")[0].get_xlabel() == "dose (nM)"


def test_it_draws_into_given_axes_and_writes_a_file(frame: pd.DataFrame, tmp_path: Path) -> None:
    (_, given), before = plt.subplots(), frame.copy()
    assert dose_response(frame, ["A"], ax=given, save=tmp_path / "curve.png") == [given]
    assert np.asarray(Image.open(tmp_path / "curve.png").convert("L")).std() > 0
    pd.testing.assert_frame_equal(frame, before)
    with pytest.raises(ValueError, match="`ax` is one panel, but there are 3 to draw"):
        dose_response(frame, ax=given)


@pytest.mark.parametrize(
    ("change", "options", "message"),
    [
        ({"low": None}, {}, r"lacks the columns \['low'\]"),
        ({}, {"genes": ["A", "X"]}, r"`genes` is \['X'\]"),
        ({}, {"genes": []}, r"`genes` is \[\]"),
        ({}, {"ncols": 0}, "`ncols` is 0"),
        ({"dose": -1.0}, {}, "holds the dose -1"),
        ({"dose": 3.0}, {"genes": ["B"]}, "holds gene 'B' at dose 3 twice"),
    ],
)
def test_what_cannot_be_drawn_is_named(
    frame: pd.DataFrame, change: dict[str, float | None], options: dict[str, Any], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        dose_response(frame.assign(**change).dropna(axis=1), **options)
