"""Membership inference: leaks that are known by construction, populations without one, scikit-learn and SciPy."""

from collections.abc import Callable

import anndata as ad
import numpy as np
import pandas as pd
import pytest
from scipy import sparse
from scipy.spatial.distance import cdist
from sklearn.metrics import roc_auc_score, roc_curve

from scdiffgen.metrics import FewCellsWarning, membership_inference
from scdiffgen.metrics._membership import ATTACKS, _matched, _scores, _success

N_GENES = 60
SHARES = (0.4, 0.4, 0.2)
CELLS = [("cell", attack) for attack in ATTACKS]


def simulate(
    n: int, seed: int, shares: tuple[float, ...] = SHARES, effects: np.ndarray | None = None, name: str = ""
) -> ad.AnnData:
    """Over-dispersed counts of three types; ``effects`` are of donors on log-rates, (donors, genes)."""
    rng = np.random.default_rng(seed)
    types, effects = rng.choice(3, n, p=shares), np.zeros((1, N_GENES)) if effects is None else effects
    donors = np.arange(n) % len(effects)
    rates = 3 * np.random.default_rng(0).gamma(1.5, size=(3, N_GENES))[types] * np.exp(effects[donors])
    counts = rng.poisson(rates * rng.gamma(5.0, 0.2, size=(n, N_GENES))).astype(np.float32)
    obs = {"type": np.array([*"abc"])[types], "donor": [f"{name or seed}-{donor}" for donor in donors]}
    genes = pd.DataFrame(index=[f"gene{i}" for i in range(N_GENES)])
    return ad.AnnData(counts, obs=pd.DataFrame(obs, index=[f"{seed}-{i}" for i in range(n)]), var=genes)


def partly_copied(cells: ad.AnnData, share: float) -> ad.AnnData:
    """Keep a share of the molecules of every cell, and draw the others from the mean of its type."""
    rng, copied = np.random.default_rng(0), cells.copy()
    kept = rng.binomial(cells.X.astype(int), share)
    means = pd.DataFrame(cells.X).groupby(cells.obs["type"].to_numpy()).transform("mean").to_numpy()
    lost = (cells.X - kept).sum(axis=1, keepdims=True)
    copied.X = (kept + rng.poisson(lost * means / means.sum(axis=1, keepdims=True))).astype(np.float32)
    return copied


def contains_chance(table: pd.DataFrame, name: str = "auc") -> pd.Series:
    return (table[f"{name}_low"] <= 0.5) & (table[f"{name}_high"] >= 0.5)


def donor_effects(n_donors: int, seed: int) -> np.ndarray:
    return np.random.default_rng(seed).normal(0, 0.8, size=(n_donors, N_GENES))


@pytest.fixture(scope="module")
def train() -> ad.AnnData:
    return simulate(300, 1)


@pytest.fixture(scope="module")
def held_out() -> ad.AnnData:
    return simulate(200, 2)


def test_copies_of_training_cells_are_found(train, held_out) -> None:
    table = membership_inference(train, held_out, train[::-1], "type", max_fpr=0.05)
    assert (table["auc"] > 0.99).all() and (table["tpr"] > 0.99).all()
    assert contains_chance(table, "control").all()


def test_success_falls_with_the_share_that_is_copied(train, held_out) -> None:
    aucs = [
        membership_inference(train, held_out, partly_copied(train, share), "type")["auc"]
        for share in (1.0, 0.7, 0.4, 0.0)
    ]
    assert (np.diff(aucs, axis=0) < 0).all()
    assert (aucs[1] > 0.7).all() and (aucs[3] < 0.6).all()


def test_cells_of_the_same_population_leave_the_attacks_at_chance() -> None:
    tables = [
        membership_inference(simulate(200, 3 * s), simulate(160, 3 * s + 1), simulate(200, 3 * s + 2), "type", seed=s)
        for s in range(10, 35)
    ]
    for name in ("auc", "control"):
        covered = np.mean([contains_chance(table, name) for table in tables], axis=0)
        assert (covered >= 0.8).all()  # of 25 intervals of 95 %
        aucs = np.array([table[name] for table in tables])
        assert (np.abs(aucs.mean(axis=0) - 0.5) < 4 * aucs.std(axis=0) / np.sqrt(len(aucs))).all()


