"""Cells between two sets of conditions: the ends are those of `generate`, and the way between them is linear."""

import numpy as np
import pandas as pd
import pytest
import torch
from small_cells import simulated_cells, simulated_shares, trained_model

from scdiffgen.conditions import MixedConditions
from scdiffgen.model import NetworkOptions, TokenDiffusion
from scdiffgen.model._cell_request import encode

START, END = {"cell_type": "a", "batch": "x", "age": 30.0}, {"cell_type": "b", "batch": "x", "age": 50.0}
ASKED = {"n_cells": 6, "n_steps": 4, "seed": 3, "silent": True}


def test_ends_are_the_cells_of_generate(small: TokenDiffusion) -> None:
    found = small.interpolate(START, END, [0, 0.5, 1], **ASKED)
    assert found.obs["weight"].tolist() == [0.0] * 6 + [0.5] * 6 + [1.0] * 6
    assert found.obs.iloc[0][["start_cell_type", "end_cell_type", "end_age"]].tolist() == ["a", "b", 50.0]
    for weight, conditions in ((0, START), (1, END)):
        expected = small.generate(conditions, **ASKED)
        assert (found[found.obs["weight"] == weight].X != expected.X).nnz == 0
    assert (found[:6].X != found[6:12].X).nnz


def test_ends_agree_with_missing_conditions_and_several_minibatches(small: TokenDiffusion) -> None:
    found = small.interpolate({"cell_type": "a"}, None, [0, 1], batch_size=4, **ASKED)
    for rows, conditions in ((slice(6), {"cell_type": "a"}), (slice(6, 12), None)):
        assert (found[rows].X != small.generate(conditions, batch_size=4, **ASKED).X).nnz == 0


def test_network_input_is_mixed_linearly(small: TokenDiffusion) -> None:
    denoiser = small.module.ema_denoiser
    requests = (small.draw_conditions(each, n_cells=2, seed=0) for each in (START, END))
    start, end = (encode(small, table[["cell_type", "batch", "age"]]).to(torch.device("cpu")) for table in requests)
    embedded = [denoiser.embed(each, 2) for each in (start, end, MixedConditions(start, end, 0.3))]
    torch.testing.assert_close(embedded[2], 0.7 * embedded[0] + 0.3 * embedded[1])
    assert (embedded[0] - embedded[1]).abs().max() > 1e-3
    numbers = [denoiser.embed.numbers(each, 2) for each in (start, end, MixedConditions(start, end, 0.3))]
    torch.testing.assert_close(numbers[2], 0.7 * numbers[0] + 0.3 * numbers[1])


def test_cells_move_from_the_start_to_the_end() -> None:
    model = trained_model(simulated_cells(200), 30, labels_key="cell_type", plan_kwargs={"lr": 1e-2})
    weights = [0.0, 0.5, 1.0]
    found = model.interpolate({"cell_type": "a"}, {"cell_type": "b"}, weights, n_cells=100, n_steps=8, silent=True)
    axis = np.diff(np.log(simulated_shares()), axis=0)[0]
    counts = [found[found.obs["weight"] == weight].X.toarray().sum(0) for weight in weights]
    means = [cells @ axis / cells.sum() for cells in counts]
    noise = 0.03  # of 100 cells; the network need not move evenly between both ends
    assert means[0] - noise < means[1] < means[2] + noise
    assert means[2] - means[0] > 0.5 * np.diff(simulated_shares() @ axis)


@pytest.mark.parametrize("weights", [[], [-0.1], [0, np.nan], [2]])
def test_impossible_weights_are_named(small: TokenDiffusion, weights: list[float]) -> None:
    with pytest.raises(ValueError, match="`weights` is .* between 0 and 1"):
        small.interpolate(START, END, weights, **ASKED)


def test_unequal_numbers_of_cells_are_named(small: TokenDiffusion) -> None:
    with pytest.raises(ValueError, match="`start` and `end` request 2 and 1 cells"):
        small.interpolate(pd.DataFrame({"cell_type": ["a", "b"]}), {"cell_type": "b"}, silent=True)


@pytest.mark.parametrize("process", ["gaussian", "latent"])
def test_other_processes_meet_both_ends_and_move_between_them(process: str) -> None:
    adata = simulated_cells()
    model = trained_model(
        adata, 2, 256, process=process, network=NetworkOptions(n_heads=1), labels_key="cell_type", batch_key="batch"
    )
    ends = {0: {"cell_type": "a"}, 1: {"cell_type": "b"}}
    found = model.interpolate(*ends.values(), [0, 0.5, 1], **ASKED)
    for weight, conditions in ends.items():
        assert (found[found.obs["weight"] == weight].X != model.generate(conditions, **ASKED).X).nnz == 0
    assert (found[:6].X != found[6:12].X).nnz
