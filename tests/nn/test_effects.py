"""What interventions add: nothing where nothing is done, sums over what is done, Hill's curve over doses."""

import numpy as np
import pytest
import torch
from csr import csr
from networks import random_weights, without_gradient
from parts import chosen
from torch import Tensor

from scdiffgen.conditions import Condition, ConditionSpec, NumberTransform
from scdiffgen.nn import EffectNetwork, NetworkSize

N_GENES, N_CELLS = 15, 4
SIZE = NetworkSize(n_tokens=2, token_dim=16, n_layers=2, n_heads=2, n_hidden=8, conditioning_dim=8, dropout=0.0)
COUNTS = np.random.default_rng(0).poisson(1.0, (N_CELLS, N_GENES))
NOTHING: list[list[int]] = [[]] * N_CELLS


def make(*, dosed: bool = False, trained: bool = True, n_features: int = 0, n_slots: int = 2) -> EffectNetwork:
    torch.manual_seed(0)
    spec = ConditionSpec(
        "drug",
        "set",
        "intervention",
        n_categories=3,
        n_slots=n_slots,
        has_values=dosed,
        transform=NumberTransform("log1p", scale=2.0),
        n_features=n_features,
    )
    features = torch.randn(3, n_features) if n_features else None
    effects = EffectNetwork(spec, N_GENES, SIZE, features)
    return random_weights(effects) if trained else effects


def scores(effects: EffectNetwork, parts: Condition[Tensor]) -> Tensor:
    library = torch.tensor(COUNTS.sum(1)).float()
    return effects(csr(COUNTS), library, library, parts).detach()


@pytest.mark.parametrize("dosed", [False, True])
def test_controls_and_cells_of_which_nothing_is_told_get_exactly_nothing(dosed: bool) -> None:
    effects = make(dosed=dosed)
    assert not scores(effects, chosen(NOTHING)).any()
    treated = chosen([[1]] * N_CELLS, [[5.0]] * N_CELLS)
    assert not scores(effects, treated._replace(given=torch.zeros(N_CELLS, dtype=torch.bool))).any()
    assert scores(effects, treated).abs().amax(dim=1).min() > 1e-3


@pytest.mark.parametrize(("dosed", "n_features"), [(False, 0), (True, 0), (True, 5)])
def test_an_effect_starts_at_nothing_and_all_of_it_learns(dosed: bool, n_features: int) -> None:
    effects = make(trained=False, dosed=dosed, n_features=n_features)
    treated = chosen([[1], [0, 2], [2], [0]], [[1.0], [0.3, 2.0], [np.nan], [4.0]])
    assert not scores(effects, treated).any()
    optimizer = torch.optim.Adam(effects.parameters(), lr=1e-2)
    library = torch.tensor(COUNTS.sum(1)).float()
    for _ in range(3):  # the weights of the genes and the gates of the blocks open one after the other
        optimizer.zero_grad()
        (effects(csr(COUNTS), library, library, treated) - 1).square().sum().backward()
        optimizer.step()
    assert without_gradient(effects) == []
    assert not dosed or effects.half_dose.grad.ne(0).all()  # that of each


def test_without_interaction_effects_add_up() -> None:
    effects = make()
    torch.nn.init.zeros_(effects.interaction_weights)
    both, one, other = (scores(effects, chosen([members] * N_CELLS)) for members in ([0, 2], [0], [2]))
    torch.testing.assert_close(both, one + other, rtol=1e-4, atol=1e-4)


def test_an_interaction_belongs_to_pairs_alone() -> None:
    effects, none = make(), make()
    torch.nn.init.zeros_(none.interaction_weights)
    single, pair = chosen([[1]] * N_CELLS), chosen([[1, 2]] * N_CELLS)
    torch.testing.assert_close(scores(effects, single), scores(none, single))
    assert (scores(effects, pair) - scores(none, pair)).abs().max() > 1e-3


@pytest.mark.parametrize("dosed", [False, True])
def test_order_and_padding_do_not_matter(dosed: bool) -> None:
    effects = make(dosed=dosed, n_slots=4)
    doses = [[1.0, 3.0]] * N_CELLS, [[3.0, 1.0]] * N_CELLS
    one = chosen([[0, 2]] * N_CELLS, doses[0], n_slots=4)
    other = chosen([[2, 0]] * N_CELLS, doses[1], n_slots=4)
    torch.testing.assert_close(scores(effects, one), scores(effects, other), rtol=1e-4, atol=1e-5)
    dirty = one._replace(ids=one.ids.masked_fill(~one.mask, 1), values=one.values.masked_fill(~one.mask, 1e3))
    assert torch.equal(scores(effects, dirty), scores(effects, one))


