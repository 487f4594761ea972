"""Two processes train as one does at the same global batch, and hold the same model at the end."""

import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from own_process import run_script

HERE = Path(__file__).parent

pytestmark = pytest.mark.skipif(
    not (torch.distributed.is_gloo_available() and hasattr(os, "fork")), reason="processes are forked, and talk by gloo"
)


def run(n_processes: int, folder: Path, *strategy: str) -> list[dict[str, Any]]:
    """What each process said."""
    run_script(HERE / "distributed_training.py", n_processes, folder, *strategy, folder=folder)
    return [json.loads(path.read_text()) for path in sorted(folder.glob("*.json"))]


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    return run(1, tmp_path_factory.mktemp("alone"))[0]


@pytest.fixture(scope="module")
def together(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    return run(2, tmp_path_factory.mktemp("together"))


@pytest.fixture(scope="module")
def from_a_notebook(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What the process says that forked the others."""
    (notebook,) = run(2, tmp_path_factory.mktemp("notebook"), "ddp_notebook")
    return notebook


def test_the_model_of_a_notebook_is_that_of_the_processes_it_forked(
    from_a_notebook: dict[str, Any], together: list[dict[str, Any]]
) -> None:
    """Its weights score cells as those of processes that Lightning started; it knows the losses and all cells."""
    assert from_a_notebook["remembered"] == 400
    np.testing.assert_allclose(from_a_notebook["nll"], together[0]["nll"], rtol=0.01)
    for name, losses in together[0]["history"].items():
        found, expected = np.array(from_a_notebook["history"][name]), np.array(losses)
        finite = np.isfinite(expected)  # one step is broken, in processes that know their rank from the start
        np.testing.assert_allclose(found[finite], expected[finite], rtol=0.03)


def test_processes_train_from_a_data_module_as_from_an_anndata(alone: dict[str, Any], tmp_path: Path) -> None:
    first, second = run(2, tmp_path, "streamed")
    assert first["weights"] == second["weights"] and first["rates"] == second["rates"]
    assert first["remembered"] == second["remembered"] == 400
    np.testing.assert_allclose(first["nll"], alone["nll"], rtol=0.02)


def test_all_processes_hold_the_same_model(together: list[dict[str, Any]]) -> None:
    """Weights and their average, after the last step."""
    assert [process["rank"] for process in together] == [0, 1]
    assert together[0]["weights"] == together[1]["weights"]
    assert {process["remembered"] for process in together} == {400}


def test_the_schedule_is_that_of_one_process(together: list[dict[str, Any]], alone: dict[str, Any]) -> None:
    for process in together:
        np.testing.assert_allclose(process["rates"], alone["rates"])


def test_losses_are_those_of_one_process_within_noise(together: list[dict[str, Any]], alone: dict[str, Any]) -> None:
    """Epoch by epoch within 3 %, which is what the epochs of one training differ by; the last validation within 1 %."""
    for name, tolerance in (("train_loss", 0.03), ("validation_loss", 0.02)):
        ours, theirs = (np.array(each["history"][name]) for each in (together[0], alone))
        assert len(ours) == len(theirs)
        np.testing.assert_allclose(ours, theirs, rtol=tolerance)
    np.testing.assert_allclose(
        together[0]["history"]["validation_loss"][-1], alone["history"]["validation_loss"][-1], 0.01
    )


def test_a_step_without_a_finite_gradient_in_one_process_is_skipped_by_all(
    together: list[dict[str, Any]], alone: dict[str, Any]
) -> None:
    for process in (*together, alone):
        assert process["skipped"] == ["Step 5 skipped: its gradient is not finite."]


def test_processes_draw_different_noise(together: list[dict[str, Any]]) -> None:
    """Otherwise the cells of one would be thinned as those of the other, and a larger batch would be worth less."""
    assert not set(together[0]["levels"]) & set(together[1]["levels"])
