import numpy as np
import pandas as pd
import pytest
from anndata import AnnData
from benchmarks import augmentation, speed
from benchmarks._data import LABEL, Split, split
from scipy import sparse

N_CELLS = {"a": 40, "b": 60, "c": 80, "d": 20}


@pytest.fixture(scope="module")
def parts() -> Split:
    rng = np.random.default_rng(0)
    labels = np.repeat(list(N_CELLS), list(N_CELLS.values()))
    rates = rng.lognormal(0, 1, (4, 15))[np.unique(labels, return_inverse=True)[1]]
    obs = pd.DataFrame({LABEL: pd.Categorical(labels)}, index=[f"cell_{i}" for i in range(len(labels))])
    adata = AnnData(sparse.csr_matrix(rng.poisson(5 * rates), dtype=np.float32), obs=obs)
    return split(adata, "synthetic", seed=0)


@pytest.fixture(autouse=True)
def _few_cells(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(augmentation, "KEPT", (3, 20))
    monkeypatch.setattr(augmentation, "N_STEPS", 2)
    monkeypatch.setattr(speed, "N_EPOCHS", 2)
    monkeypatch.setattr(speed, "STEPS", (2,))
    monkeypatch.setattr(speed, "DENSE_STEPS", (2,))
    monkeypatch.setattr(speed, "OTHER_PROCESSES", {"gaussian": (2,), "latent": (2,)})


def test_labels_with_too_few_cells_to_lose_are_not_made_rare(parts: Split) -> None:
    rare = {seed: augmentation.choose_rare(Split("x", seed, *_three(parts)), 3) for seed in range(20)}
    assert set(np.concatenate(list(rare.values()))) == {"a", "b", "c"}  # "d" has 14 training cells
    assert {len(labels) for labels in rare.values()} == {1}


def test_rare_labels_keep_few_cells_and_others_all(parts: Split) -> None:
    before = parts.train.obs[LABEL].value_counts().to_dict()
    reduced = augmentation.make_rare(parts, np.array(["b"]), 3)
    assert reduced.train.obs[LABEL].value_counts().to_dict() == before | {"b": 3}
    assert reduced.train.obs_names.isin(parts.train.obs_names).all()


def test_rare_labels_are_filled_up_to_the_median_of_the_others() -> None:
    labels = np.repeat(["a", "b", "c", "d"], [5, 2, 9, 11])
    wanted = augmentation.missing_labels(labels, np.array(["a", "b"]))
    assert pd.Series(wanted).value_counts().to_dict() == {"a": 5, "b": 8}


def test_every_way_to_train_is_scored_on_unseen_cells(parts: Split) -> None:
    rows = {row["training"]: row for row in augmentation.measure(parts, 3, max_epochs=1)}
    assert list(rows) == [
        "real",
        "real, classes weighted",
        "real + copies",
        "real + Poisson",
        "real + generated",
        "all real cells",
    ]
    assert rows["all real cells"]["f1_rare"] > 0.8
    for row in rows.values():
        rare = [row["f1"][label] for label in row["rare"]]
        assert row["f1_rare"] == pytest.approx(np.mean(rare))
        assert row["f1_other"] == pytest.approx((sum(row["f1"].values()) - sum(rare)) / (4 - len(rare)))


def test_speed_has_a_rate_for_each_epoch_after_the_first_and_each_repeat(parts: Split) -> None:
    rates = speed.measure(parts, turns=2, repeats=3, n_cells=7)
    assert {row["model"]: len(row["cells_per_second"]) for row in rates["training"]} == {
        "scdiffgen": 2,
        "scdiffgen, bf16-mixed": 2,
        "scVI": 2,
    }
    assert {row["model"]: len(row["cells_per_second"]) for row in rates["generating"]} == {
        "scdiffgen, 2 steps": 3,
        "scdiffgen, 2 steps, dense rates": 3,
        "scdiffgen, gaussian, 2 steps": 3,
        "scdiffgen, latent, 2 steps": 3,
        "scVI, Gaussian of the label": 3,
        "linear Gaussian copula": 3,
    }


def _three(parts: Split) -> tuple[AnnData, AnnData, AnnData]:
    return parts.train, parts.held_out, parts.other