def test_donors_of_training_are_found_by_new_cells_of_theirs() -> None:
    known, other = donor_effects(24, 1), donor_effects(40, 2)
    train, held_out = simulate(720, 1, effects=known, name="a"), simulate(1200, 2, effects=other, name="b")
    leaking = membership_inference(train, held_out, simulate(720, 3, effects=known), "type", donor_key="donor")
    assert leaking.index.tolist() == [(level, attack) for level in ("cell", "donor") for attack in ATTACKS]
    donors = leaking.loc["donor"]
    assert (donors["auc"] > 0.9).all() and not contains_chance(donors).any()
    assert donors.loc["distance", ["n_members", "n_non_members"]].tolist() == [20, 20]
    assert donors.loc["classifier", ["n_members", "n_non_members"]].tolist() == [10, 10]
    assert (leaking.loc["cell", "auc"] < donors["auc"]).all()
    assert contains_chance(leaking, "control").all()
    strangers = simulate(720, 4, effects=donor_effects(24, 5))
    assert contains_chance(membership_inference(train, held_out, strangers, "type", donor_key="donor")).all()


def test_donors_are_resampled_as_wholes() -> None:
    train, held_out = (simulate(n, seed)[np.repeat(np.arange(n), 10)].copy() for n, seed in ((40, 1), (80, 2)))
    for cells in (train, held_out):  # ten copies of each cell are one donor, so intervals are wider by the root of ten
        cells.obs["donor"] = cells.obs_names.to_numpy()
        cells.obs_names = [f"{name}-{i}" for i, name in enumerate(cells.obs_names)]
    whole, apart = (
        membership_inference(train, held_out, simulate(200, 3), donor_key=key, n_bootstrap=500).loc[CELLS[0]]
        for key in ("donor", None)
    )
    assert whole["auc_high"] - whole["auc"] == pytest.approx(10**0.5 * (apart["auc_high"] - apart["auc"]), rel=0.2)


def test_only_the_donors_whose_cells_are_generated_are_found() -> None:
    effects = donor_effects(60, 1)
    train, held_out = (
        simulate(900, 1, effects=effects[:30], name="a"),
        simulate(900, 2, effects=effects[30:], name="b"),
    )
    some = simulate(400, 3, effects=effects[:10])
    found = membership_inference(train, held_out, some, "type", donor_key="donor", max_fpr=0.1).loc["donor"]
    whole = membership_inference(train, held_out, simulate(400, 3, effects=effects[:30]), "type", donor_key="donor")
    assert 0.55 < found.loc["density_ratio", "auc"] < whole.loc[("donor", "density_ratio"), "auc"]
    assert found.loc["density_ratio", "tpr"] > 0.2  # where the AUC says little


def test_another_composition_of_labels_does_not_look_like_membership() -> None:
    train, held_out = simulate(500, 1, (0.7, 0.2, 0.1)), simulate(500, 2, (0.1, 0.2, 0.7))
    generated = simulate(500, 3, (0.7, 0.2, 0.1))
    assert contains_chance(membership_inference(train, held_out, generated, "type")).all()
    assert not contains_chance(membership_inference(train, held_out, generated)).any()  # without labels


def test_the_control_finds_training_cells_of_another_batch() -> None:
    batch = np.random.default_rng(0).normal(0, 0.6, size=(1, N_GENES))
    train, generated = simulate(300, 1, effects=batch), simulate(300, 3, effects=batch)
    table = membership_inference(train, simulate(300, 2), generated, "type").loc["cell"]
    assert not contains_chance(table).any()
    assert not contains_chance(table, "control")[["distance", "classifier"]].any()


def test_scores_are_distances_of_scipy(train, held_out) -> None:
    def expression(cells: ad.AnnData) -> np.ndarray:
        return np.log1p(1e4 * cells.X / cells.X.sum(axis=1, keepdims=True))

    x, y, z = (expression(cells) for cells in (train, held_out, simulate(100, 3)))
    obs = pd.DataFrame({"is_member": np.arange(300) % 2 == 0, "label": train.obs["type"].to_numpy()})
    scores = _scores(*(sparse.csr_matrix(x), obs, np.arange(300) < 150), sparse.csr_matrix(y), sparse.csr_matrix(z))
    logs = pd.DataFrame({"g": np.log(cdist(x, y).min(axis=1)), "r": np.log(cdist(x, z).min(axis=1))})
    centred = logs - logs.groupby(obs["label"]).transform("mean")
    np.testing.assert_allclose(scores["distance"], -centred["g"], atol=1e-4)
    np.testing.assert_allclose(scores["density_ratio"], centred["r"] - centred["g"], atol=1e-4)
    assert scores["classifier"].isna().tolist() == [True] * 150 + [False] * 150


