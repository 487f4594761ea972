"""The study of embedded expression: which counts are hidden, when, and what is written."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from benchmarks.studies import expression_embeddings as study
from csr import csr
from small_cells import simulated_cells, small_model


def test_counts_that_are_left_out_are_hidden_from_the_encoder_for_a_while() -> None:
    counts = np.array([[0, 1, 2, 3], [6, 7, 8, 60], [3, 3, 0, 0]])
    shown = np.array([[0, 1, 2, 0], [0, 0, 8, 60], [0, 0, 0, 0]])
    for state in (csr(counts), csr(counts).to_dense()):
        np.testing.assert_array_equal(study.without_left_out(state).to_dense(), shown)
    model = small_model(simulated_cells(20))
    encoder, wide = model.module.denoiser.network.trunk.encoder, [np.resize(of, (3, 20)) for of in (counts, shown)]
    hidden, rest = csr(wide[0]), encoder.read(csr(wide[1]))
    with study.hidden_counts(model):
        torch.testing.assert_close(encoder.read(hidden), rest)
    assert (encoder.read(hidden) - rest).abs().max() > 0.1 and "read" not in vars(encoder)


@pytest.mark.usefixtures("_small_study")
def test_the_study_runs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    output = tmp_path / "runs.jsonl"
    common = ["--seeds", "0", "--quick", "--threads", "1", "--output", str(output)]
    study.main(["--data", "pbmc68k", "--variants", "direct", "--left-out", *common])
    runs = [json.loads(line) for line in output.read_text().splitlines()]
    assert [run["trained on"] for run in runs] == ["all", "all but 3, 6, 7"]
    assert 0 < runs[1]["scores"]["nats, counts hidden"] < 10 and "nats, counts hidden" not in runs[0]["scores"]
    assert "| pbmc68k | direct | all but 3, 6, 7 |" in capsys.readouterr().out
