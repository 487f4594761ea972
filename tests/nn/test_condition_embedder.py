"""Embedding of conditions: padding, missing and control are three things, and only what is given matters."""

import itertools
from dataclasses import replace
from typing import get_args

import pytest
import torch

from scdiffgen.conditions import Condition, ConditionSpec, NumberTransform
from scdiffgen.nn import NetworkOptions
from scdiffgen.nn._embeddings import ConditionEmbedder, UniversalCombination, clear_padding
from scdiffgen.nn._options import NumberKind

DIM = 12
CELL_TYPE = ConditionSpec("cell_type", "category", n_categories=4)
AGE = ConditionSpec("age", "number", transform=NumberTransform("standardise", mean=50.0, scale=20.0))
DRUGS = ConditionSpec("drugs", "set", "intervention", n_categories=6, n_slots=3, has_values=True)
GENES = ConditionSpec("genes", "set", "intervention", n_categories=6, n_slots=3)
PLACE = ConditionSpec("place", "hierarchy", n_categories=9, n_slots=3)
EVERYTHING = [CELL_TYPE, AGE, DRUGS, GENES, PLACE]
WAYS_TO_POOL = ["attention", "components"]


def make(specs, options=None, **kwargs):
    torch.manual_seed(0)
    return ConditionEmbedder(specs, DIM, options or NetworkOptions(), **kwargs).double()


def make_drugs(pooling):
    if pooling == "components":
        return make([replace(DRUGS, components=(0, 0, 0, 1, 1, 1))])
    return make([DRUGS])


def parts(*cells, given=None, n_slots=None):
    """Condition of cells given as lists of ids or of (id, value)."""
    n_slots = n_slots or max(1, *map(len, cells))
    ids, values = torch.zeros(len(cells), n_slots, dtype=torch.long), torch.zeros(len(cells), n_slots)
    mask = torch.zeros(len(cells), n_slots, dtype=torch.bool)
    for row, cell in enumerate(cells):
        for slot, part in enumerate(cell):
            ids[row, slot], values[row, slot] = part if isinstance(part, tuple) else (part, 0.0)
            mask[row, slot] = True
    return Condition(
        ids, values, mask, torch.ones(len(cells), dtype=torch.bool) if given is None else torch.tensor(given)
    )


def with_garbage(given):
    """The same parts with nonsense where nothing may be looked at."""
    hidden = ~(given.mask & given.given[:, None])
    return given._replace(ids=given.ids.masked_fill(hidden, 1000), values=given.values.masked_fill(hidden, torch.nan))


def everything(n_cells):
    rows = range(n_cells)
    return {
        "cell_type": parts(*[[i % 4] for i in rows]),
        "age": parts(*[[(0, 10.0 * i)] for i in rows]),
        "drugs": parts(*[[(i % 6, 1.0), ((i + 1) % 6, 0.5)][: i % 3] for i in rows]),
        "genes": parts(*[[i % 6, (i + 2) % 6][: i % 3] for i in rows]),
        "place": parts(*[[0, 3, 6][: 1 + i % 3] for i in rows]),
    }


def test_one_vector_a_condition_in_the_order_of_the_specs():
    embed, given = make(EVERYTHING), everything(7)
    sequence = embed(given, 7)
    assert sequence.shape == (7, 5, DIM)
    shuffled = dict(reversed(given.items()))
    torch.testing.assert_close(embed(shuffled, 7), sequence, rtol=0, atol=0)
    assert sequence.abs().max() < 4


@pytest.mark.parametrize("spec", EVERYTHING, ids=lambda spec: spec.kind)
def test_a_condition_changes_its_own_vector_only(spec):
    embed, given = make(EVERYTHING), everything(7)
    without = {name: one for name, one in given.items() if name != spec.name}
    changed = (embed(given, 7) != embed(without, 7)).any(-1)
    assert changed.all(0).tolist() == [one is spec for one in EVERYTHING]


