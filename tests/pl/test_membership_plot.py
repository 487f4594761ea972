"""Intervals of membership inference attacks are those of the tables."""

import numpy as np
import pandas as pd
import pytest

from scdiffgen import pl

ATTACKS = ("distance", "density_ratio", "classifier")


def table(level: str, auc: float) -> pd.DataFrame:
    index = pd.MultiIndex.from_product([[level], ATTACKS], names=["level", "attack"])
    columns = {"auc": auc + 0.01 * np.arange(3), "control": 0.5 + 0.01 * np.arange(3)}
    found = pd.DataFrame(columns, index)
    for name in columns:
        found[f"{name}_low"], found[f"{name}_high"] = found[name] - 0.05, found[name] + 0.05
    return found


def test_each_attack_and_its_control_have_their_interval() -> None:
    tables = {"copies": table("cell", 0.9), "generated": table("cell", 0.6)}
    axis = pl.membership_inference(tables)
    points = np.array([line.get_xydata()[0] for line in axis.lines if line.get_marker() == "o"])
    expected = np.concatenate([found[["auc", "control"]].to_numpy().ravel() for found in tables.values()])
    np.testing.assert_allclose(points[:, 0], expected)
    assert (np.round(points[:, 1]) == np.repeat([0, 1], 6)).all()
    assert [label.get_text() for label in axis.get_yticklabels()] == ["copies", "generated"]
    ends = np.array([lines.get_paths()[0].vertices for lines in axis.collections])
    np.testing.assert_allclose(ends[:, :, 0], expected[:, None] + [-0.05, 0.05])
    assert [text.get_text() for text in axis.get_legend().get_texts()] == [*ATTACKS, "control"]


def test_a_single_table_is_enough_and_needs_the_level() -> None:
    axis = pl.membership_inference(table("donor", 0.7), level="donor")
    assert axis.get_xlabel() == "AUC of attacks on donors"
    with pytest.raises(ValueError, match=r"`level` is 'cell': choose one of \['donor'\]"):
        pl.membership_inference(table("donor", 0.7))
