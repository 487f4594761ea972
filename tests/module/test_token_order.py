"""A network whose tokens are permuted is the same network, and the inverse permutation gives it back bitwise."""

from collections.abc import Callable
from copy import deepcopy
from dataclasses import replace
from typing import Any, get_args

import numpy as np
import pytest
import torch
from csr import csr
from module_parts import SIZE, SPECS
from networks import seeded
from torch import Tensor

from scdiffgen.conditions import Conditions
from scdiffgen.diffusion._gaussian import Noisy
from scdiffgen.module import DiffusionModule, Guidance, LatentOptions, contributions
from scdiffgen.nn import NetworkOptions
from scdiffgen.nn._options import ConditioningKind

ORDER = [2, 0, 3, 1]
COUNTS = csr(np.random.default_rng(0).poisson(2.0, (4, 12)))
LIBRARY = torch.tensor([20.0, 5.0, 60.0, 30.0])
MODULES: dict[str, Callable[..., DiffusionModule]] = {
    "one modality": lambda *parts: DiffusionModule(12, *parts),
    "two modalities": lambda *parts: DiffusionModule({"X": 8, "protein": 4}, *parts),
    "gaussian": lambda *parts: DiffusionModule(12, *parts, process="gaussian"),
    "latent": lambda *parts: DiffusionModule(12, *parts, process=LatentOptions(latent_dim=3)),
}
FORMS: dict[str, dict[str, Any]] = {
    **{f"conditioning {kind}": {"conditioning": kind} for kind in get_args(ConditioningKind)},
    **{f"positions {kind}": {"positions": kind} for kind in ("sinusoidal", "none")},
    "attention across": {"attention": "across"},
    "embedded expression": {"expression_embedding": "direct"},
}


def both(
    module: str, options: dict[str, Any], seen: Conditions[Tensor] | None = None
) -> tuple[DiffusionModule, DiffusionModule]:
    """A module with random weights, and the same with its tokens in another order."""
    torch.manual_seed(0)
    made = MODULES[module](SPECS, replace(SIZE, n_tokens=4, readout_units=3, options=NetworkOptions(**options)))
    if made.process_name == "gaussian" and seen is not None:
        made.start_linearly([(COUNTS, seen)])
    for weight in made.parameters():
        torch.nn.init.normal_(weight, std=0.3)
    if made.process_name == "latent":
        made.code.mean.normal_()
        made.code.scale.uniform_(0.5, 2.0)
    permuted = deepcopy(made.eval())
    permuted.sort_tokens(ORDER)
    return made, permuted


@torch.no_grad()
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("kind", MODULES)
def test_nothing_but_the_order_of_the_tokens_changes(
    kind: str, form: str, conditions: Conditions[Tensor], monkeypatch: pytest.MonkeyPatch
) -> None:
    made, permuted = both(kind, FORMS[form], conditions)
    close = {"rtol": 1e-3, "atol": 1e-4}
    for denoiser, other in zip(made.denoisers, permuted.denoisers, strict=True):  # another network, not the same one
        assert any(not torch.equal(*pair) for pair in zip(denoiser.parameters(), other.parameters(), strict=True))
    library = LIBRARY[:, None].expand(4, 2) if kind == "two modalities" else LIBRARY
    torch.testing.assert_close(permuted.expression(COUNTS, conditions), made.expression(COUNTS, conditions), **close)
    tokens = made.tokens(COUNTS, conditions)
    torch.testing.assert_close(permuted.tokens(COUNTS, conditions), tokens[:, ORDER], **close)
    torch.testing.assert_close(permuted.gene_weights(), made.gene_weights()[ORDER])
    hidden = made.hidden(COUNTS, conditions)
    torch.testing.assert_close(permuted.hidden(COUNTS, conditions), hidden[:, ORDER], **close)
    if kind == "latent":  # noise falls on the numbers of the tokens
        drawn = torch.randn(4, made.code.length, generator=seeded())
        in_new_order = drawn.unflatten(1, (4, -1))[:, ORDER].flatten(1)
        for time in (0.1, 0.5, 0.9):
            predicted, again = (
                module.code.unstandardised(
                    module.bind(conditions, Guidance(1.5))(Noisy(noisy, torch.tensor(time)), library).mean
                )
                for module, noisy in ((made, drawn), (permuted, in_new_order))
            )
            torch.testing.assert_close(again, predicted[:, ORDER], **close)
        cells = made.generate(conditions, library, n_steps=3, generator=seeded())
        randn = torch.randn

        def permuted_noise(*shape: Any, **options: Any) -> Tensor:
            return randn(*shape, **options).unflatten(1, (4, -1))[:, ORDER].flatten(1)

        monkeypatch.setattr(torch, "randn", permuted_noise)
    else:
        cells = made.generate(conditions, library, n_steps=3, generator=seeded())
    again = permuted.generate(conditions, library, n_steps=3, generator=seeded())
    assert float((again != cells).float().mean()) < 0.05  # a draw at the edge of two genes may fall to the other


@torch.no_grad()
@pytest.mark.parametrize("kind", MODULES)
def test_contributions_go_with_their_tokens(kind: str, conditions: Conditions[Tensor]) -> None:
    made, permuted = both(kind, {}, conditions)
    genes = torch.arange(12)
    one, other = (contributions(each, COUNTS, conditions, genes) for each in (made, permuted))
    torch.testing.assert_close(other.tokens, one.tokens[:, ORDER], rtol=1e-3, atol=1e-4)
    torch.testing.assert_close(other.total, one.total, rtol=1e-3, atol=1e-4)
    torch.testing.assert_close(other.conditions, one.conditions, rtol=1e-3, atol=1e-4)
    terms = one.tokens.sum(1) + sum(one.conditions.values()) + one.constant
    torch.testing.assert_close(one.total, terms, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("kind", MODULES)
def test_the_inverse_order_gives_the_weights_back_bitwise(kind: str, form: str) -> None:
    made, permuted = both(kind, FORMS[form])
    permuted.sort_tokens(np.argsort(ORDER))
    for name, weight in made.state_dict().items():
        assert torch.equal(permuted.state_dict()[name], weight), name