@pytest.mark.parametrize("spec", EVERYTHING, ids=lambda spec: spec.kind)
def test_missing_is_the_null_vector_whatever_the_tensors_hold(spec):
    embed, given = make(EVERYTHING), everything(7)
    partly = given[spec.name]._replace(given=torch.tensor([True, False] * 3 + [True]))
    sequence = embed({spec.name: with_garbage(partly)}, 7)
    nothing = embed({}, 7)
    torch.testing.assert_close(sequence[1::2], nothing[1::2], rtol=0, atol=0)
    torch.testing.assert_close(sequence[::2], embed({spec.name: given[spec.name]}, 7)[::2])
    sequence.square().sum().backward()
    gradients = [p.grad for p in embed.parameters() if p.grad is not None]
    assert all(gradient.isfinite().all() for gradient in gradients)


def test_a_cell_does_not_depend_on_its_neighbours():
    embed, given = make(EVERYTHING), everything(7)
    alone = {name: Condition(*(field[2:3] for field in one)) for name, one in given.items()}
    torch.testing.assert_close(embed(given, 7)[2:3], embed(alone, 1))


def test_an_unregistered_condition_costs_nothing_and_a_misspelt_one_raises():
    n_parameters = [sum(p.numel() for p in make(EVERYTHING[:n]).parameters()) for n in range(3)]
    assert n_parameters[0] == 0
    assert n_parameters[1] == 4 * DIM + DIM  # a table and a null vector
    assert make([])({}, 3).shape == (3, 0, DIM)
    with pytest.raises(KeyError, match="'cell_tpye' is not a registered condition.*cell_type"):
        make([CELL_TYPE])({"cell_tpye": parts([0])}, 1)


def test_same_label_same_vector_and_unknown_ids_raise():
    embed = make([CELL_TYPE])
    one, two, other = embed({"cell_type": parts([2], [2], [3])}, 3)
    torch.testing.assert_close(one, two, rtol=0, atol=0)
    assert (one != other).all()
    with pytest.raises(IndexError):
        embed({"cell_type": parts([4])}, 1)


@pytest.mark.parametrize("name", ["cell_type", "age", "place"])
def test_without_any_part_only_a_set_is_given(name):
    embed = make(EVERYTHING)
    torch.testing.assert_close(embed({name: parts([], [])}, 2), embed({}, 2), rtol=0, atol=0)
    assert (embed({"drugs": parts([], [])}, 2) != embed({}, 2))[:, 2].all()


def test_numbers_are_transformed_first():
    embed = make([AGE, ConditionSpec("score", "number")])
    embed.embedders[1].load_state_dict(embed.embedders[0].state_dict())
    age, score = embed({"age": parts([(0, 30.0)], [(0, 90.0)])}, 2), parts([(0, -1.0)], [(0, 2.0)])
    torch.testing.assert_close(age[:, 0], embed({"score": score}, 2)[:, 1])


@pytest.mark.parametrize("pooling", WAYS_TO_POOL)
def test_order_of_the_parts_does_not_matter(pooling):
    embed, cell = make_drugs(pooling), [(1, 0.5), (4, 2.0), (5, 1.0)]
    vectors = embed({"drugs": parts(*itertools.permutations(cell))}, 6)
    torch.testing.assert_close(vectors, vectors[:1].expand_as(vectors))


@pytest.mark.parametrize("pooling", WAYS_TO_POOL)
def test_padding_does_not_matter(pooling):
    embed, cells = make_drugs(pooling), ([(1, 0.5), (4, 2.0)], [(3, 1.0)], [])
    vectors = embed({"drugs": parts(*cells)}, 3)
    padded = parts(*cells, n_slots=7)
    garbage = padded._replace(
        ids=padded.ids.masked_fill(~padded.mask, 1000), values=padded.values.masked_fill(~padded.mask, 1e3)
    )
    torch.testing.assert_close(embed({"drugs": garbage}, 3), vectors)
    # the pooling itself looks at nothing but the mask either
    pool, given = embed.embedders[0].pooling, clear_padding(padded, torch.float64)
    inner = embed.embedders[0].parts(given)
    torch.testing.assert_close(pool(inner.masked_fill(~given.mask[..., None], 1e3), given), pool(inner, given))