def test_a_cell_does_not_see_its_neighbours() -> None:
    effects = make()
    together = scores(effects, chosen([[1], [], [0, 2], [2]]))
    torch.testing.assert_close(together[0], scores(effects, chosen([[1]] * N_CELLS))[0], rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(together[2], scores(effects, chosen([[0, 2]] * N_CELLS))[2], rtol=1e-4, atol=1e-5)


def test_the_cell_matters() -> None:
    effects, treated = make(), chosen([[1]] * N_CELLS)
    assert torch.pdist(scores(effects, treated)).min() > 1e-3


def test_doses_follow_hills_curve_of_slope_1() -> None:
    effects = make(dosed=True)
    doses = np.array([[0.0, 0.5], [2.0, 8.0], [1e4, 1.0], [0.1, 0.2]])
    gates = effects.gates(chosen([[0, 2]] * N_CELLS, doses.tolist())).detach().numpy()
    half = np.exp(effects.half_dose.detach().numpy()[[0, 2]].astype(np.float64))
    np.testing.assert_allclose(gates, doses / (doses + half), rtol=1e-5)


def test_half_of_the_effect_is_first_expected_at_the_typical_dose() -> None:
    fresh = make(dosed=True, trained=False)
    np.testing.assert_allclose(fresh.gates(chosen([[1]] * N_CELLS, [[2.0]] * N_CELLS)).detach()[:, 0], 0.5)


def test_dose_0_is_no_treatment_and_an_unknown_dose_the_full_effect() -> None:
    effects = make(dosed=True)
    assert not scores(effects, chosen([[1]] * N_CELLS, [[0.0]] * N_CELLS)).any()
    both = scores(effects, chosen([[1, 2]] * N_CELLS, [[3.0, 0.0]] * N_CELLS))
    torch.testing.assert_close(both, scores(effects, chosen([[1]] * N_CELLS, [[3.0]] * N_CELLS)))
    unknown = chosen([[1]] * N_CELLS, [[np.nan]] * N_CELLS)
    np.testing.assert_allclose(effects.gates(unknown).detach()[:, 0], 1)
    assert torch.isfinite(scores(effects, unknown)).all()


def test_an_intervention_never_seen_enters_by_its_features() -> None:
    effects = make(n_features=5)
    twin = effects.embed.state_dict()
    vectors = next(value for value in twin.values() if value.shape == (3, 5))
    effects.extend_features(vectors[1:2])
    torch.testing.assert_close(scores(effects, chosen([[3]] * N_CELLS)), scores(effects, chosen([[1]] * N_CELLS)))


def test_interventions_added_later_have_the_median_half_maximal_dose() -> None:
    effects = make(dosed=True, n_features=5)
    known = effects.half_dose.detach().numpy().copy()
    effects.extend_features(torch.randn(2, 5))
    np.testing.assert_allclose(effects.half_dose.detach(), [*known, *[np.median(known)] * 2])
    assert scores(effects, chosen([[4, 1]] * N_CELLS, [[2.0, 1.0]] * N_CELLS)).isfinite().all()
    assert any(weight is effects.half_dose for weight in effects.parameters())


def test_interventions_without_training_cells_have_the_median_half_maximal_dose_of_those_with() -> None:
    effects = make(dosed=True)
    known = effects.half_dose.detach().numpy().copy()
    effects.share_half_dose(torch.tensor([2, 0]))
    np.testing.assert_allclose(effects.half_dose.detach()[[0, 2]], known[[0, 2]])
    assert effects.half_dose[1].item() in known[[0, 2]]  # torch's median of two is one of them
    before = effects.half_dose.detach().clone()
    effects.share_half_dose(torch.tensor([], dtype=torch.long))  # no treated cell at all
    assert effects.half_dose.equal(before)


def test_without_feature_vectors_nothing_can_be_added() -> None:
    with pytest.raises(ValueError, match="registered without feature vectors"):
        make().extend_features(torch.randn(1, 5))
