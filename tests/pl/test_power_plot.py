"""Figures of power, and of membership inference attacks, show the numbers of their tables."""

from itertools import product

import numpy as np
import pandas as pd
import pytest

from scdiffgen import pl


@pytest.fixture
def table() -> pd.DataFrame:
    rows = list(product([3, 6, 10], [50, 200], ["all", "low"], [-1.0, -0.5, 0.5, 1.0]))
    table = pd.DataFrame(rows, columns=["n_donors", "n_cells", "stratum", "effect"])
    size = np.sqrt(table["n_donors"] * table["n_cells"]) * table["effect"].abs() * (1 + 0.2 * (table["effect"] > 0))
    power = 1 - np.exp(-size / 20) - 0.1 * (table["stratum"] == "low")
    return table.assign(power=power, low=power - 0.05, high=power + 0.05)


@pytest.mark.parametrize(("x", "other", "n_panels"), [("n_donors", "n_cells", 2), ("n_cells", "n_donors", 3)])
def test_a_line_has_the_power_of_its_fold_change(table: pd.DataFrame, x: str, other: str, n_panels: int) -> None:
    axes = pl.power_curves(table, x)
    assert len(axes) == n_panels
    for axis, value in zip(axes, sorted(table[other].unique()), strict=True):
        lines = {line.get_label(): line for line in axis.get_lines() if "fold" in str(line.get_label())}
        assert list(lines) == ["0.5-fold", "0.71-fold", "1.4-fold", "2-fold"]
        for effect, line in zip([-1.0, -0.5, 0.5, 1.0], lines.values(), strict=True):
            rows = table[(table["effect"] == effect) & (table[other] == value) & (table["stratum"] == "all")]
            np.testing.assert_allclose(line.get_ydata(), rows.sort_values(x)["power"])
            np.testing.assert_array_equal(line.get_xdata(), sorted(table[x].unique()))
    colours = {name: line.get_color() for name, line in lines.items()}
    assert colours["0.5-fold"] == colours["2-fold"] != colours["1.4-fold"]


def test_errors_name_argument_value_and_way_out(table: pd.DataFrame) -> None:
    with pytest.raises(ValueError, match=r"`x` is 'donors': choose one of \['n_donors', 'n_cells'\]"):
        pl.power_curves(table, "donors")
    with pytest.raises(ValueError, match=r"`stratum` is 'high': choose one of \['all', 'low'\]"):
        pl.power_curves(table, stratum="high")


def attacks(level: str, auc: float) -> pd.DataFrame:
    index = pd.MultiIndex.from_product(
        [[level], ["distance", "density_ratio", "classifier"]], names=["level", "attack"]
    )
    found = pd.DataFrame({"auc": auc + 0.01 * np.arange(3), "control": 0.5 + 0.01 * np.arange(3)}, index)
    return found.join((found - 0.05).add_suffix("_low")).join((found + 0.05).add_suffix("_high"))


def test_each_attack_and_its_control_have_their_interval() -> None:
    tables = {"copies": attacks("cell", 0.9), "generated": attacks("cell", 0.6)}
    axis = pl.membership_inference(tables)
    points = np.array([line.get_xydata()[0] for line in axis.lines if line.get_marker() == "o"])
    expected = np.concatenate([found[["auc", "control"]].to_numpy().ravel() for found in tables.values()])
    np.testing.assert_allclose(points[:, 0], expected)
    assert (np.round(points[:, 1]) == np.repeat([0, 1], 6)).all()
    ends = np.array([lines.get_paths()[0].vertices for lines in axis.collections])
    np.testing.assert_allclose(ends[:, :, 0], expected[:, None] + [-0.05, 0.05])
    with pytest.raises(ValueError, match=r"`level` is 'cell': choose one of \['donor'\]"):
        pl.membership_inference(attacks("donor", 0.7))