def test_rates_are_those_of_scikit_learn() -> None:
    rng = np.random.default_rng(0)
    weights = np.vstack([np.ones(200), rng.integers(0, 4, size=(3, 200))])
    is_member = np.arange(200) < 90
    scores = rng.normal(size=200).round(1) + is_member  # with ties
    for max_fpr in (0.05, 0.1, 0.2):  # of 110 non-members, just 11 or 22 may exceed the threshold
        auc, tpr = _success(scores, is_member, weights, max_fpr)
        for row, of_weights in enumerate(weights):
            false, true, _ = roc_curve(is_member, scores, sample_weight=of_weights, drop_intermediate=False)
            assert tpr[row] == pytest.approx(true[false <= max_fpr].max())
            assert auc[row] == pytest.approx(roc_auc_score(is_member, scores, sample_weight=of_weights))
    assert np.isnan(_success(scores, is_member, weights, 0.009)[1]).all()  # no non-member of 110 may exceed it


def test_members_and_non_members_have_the_same_labels() -> None:
    label, is_member = (
        np.repeat([*"aabbcd"], [30, 10, 8, 40, 20, 20]),
        np.repeat([1, 0, 1, 0, 1, 0], [30, 10, 8, 40, 20, 20]),
    )
    obs = pd.DataFrame({"label": label, "is_member": is_member == 1, "donor": np.arange(len(label))})
    for max_cells, n in ((100, 18), (12, 12)):
        sizes = _matched(obs, max_cells, seed=0).groupby("is_member")["label"].value_counts().unstack()
        assert (sizes.loc[True] == sizes.loc[False]).all() and sizes.loc[True].sum() == n
        assert set(sizes.columns) == {"a", "b"}


def test_orders_and_containers_do_not_matter(train, held_out) -> None:
    generated = partly_copied(train, 0.6)
    table = membership_inference(train, held_out, generated, "type")
    other = generated[::-1, ::-1].copy()
    other.X = sparse.csr_matrix(other.X)
    pd.testing.assert_frame_equal(table, membership_inference(train, held_out, other, "type"), rtol=1e-3)
    assert membership_inference(train, held_out, generated, "type", seed=1).loc[CELLS[0], "auc"] != table["auc"].iloc[0]
    arrays = membership_inference(train.X, sparse.csr_matrix(held_out.X), generated.X, n_bootstrap=0)
    assert list(arrays.columns) == ["auc", "tpr", "control", "n_members", "n_non_members"]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda train, held_out: {"max_fpr": 1.0}, "`max_fpr` is 1.0"),
        (lambda train, held_out: {"held_out": train[:200]}, "share 200 cells, such as '1-0'"),
        (lambda train, held_out: {"held_out": held_out[:20]}, "10 cells each of .* with 5 of `held_out`"),
        (lambda train, held_out: {"generated": train[:3]}, "3 `generated`: pass at least 10"),
        (lambda train, held_out: {"groupby": "cluster"}, "`train` has no obs column 'cluster'"),
        (lambda train, held_out: {"donor_key": "type"}, r"share 'a', 'b', 'c' of obs\['type'\]"),
        (lambda train, held_out: {"donor_key": "donor"}, "1 donors of `train` and 1 of `held_out`"),
    ],
)
def test_bad_input_is_named(train, held_out, change: Callable, message: str) -> None:
    arguments = {"train": train, "held_out": held_out, "generated": simulate(50, 3), "groupby": "type"}
    with pytest.raises(ValueError, match=message):
        membership_inference(**arguments | change(train, held_out))


def test_labels_that_are_not_shared_cannot_be_attacked(train, held_out) -> None:
    other = held_out.copy()
    other.obs["type"] = "new"
    with pytest.raises(ValueError, match="0 cells each"):
        membership_inference(train, other, train, "type")


def test_few_donors_are_warned_of() -> None:
    train, held_out = (simulate(160, seed, effects=donor_effects(8, seed)) for seed in (1, 2))
    with pytest.warns(FewCellsWarning, match="4 donors per side"):
        membership_inference(train, held_out, simulate(50, 3), donor_key="donor", n_bootstrap=20)