@pytest.mark.parametrize("pooling", WAYS_TO_POOL)
def test_the_empty_set_is_finite_trainable_and_not_the_null_vector(pooling):
    embed = make_drugs(pooling)
    control, null = embed({"drugs": parts([], [], given=[True, False])}, 2)
    assert control.isfinite().all()
    assert (control - null).abs().min() > 1e-6
    control.sum().backward()
    torch.testing.assert_close(embed.embedders[0].control.grad, torch.ones(DIM, dtype=torch.float64))
    assert all(p.grad is None or p.grad.isfinite().all() for p in embed.parameters())


@pytest.mark.parametrize("pooling", WAYS_TO_POOL)
def test_doses_matter_and_stay_with_their_part(pooling):
    embed = make_drugs(pooling)
    swapped = parts([(1, 0.5), (4, 2.0)], [(1, 2.0), (4, 0.5)])
    one, two = embed({"drugs": swapped}, 2)
    assert (one - two).abs().max() > 1e-3


@pytest.mark.parametrize("pooling", WAYS_TO_POOL)
def test_dose_0_is_a_control_and_no_dose_is_not(pooling):
    embed = make_drugs(pooling)
    given = {"drugs": parts([], [(1, 0.0)], [(4, 0.0), (1, 0.0)], [(1, torch.nan)])}
    control, *zeros, none = embed(given, 4)
    assert all(torch.equal(zero, control) for zero in zeros)
    assert none.isfinite().all() and (none - control).abs().max() > 1e-3
    beside, alone = {"drugs": parts([(1, 0.0), (4, 2.0)])}, {"drugs": parts([(4, 2.0)])}
    torch.testing.assert_close(embed(beside, 1), embed(alone, 1))
    assert torch.equal(embed.numbers(beside, 1), embed.numbers(alone, 1))


def test_without_doses_the_values_are_not_looked_at():
    embed = make([GENES])
    torch.testing.assert_close(
        embed({"genes": parts([(1, 5.0), (2, 9.0)])}, 1), embed({"genes": parts([1, 2])}, 1), rtol=0, atol=0
    )


def test_attention_pooling_agrees_with_torch_attention():
    # Component by component, it is attention of a query of 1 over keys that are the scores.
    embed = make([GENES])
    pooling, table = embed.embedders[0].pooling, embed.embedders[0].parts.categories.weight
    values = table[[1, 4, 5]].T[..., None]  # (dim, parts, 1)
    keys = pooling.score(table[[1, 4, 5]]).T[..., None]
    query = torch.ones(DIM, 1, 1, dtype=torch.float64)
    pooled = torch.nn.functional.scaled_dot_product_attention(query, keys, values, scale=1.0).flatten()
    torch.testing.assert_close(embed({"genes": parts([1, 4, 5], n_slots=5)}, 1)[0, 0], pooled + pooling.mlp(pooled))


def test_components_are_distinguished_by_the_category_of_a_part():
    # ids 0 to 2 are knock-outs, 3 to 5 drugs: as the embedding of each is its own, an absent drug is its learned vector
    embed = make_drugs("components")
    pooling, seen = embed.embedders[0].pooling, []
    pooling.mlp.register_forward_pre_hook(lambda module, inputs: seen.append(inputs[0]))
    embed({"drugs": parts([(1, 0.5)], [(4, 2.0)], [(4, 2.0), (1, 0.5)], [(0, 1.0), (2, 1.0)])}, 4)
    knock_out, drug = seen[0].unflatten(1, (2, DIM)).unbind(1)
    torch.testing.assert_close(drug[0], pooling.absent[1])
    torch.testing.assert_close(knock_out[1], pooling.absent[0])
    torch.testing.assert_close(torch.stack([knock_out[2], drug[2]]), torch.stack([knock_out[0], drug[1]]))
    both = embed.embedders[0].parts(clear_padding(parts([(0, 1.0), (2, 1.0)]), torch.float64))[0]
    torch.testing.assert_close(knock_out[3], both.mean(0))


def trained_hierarchy():
    embed = make([PLACE])
    torch.nn.init.normal_(embed.embedders[0].categories.weight)
    return embed


