"""The study of descriptions: what is given of each label, how texts are encoded, and what is recognised."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from anndata import AnnData
from benchmarks._data import FOLDER, KANG, LABEL, PAUL15, load_split
from benchmarks.studies import text_conditions
from scipy import sparse

from scdiffgen import _text

needs_cells = pytest.mark.skipif(not (FOLDER / PAUL15).exists(), reason="the data is not there")


@pytest.mark.parametrize(("name", "file"), [("paul700", PAUL15), ("kang700", KANG)])
def test_every_label_has_descriptions_of_its_own_of_each_kind(name: str, file: str) -> None:
    if not (FOLDER / file).exists():
        pytest.skip("the data is not there")
    labels = load_split(name, 0).train.obs[LABEL].cat.categories
    texts = [text for label in labels for text in text_conditions.described(label).values()]
    assert len(set(texts)) == len(texts) == 5 * len(labels)


def test_a_type_and_a_treatment_are_described_both() -> None:
    found = text_conditions.described("NK cells, stim")
    assert found["training"] == "NK cells, treated with interferon beta"
    assert found["markers"] == "cells that express GNLY, NKG7 and PRF1, with ISG15 and IFIT1"


@pytest.mark.parametrize("encoder", ["hashed words", "hashed parts of words"])
def test_hashed_texts_are_as_alike_as_their_words(encoder: str) -> None:
    variant = text_conditions.VARIANTS[f"{encoder}, one"]
    with variant.encoder():
        vectors = _text.embed_texts(["monocyte progenitors", "progenitors monocyte", "red erythroblasts"])
    assert vectors.shape == (3, _text.TEXT_DIM)
    np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 1, rtol=1e-6)
    likeness = vectors @ vectors.T
    assert likeness[0, 1] == pytest.approx(1) and likeness[0, 2] < 0.3
    assert "red erythroblasts" not in _text._vectors


def test_real_cells_of_a_label_score_as_it_and_those_of_another_do_not() -> None:
    rng = np.random.default_rng(0)
    rates, labels = rng.gamma(2.0, size=(2, 60)), np.repeat(["a", "b"], 200)
    counts = rng.poisson(np.repeat(rates, 200, axis=0)).astype(np.float32)
    cells = AnnData(sparse.csr_matrix(counts), {LABEL: labels}, obsm={})
    judged = text_conditions.Judged(cells, 0)
    right, wrong = judged.score(*judged.real), judged.score(judged.real[0], np.where(judged.real[1] == "a", "b", "a"))
    assert right["recognised"] == 1 and right["Pearson of differences"] > 0.9 and right["of_labels"] == {"a": 1, "b": 1}
    assert wrong["recognised"] == 0 and wrong["Pearson of differences"] < -0.9
    runs = [
        {"data": "d", "variant": variant, "given": given, "seed": 0, "scores": scores}
        for variant, given, scores in [("real cells", "real", right), ("labels", "training", wrong)]
    ]
    expected = "| d | labels | training | a (0.00 of 1.00); b (0.00 of 1.00) |"
    assert text_conditions.failing(runs).splitlines()[2:] == [expected]


@needs_cells
def test_the_study_runs(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(text_conditions, "N_GENERATED", 10)
    output = tmp_path / "runs.jsonl"
    options = ["--data", "paul700", "--seeds", "10", "--quick", "--threads", "1", "--output", str(output)]
    text_conditions.main([*options, "--variants", "hashed words, three"])
    runs = [json.loads(line) for line in output.read_text().splitlines()]
    assert [run["given"] for run in runs] == ["real", "training", "another label", "paraphrase", "markers"]
    assert "| paul700 | hashed words, three | paraphrase |" in capsys.readouterr().out
