"""Latent diffusion: tokens at unit scale, draws, and what the second stage looks at."""

from typing import Any

import numpy as np
import pytest
import torch
from csr import csr
from module_parts import SIZE, SPECS
from parts import unconditional
from torch import Tensor

from scdiffgen.conditions import Conditions
from scdiffgen.module import DiffusionModule, Guidance, LatentOptions

N_GENES = 12
COUNTS = np.random.default_rng(0).poisson(np.geomspace(0.5, 40, N_GENES), (50, N_GENES)).astype(np.float32)
BATCH = {"X": csr(COUNTS), "labels": torch.arange(50)[:, None] % 3}
ONE_CONDITION = SPECS[:1]


def make(**options: Any) -> DiffusionModule:
    torch.manual_seed(0)
    module = DiffusionModule(N_GENES, ONE_CONDITION, SIZE, process=LatentOptions(latent_dim=3, **options))
    module.initialise([(csr(COUNTS), unconditional(50))])
    for weight in module.parameters():
        torch.nn.init.normal_(weight, std=0.3)
    return module.eval()


def begun(**options: Any) -> tuple[DiffusionModule, dict[str, Tensor]]:
    """A module in its second stage, and what is cached."""
    module = make(**options)
    cached = module.compute_once(BATCH)
    module.begin_stage(cached)
    return module, cached


def test_tokens_have_unit_scale() -> None:
    tokens = make().tokens(csr(COUNTS), unconditional(50))
    assert tokens.shape == (50, SIZE.n_tokens, 3)
    torch.testing.assert_close(tokens.square().mean(2), torch.ones(50, SIZE.n_tokens))


def test_the_second_stage_has_standardised_tokens_and_looks_at_no_count() -> None:
    module, cached = begun()
    assert "X" not in cached
    cells, conditions = module.unpack(cached)
    coded, _ = module.code.encode_training(module.ema_denoiser, cells, conditions)
    torch.testing.assert_close(coded.mean(0), torch.zeros(module.code.length), atol=1e-5, rtol=0)
    torch.testing.assert_close(coded.std(0), torch.ones(module.code.length))
    torch.testing.assert_close(coded, module.code.encode(module.ema_denoiser, csr(COUNTS), conditions, None))
    again = module.unpack(BATCH)
    assert torch.equal(conditions["cell_type"].ids, again[1]["cell_type"].ids)
    seen, unseen = (
        module.validation_loss(*unpacked, torch.Generator().manual_seed(0)).loss
        for unpacked in ((cells, conditions), again)
    )
    torch.testing.assert_close(seen, unseen)


def test_only_the_stage_that_is_on_moves_its_weights() -> None:
    first, (second, cached) = make().train(), begun()
    first.loss(*first.unpack(BATCH)).loss.backward()
    second.train().loss(*second.unpack(cached)).loss.backward()
    for name, weight in first.denoiser.named_parameters():
        assert (weight.grad is not None) == name.startswith("autoencoder."), name
    for name, weight in second.denoiser.named_parameters():
        assert (weight.grad is not None) != name.startswith("autoencoder."), name


def test_the_averaged_autoencoder_is_the_one_that_stays() -> None:
    module = make()
    with torch.no_grad():
        module.denoiser.autoencoder.readout.bias.add_(1)
    module.begin_stage(module.compute_once(BATCH))
    for kept, averaged in zip(
        module.denoiser.autoencoder.parameters(), module.ema_denoiser.autoencoder.parameters(), strict=True
    ):
        assert torch.equal(kept, averaged)
    assert module.stages() == (0.0, 1.0)


def test_cells_are_drawn_from_the_likelihood_at_their_tokens() -> None:
    module, _ = begun()
    cell = csr(np.tile(COUNTS[:1], (4000, 1)))
    library = module.library(cell)
    nothing, generator = unconditional(4000), torch.Generator().manual_seed(0)
    coded = module.code.encode(module.ema_denoiser, cell, nothing, generator)
    drawn = module.code.decode(module.ema_denoiser, coded, library, nothing, generator, Guidance())
    expected = module.expression(cell, nothing) * library[:, None]
    torch.testing.assert_close(drawn.mean(0), expected[0], rtol=0.02, atol=4 * float((expected[0].max() / 4000).sqrt()))


def test_guidance_leads_away_from_cells_of_which_nothing_is_given(
    conditions: Conditions[Tensor], monkeypatch: pytest.MonkeyPatch
) -> None:
    module, _ = begun()
    monkeypatch.setattr(module.code, "decode", lambda denoiser, coded, *_: coded)

    def drawn(scale: float) -> Tensor:
        given, generator = conditions.only(["cell_type"]), torch.Generator().manual_seed(0)
        return module.generate(given, torch.full((4,), 500.0), guidance=Guidance(scale), n_steps=6, generator=generator)

    once, thrice = drawn(1.0) - drawn(0.0), drawn(3.0) - drawn(0.0)
    assert once.abs().max() > 1e-3
    torch.testing.assert_close(thrice, 3 * once, rtol=0.2, atol=2e-3)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"latent_dim": 0}, "`latent_dim` is 0"),
        ({"autoencoder_share": 1.0}, "`autoencoder_share` is 1.0"),
        ({"schedule": "sine"}, "`schedule` is 'sine'"),
    ],
)
def test_settings_that_make_no_sense_are_named(wrong: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        LatentOptions(**wrong)
