"""Matched genes against planted negative binomial cells whose means and spreads the drawn cells lack."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from unittest.mock import patch

import numpy as np
import pytest
import torch
from networks import seeded
from numpy.typing import NDArray
from parts import category, chosen
from scipy import sparse
from small_cells import QUIET, simulated_cells, small_model

from scdiffgen.conditions import Conditions, ConditionSpec, MixedConditions
from scdiffgen.module._gene_match import GeneMatch

LABEL = ConditionSpec("cell_type", "category", registry_key="labels", n_categories=4)
BATCH = ConditionSpec("batch", "category", registry_key="batch", n_categories=3)
DRUG = ConditionSpec("drug", "set", "intervention", n_categories=2, n_slots=1, has_values=True)
N_GENES, DEPTH = 30, 600
RNG = np.random.default_rng(0)
SHARES = RNG.dirichlet(np.full(N_GENES, 3.0), 4)  # of four labels
OFF = np.exp(RNG.uniform(-0.5, 0.5, (4, N_GENES)))


def cells(label: NDArray[np.intp], off: NDArray[np.float64] | float, theta: float, seed: int) -> sparse.csr_matrix:
    """Negative binomial cells of labels, with other means by gene."""
    rng = np.random.default_rng(seed)
    rates = rng.gamma(theta, 1 / theta, (len(label), N_GENES)) * SHARES[label] * (OFF[label] if off else 1.0)
    return sparse.csr_matrix(rng.multinomial(DEPTH, rates / rates.sum(1, keepdims=True)).astype(np.float64))


def fitted(label: NDArray[np.intp], specs: tuple[ConditionSpec, ...] = (LABEL,), **others: object) -> GeneMatch:
    """Training cells of theta 2 at the planted means; drawn cells, three times as many, of theta 8 at others."""
    match, given = GeneMatch(specs, N_GENES), Conditions({"cell_type": category(label)} | others, len(label))
    like = np.tile(np.arange(len(label)), 3)
    match.fit(cells(label, 0, 2.0, 1), given.numpy(), cells(label[like], 1, 8.0, 2), like)
    return match


def test_means_and_spreads_of_each_label_become_those_of_its_training_cells() -> None:
    label = np.repeat([0, 1], 1_600)
    match, new, real = fitted(label), cells(label, 1, 8.0, 3), cells(label, 0, 2.0, 4).toarray()
    moved = match(torch.from_numpy(new.toarray()), Conditions({"cell_type": category(label)}, 3_200), seeded()).numpy()
    np.testing.assert_array_equal(moved.sum(1), DEPTH)
    for of_label in (label == 0, label == 1):
        before, after, truth = (np.log(counts[of_label].mean(0)) for counts in (new.toarray(), moved, real))
        assert np.abs(after - truth).mean() < 0.25 * np.abs(before - truth).mean()
        before, after, truth = (np.log(counts[of_label].std(0)) for counts in (new.toarray(), moved, real))
        assert np.abs(after - truth).mean() < 0.25 * np.abs(before - truth).mean()


def test_cells_that_are_drawn_well_hardly_change() -> None:
    label = np.zeros(400, dtype=int)
    match, given = GeneMatch((LABEL,), N_GENES), Conditions({"cell_type": category(label)}, 400)
    like = np.tile(np.arange(400), 3)
    match.fit(cells(label, 0, 2.0, 1), given.numpy(), cells(label[like], 0, 2.0, 2), like)
    new = cells(label, 0, 2.0, 3).toarray()
    moved = match(torch.from_numpy(new.copy()), given, seeded()).numpy()
    assert np.abs(moved - new).sum() / 2 < 0.05 * new.sum()


@pytest.mark.parametrize("n_small", [19, 20])
def test_a_small_group_is_moved_as_its_label(n_small: int) -> None:
    label, batch = np.zeros(400, dtype=int), np.repeat([0, 1], [400 - n_small, n_small])
    match = fitted(label, (LABEL, BATCH), batch=category(batch))
    assert len(match.groups) == (3 if n_small == 20 else 2)  # the label, and large batches
    own, new = match._groups(Conditions({"cell_type": category([0] * 3), "batch": category([0, 1, 2])}, 3))[0][0], 0
    assert own[2] == new  # a batch without cells
    assert (own[1] == new) == (n_small == 19) and own[0] not in (own[1], new)


@pytest.mark.parametrize(("n_cells", "n_like"), [(20, 160), (300, 1_000), (600, 1_000), (1_100, 1_000)])
def test_cells_are_drawn_like_training_cells_evenly_and_without_validation(n_cells: int, n_like: int) -> None:
    model = small_model(simulated_cells(n_cells + 10))
    with patch.object(GeneMatch, "fit") as fit:
        model.module.match_genes = partial(model.module.match_genes, n_drawn=1_000)
        split = [np.arange(n_cells), np.arange(n_cells, n_cells + 10), np.arange(0)]
        model.train(1, batch_size=128, datasplitter_kwargs={"external_indexing": split}, **QUIET)
    measured, conditions, drawn, like = fit.call_args.args
    assert measured.shape[0] == conditions.n_cells == n_cells and drawn.shape[0] == len(like) == n_like
    assert np.ptp(np.bincount(like)[np.unique(like)]) <= 1 and len(np.unique(like)) == min(n_cells, 1_000)
    assert like.max() == n_cells - 1


def test_groups_have_equal_treatments_and_doses() -> None:
    label, taken = np.zeros(90, dtype=int), [[]] * 30 + [[0]] * 60
    doses: list[list[float]] = [[]] * 30 + [[1.0]] * 30 + [[5.0]] * 30
    match = fitted(label, (LABEL, DRUG), drug=chosen(taken, doses, n_slots=1))
    drug = chosen([[], [0], [0], [0]], [[], [1.0], [5.0], [3.0]], n_slots=1)
    asked = Conditions({"cell_type": category([0] * 4), "drug": drug}, 4)
    found = match._groups(asked)[0][0]
    assert len(set(found[:3])) == 3 and found[3] == 0  # a dose without cells: the label
    both = Conditions({"cell_type": category([0]), "drug": chosen([[0, 1]], [[1.0, 1.0]])}, 1)
    assert match._groups(both)[0].tolist() == [[0]]


def test_a_file_of_other_treatments_is_read_with_new_guides() -> None:
    """In a query model, which has one guide more, drugs have other ids."""
    guide = replace(DRUG, name="guide")
    taken = {
        "guide": chosen([[1], []] * 40, [[1.0], []] * 40, n_slots=1),
        "drug": chosen([[], [0]] * 40, [[], [1.0]] * 40, n_slots=1),
    }
    match = fitted(np.zeros(80, dtype=int), (LABEL, guide, DRUG), **taken)
    query = GeneMatch((LABEL, replace(guide, n_categories=3), DRUG), N_GENES)
    query.load_state_dict(match.state_dict())
    asked = Conditions({"cell_type": category([0] * 80)} | taken, 80)
    np.testing.assert_array_equal(query._groups(asked)[0], match._groups(asked)[0])
    assert len(set(match._groups(asked)[0][0])) == 2


def test_cells_of_small_and_unknown_labels_are_moved_as_all_cells() -> None:
    label, rng = np.repeat([0, 1, 2], 19), np.random.default_rng(3)
    off = np.exp(rng.uniform(-0.5, 0.5, N_GENES))  # of all labels
    real, drawn = cells(np.tile(label, 8), 0, 2.0, 1), cells(np.tile(label, 24), 0, 2.0, 2)
    wrong = [rng.multinomial(DEPTH, row / row.sum()) for row in drawn.toarray() * off]
    match, given = GeneMatch((LABEL,), N_GENES), Conditions({"cell_type": category(label)}, len(label))
    like = np.tile(np.arange(len(label)), 24)
    match.fit(real[: len(label)], given.numpy(), sparse.csr_matrix(np.array(wrong, dtype=float)), like)
    assert len(match.groups) == 1
    for asked in (np.tile(label, 8), np.full(len(label) * 8, 3)):
        before = np.array(wrong[: len(asked)], dtype=float)
        moved = match(torch.from_numpy(before.copy()), Conditions({"cell_type": category(asked)}, len(asked)), seeded())
        far, near = (
            np.abs(np.log(counts.mean(0) / real.toarray().mean(0))).mean() for counts in (before, moved.numpy())
        )
        assert near < 0.5 * far
    assert match._groups(Conditions({}, 3))[0].tolist() == [[0, 0, 0]]


def test_the_ends_of_an_interpolation_are_moved_as_their_conditions() -> None:
    label = np.repeat([0, 1], 200)
    match, new = fitted(label), torch.from_numpy(cells(np.zeros(50, dtype=int), 1, 8.0, 3).toarray())
    ends = [Conditions({"cell_type": category([of] * 50)}, 50) for of in (0, 1)]
    for weight, end in enumerate(ends):
        mixed = match(new.clone(), MixedConditions(ends[0], ends[1], float(weight)), seeded())
        assert torch.equal(mixed, match(new.clone(), end, seeded()))


def test_no_molecule_of_a_shallow_cell_is_lost_or_added() -> None:
    label = np.zeros(200, dtype=int)
    match, rng = fitted(label), np.random.default_rng(5)
    off = SHARES[0] * OFF[0]
    shallow = torch.from_numpy(rng.multinomial(rng.integers(1, 4, 200), off / off.sum()))
    moved = match(shallow.double().clone(), Conditions({"cell_type": category(label)}, 200), seeded())
    assert torch.equal(moved.sum(1), shallow.double().sum(1)) and not torch.equal(moved, shallow.double())
