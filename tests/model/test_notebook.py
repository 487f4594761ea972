"""What a notebook shows of a model and its criticism, and what it does not show while one is trained and loaded."""

from __future__ import annotations

import logging
from html.parser import HTMLParser
from pathlib import Path

import pandas as pd
import pytest
import scvi
from small_cells import QUIET, small_model

from scdiffgen.metrics import Evaluation
from scdiffgen.model import TokenDiffusion
from scdiffgen.model._criticism import Criticism


class Tags(HTMLParser):
    """Counts tags, and raises where they do not close in order."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.text, self.n_folded = "", 0
        self.feed(html)
        assert not self.open

    def handle_starttag(self, tag: str, attrs: object) -> None:
        self.open.append(tag)
        self.n_folded += tag == "details"

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data


def test_a_model_shows_its_summary_as_text_and_as_html(
    small: TokenDiffusion, capsys: pytest.CaptureFixture[str]
) -> None:
    text = repr(small)
    assert capsys.readouterr().out == ""
    assert "2 tokens of 8" in text and "Training status: Trained" in text
    shown = Tags(small._repr_html_())
    assert all(line in shown.text for line in text.split("\n"))
    assert shown.n_folded == 2 and "labels_key" in shown.text and "'cell_type'" in shown.text


def test_a_criticism_shows_its_remarks_and_folds_its_tables() -> None:
    table = pd.DataFrame({"model": [1.0, 2.0]}, index=["<a>", "b"])
    criticism = Criticism(table, Evaluation(table), table, ["Cells < 100.", "Nothing else."])
    assert repr(criticism).split("\n")[1:] == ["- Cells < 100.", "- Nothing else."]
    shown = Tags(criticism._repr_html_())
    assert "Cells < 100." in shown.text and "<a>" in shown.text and shown.n_folded == 3
    assert criticism.likelihood is table and len(criticism.remarks) == 2 and criticism.programs is None


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