def test_a_leaf_never_trained_is_embedded_as_its_parent():
    embed = make([PLACE])
    optimiser = torch.optim.AdamW(embed.parameters(), lr=0.1)
    for _ in range(5):
        loss = (embed({"place": parts([0, 3, 6], [0, 4, 7])}, 2) - 1).square().sum()
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    unseen, parent, seen = embed({"place": parts([0, 3, 8], [0, 3], [0, 3, 6])}, 3)
    torch.testing.assert_close(unseen, parent, rtol=0, atol=0)
    assert (seen - parent).abs().max() > 0.1


def test_a_hierarchy_is_additive_over_its_levels():
    embed = trained_hierarchy()
    table = embed.embedders[0].categories.weight
    torch.testing.assert_close(embed({"place": parts([1, 4, 8])}, 1)[0, 0], table[[1, 4, 8]].sum(0))


@pytest.mark.parametrize("kind", ["category", "set", "hierarchy"])
def test_an_unseen_perturbation_with_a_vector_works_and_without_one_raises(kind):
    spec = ConditionSpec("drugs", kind, n_categories=3, n_slots=2, n_features=5)
    vectors = torch.randn(3, 5, generator=torch.Generator().manual_seed(1))
    embed = make([spec], features={"drugs": vectors})
    with pytest.raises(IndexError):
        embed({"drugs": parts([3])}, 1)
    embed.extend_features("drugs", vectors[1:2])
    unseen, known = embed({"drugs": parts([3], [1])}, 2)
    torch.testing.assert_close(unseen, known)


def test_an_unseen_part_of_a_component_is_embedded_as_one_of_its_kind():
    spec = ConditionSpec("drugs", "set", n_categories=3, n_slots=2, n_features=5, components=(0, 0, 1))
    vectors = torch.randn(3, 5, generator=torch.Generator().manual_seed(1))
    embed = make([spec], features={"drugs": vectors})
    embed.extend_features("drugs", vectors[[2, 1]], [1, 0])  # copies of known ones
    unseen, known = embed({"drugs": parts([0, 3], [0, 2])}, 2), embed({"drugs": parts([4], [1])}, 2)
    torch.testing.assert_close(unseen[0], unseen[1])
    torch.testing.assert_close(known[0], known[1])


def test_features_come_back_into_an_embedder_made_without_them():
    spec = ConditionSpec("drugs", "set", n_categories=3, n_slots=2, n_features=5)
    saved, loaded = make([spec], features={"drugs": torch.randn(3, 5)}), make([spec])
    with pytest.raises(RuntimeError, match="No feature vectors"):
        loaded({"drugs": parts([1])}, 1)
    loaded.load_state_dict(saved.state_dict())
    torch.testing.assert_close(loaded({"drugs": parts([1])}, 1), saved({"drugs": parts([1])}, 1), rtol=0, atol=0)


def test_features_of_a_condition_without_them_are_refused():
    with pytest.raises(ValueError, match="'cell_type' was registered without feature vectors"):
        make([CELL_TYPE]).extend_features("cell_type", torch.zeros(1, 3))


@pytest.mark.parametrize("number", get_args(NumberKind))
def test_every_option_embeds_everything_and_comes_back_from_its_state(number):
    options = NetworkOptions(number_embedding=number)
    embed, given = make(EVERYTHING, options), everything(5)
    torch.manual_seed(1)
    again = ConditionEmbedder(EVERYTHING, DIM, options).double()
    again.load_state_dict(embed.state_dict())
    torch.testing.assert_close(again(given, 5), embed(given, 5), rtol=0, atol=0)
    assert embed(given, 5).abs().max() < 5


def test_every_condition_is_combined():
    sequence = torch.randn(4, 3, DIM)
    combined = UniversalCombination(3, DIM)
    slopes = torch.autograd.functional.jacobian(lambda x: combined(x).sum(0), sequence)
    assert slopes.abs().amax((0, 1, 3)).gt(0).all()  # every condition counts
    torch.testing.assert_close(UniversalCombination(0, DIM)(sequence[:, :0]), torch.zeros(4, DIM))
