"""Lower precision and compiled networks train as the plain ones do."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scvi
import torch
from small_cells import QUIET, simulated_cells
from treated_cells import SETUP, treated_cells

from scdiffgen.model import NetworkOptions, TokenDiffusion
from scdiffgen.nn import Attention
from scdiffgen.train import _plan

NETWORK = {"n_tokens": 4, "token_dim": 32, "n_layers": 2}
N_CELLS = 160


@pytest.fixture(autouse=True)
def rates(monkeypatch: pytest.MonkeyPatch) -> dict[torch.dtype, float]:
    """Rates of matrix products, in place of those of the processor that runs the tests."""
    measured = {torch.float32: 1e11, torch.bfloat16: 4e11}
    monkeypatch.setattr(_plan, "matrix_product_rate", measured.__getitem__)
    return measured


def losses(
    precision: str, options: dict[str, Any], *, treated: bool = False, max_epochs: int = 4, compiled: bool = False
) -> tuple[np.ndarray, TokenDiffusion]:
    """Of training and validation in every epoch, and the model."""
    adata = treated_cells(N_CELLS) if treated else simulated_cells(N_CELLS)
    TokenDiffusion.setup_anndata(adata, **(SETUP if treated else {"labels_key": "cell_type", "batch_key": "batch"}))
    scvi.settings.seed = 0
    model = TokenDiffusion(adata, **{**NETWORK, **options})
    if compiled:
        model.module.denoiser.network.trunk.transformer.compile(dynamic=True, backend="aot_eager")
    training = {"batch_size": 32, "early_stopping": False, "check_val_every_n_epoch": 1}
    model.train(max_epochs=max_epochs, **training, precision=precision, **QUIET)
    history = model.history
    return np.hstack([history[name].to_numpy(dtype=float) for name in ("train_loss", "validation_loss")]), model


@pytest.mark.parametrize(
    ("options", "treated"),
    [
        pytest.param({}, False, id="default"),
        pytest.param(
            {"network": NetworkOptions(conditioning="concat", attention_numbers="rotated")}, False, id="rotated"
        ),
        pytest.param({"process": "gaussian"}, False, id="gaussian"),
        pytest.param({}, True, id="perturbations"),
    ],
)
def test_losses_in_bfloat16_are_those_of_float32_within_half_a_percent(options: dict[str, Any], treated: bool) -> None:
    (full, _), (mixed, model) = (losses(precision, options, treated=treated) for precision in ("32-true", "bf16-mixed"))
    assert (mixed != full).all()  # it was used
    np.testing.assert_allclose(mixed, full, rtol=5e-3)
    assert {weight.dtype for weight in model.module.parameters()} == {torch.float32}
    assert model.generate({}, 5, n_steps=4, seed=0, silent=True).X.sum() > 0


@pytest.mark.parametrize("precision", ["bf16-mixed", "bf16"])
def test_training_warns_of_slower_bfloat16_with_both_rates(precision: str, rates: dict[torch.dtype, float]) -> None:
    rates[torch.bfloat16] = 2.5e9
    with pytest.warns(UserWarning, match=r"float32 \(1e\+11 .*bfloat16 \(2\.5e\+09\).*leave `precision` out") as warned:
        losses(precision, {}, max_epochs=1)
    (ours,) = (each for each in warned if "operations per second" in str(each.message))
    assert Path(ours.filename).name == Path(__file__).name  # where the user called


@pytest.mark.parametrize("precision", ["bf16-mixed", "32-true"])
def test_training_does_not_warn_where_bfloat16_is_faster_or_not_used(
    precision: str, rates: dict[torch.dtype, float]
) -> None:
    rates[torch.bfloat16] = 4e11 if precision == "bf16-mixed" else 0.0
    losses(precision, {}, max_epochs=1)  # a warning would be an error


def test_rates_of_matrix_products_are_those_of_a_computer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    for dtype in (torch.float32, torch.bfloat16):
        assert 1e6 < _plan.matrix_product_rate(dtype) < 1e15


@pytest.mark.parametrize(("dtype", "error"), [(torch.bfloat16, 2.0**-7), (torch.float16, 2.0**-10)])
@pytest.mark.parametrize("size", [1.0, 4.0])
def test_attention_in_low_precision_against_float64(dtype: torch.dtype, error: float, size: float) -> None:
    """The root mean square error is at most twice the spacing of the numbers, relative to the output."""
    generator = torch.Generator().manual_seed(0)
    attention = Attention(64, 4)
    tokens = size * torch.randn(16, 32, 64, generator=generator)
    with torch.no_grad():
        with torch.autocast("cpu", dtype):
            low = attention(tokens)
        heads = (tokens.double() @ attention.project.weight.double().T + attention.project.bias.double()).numpy()
        query, key, value = heads.reshape(16, 32, 3, 4, 16).transpose(2, 0, 3, 1, 4)
        shares = np.exp(query @ key.transpose(0, 1, 3, 2) / 4.0)
        heard = (shares / shares.sum(-1, keepdims=True)) @ value
        heard = heard.transpose(0, 2, 1, 3).reshape(16, 32, 64)
        exact = heard @ attention.out.weight.double().numpy().T + attention.out.bias.double().numpy()
    assert low.dtype == dtype
    assert np.sqrt(np.mean((low.double().numpy() - exact) ** 2) / np.mean(exact**2)) < 2 * error


def test_a_compiled_transformer_has_the_same_losses_and_is_saved(tmp_path: Any) -> None:
    short = {"options": {"n_layers": 1}, "max_epochs": 2}
    (plain, _), (compiled, model) = (losses("32-true", **short, compiled=compiled) for compiled in (False, True))
    np.testing.assert_allclose(compiled, plain, rtol=1e-5)
    model.save(tmp_path / "model")
    loaded = TokenDiffusion.load(tmp_path / "model", adata=False, accelerator="cpu")
    asked = {"conditions": {"cell_type": "a"}, "n_cells": 20, "n_steps": 4, "seed": 0, "silent": True}
    np.testing.assert_array_equal(loaded.generate(**asked).X.toarray(), model.generate(**asked).X.toarray())
