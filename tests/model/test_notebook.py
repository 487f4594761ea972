"""What a notebook shows of a model and its evaluation, and what it does not show while one is trained and loaded."""

import logging
from pathlib import Path
from xml.etree import ElementTree

import pandas as pd
import pytest
import scvi
from small_cells import QUIET, simulated_cells, small_model

from scdiffgen.metrics import Evaluation
from scdiffgen.model import TokenDiffusion
from scdiffgen.model._held_out_evaluation import HeldOutEvaluation


def shown(html: str) -> tuple[str, int]:
    """The text, and the number of folded tables, of HTML whose tags close in order."""
    root = ElementTree.fromstring(f"<div>{html}</div>")
    return "".join(root.itertext()), len(root.findall(".//details"))


def test_a_model_shows_its_summary(small: TokenDiffusion, capsys: pytest.CaptureFixture[str]) -> None:
    text = repr(small)
    assert capsys.readouterr().out == ""
    assert "2 tokens of 8" in text and "Training status: Trained" in text


def test_a_model_shows_a_table_in_a_notebook(small: TokenDiffusion) -> None:
    adata = simulated_cells(30)
    adata.obs = adata.obs.rename(columns={"cell_type": "<b>type</b>"})
    other = small_model(adata, labels_key="<b>type</b>")
    for model, trained, condition in ((small, "yes", "age"), (other, "no", "<b>type</b>")):
        root = ElementTree.fromstring(model._repr_html_())
        rows = {row[0].text: row[1].text for row in root.findall("tr")}
        assert rows["genes"] == "20" and rows["network"] == "2 tokens of 8, 1 layers" and rows["trained"] == trained
        assert condition in rows  # as text, not as a tag
    assert {row[0].text: row[1].text for row in ElementTree.fromstring(small._repr_html_())[1:]}["age"] == "a number"


def test_a_held_out_evaluation_shows_its_remarks_and_folds_its_tables() -> None:
    table = pd.DataFrame({"model": [1.0, 2.0]}, index=["<a>", "b"])
    found = HeldOutEvaluation(table, Evaluation(table), table, ["Cells < 100.", "Nothing else."])
    assert repr(found).split("\n")[1:] == ["- Cells < 100.", "- Nothing else."]
    html, n_folded = shown(found._repr_html_())
    assert "Cells < 100." in html and "<a>" in html and n_folded == 3
    assert found.likelihood is table and len(found.remarks) == 2 and found.programs is None


def test_training_and_loading_say_nothing_but_when_all_is_asked_for(
    caplog: pytest.LogCaptureFixture,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    recwarn: pytest.WarningsRecorder,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(logging.getLogger("lightning.pytorch"), "propagate", True)  # whatever ran before
    caplog.set_level(logging.INFO, "lightning.pytorch")
    model = small_model()
    capsys.readouterr()
    caplog.clear()
    model.train(max_epochs=1, **QUIET)
    model.save(tmp_path / "model")
    TokenDiffusion.load(tmp_path / "model", model.adata)
    assert caplog.text == "" and capsys.readouterr().out == ""
    assert [str(warning.message) for warning in recwarn if "lightning" in warning.filename] == []
    before, level = scvi.settings.verbosity, logging.getLogger("lightning.pytorch").level
    scvi.settings.verbosity = logging.DEBUG
    try:
        model.train(max_epochs=1, **QUIET)
    finally:
        scvi.settings.verbosity = before
    assert "`max_epochs=1` reached" in caplog.text
    assert logging.getLogger("lightning.pytorch").level == level
