"""What a model keeps of its training cells goes through a file as plain data, and comes back whole."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from anndata import AnnData
from condition_rows import fitted
from small_cells import QUIET, SMALL, simulated_cells

from scdiffgen._log_normalise import log_normalise
from scdiffgen.model import TokenDiffusion
from scdiffgen.model._training_summary import TrainingSummary, check_summary, training_summary


def assert_equal(one: object, other: object) -> None:
    assert type(one) is type(other)
    if isinstance(one, dict):
        assert list(one) == list(other)
        for name in one:
            assert_equal(one[name], other[name])
    elif isinstance(one, tuple):
        for mine, theirs in zip(one, other, strict=True):
            assert_equal(mine, theirs)
    elif one is not None:
        np.testing.assert_array_equal(one, other)


def test_a_summary_comes_back_from_plain_data(small: TokenDiffusion) -> None:
    plain = small.training_summary_
    assert_equal(TrainingSummary.from_plain(plain).to_plain(), plain)
    summary = training_summary(small)
    assert len(summary.library) == summary.conditions.n_cells == 120
    assert training_summary(small) is summary  # until there are other training cells


@pytest.mark.parametrize("name", ["set", "hierarchical", "direct"])
def test_the_summary_of_a_training_is_sound(name: str) -> None:
    model = fitted(name)
    check_summary(training_summary(model), model.module.specs, 0)


@pytest.mark.parametrize(
    ("part", "value"),
    [
        ("share", -1.0),
        ("log_library", np.nan),
        ("log_mean", np.inf),
        ("curves", np.nan),
        ("n_cells", 0),
        ("log_variance", np.zeros((2, 3), np.float32)),
    ],
)
def test_pseudobulks_that_no_cells_have_are_refused(part: str, value: float | np.ndarray) -> None:
    model = fitted("set")
    summary = training_summary(model)
    (bulks,) = summary.pseudobulks
    wrong = value if isinstance(value, np.ndarray) else np.full_like(getattr(bulks, part), value)
    for name in ("pseudobulks", "reference_pseudobulks"):
        with pytest.raises(ValueError, match="invalid pseudobulks"):
            check_summary(replace(summary, **{name: (replace(bulks, **{part: wrong}),)}), model.module.specs, 0)


@pytest.mark.parametrize(
    ("part", "value"), [("ids", -1), ("ids", 99), ("values", np.inf), ("mask", 2), ("given", np.ones(3, bool))]
)
def test_conditions_that_are_not_registered_are_refused(part: str, value: float | np.ndarray) -> None:
    model = fitted("direct")
    summary = training_summary(model)
    right = summary.conditions["guide"]._replace(given=np.ones(summary.conditions.n_cells, bool))
    wrong = value if isinstance(value, np.ndarray) else np.full(getattr(right, part).shape, value)
    conditions = summary.conditions.replace({"guide": right._replace(**{part: wrong})})
    with pytest.raises(ValueError, match="values of the condition 'guide'|shapes"):
        check_summary(replace(summary, conditions=conditions), model.module.specs, 0)


def test_missing_conditions_may_hold_anything() -> None:
    model = fitted("direct")
    summary = training_summary(model)
    ids = np.full_like(summary.conditions["guide"].ids, 99)
    missing = summary.conditions["guide"]._replace(ids=ids, given=np.zeros(len(ids), bool))
    check_summary(replace(summary, conditions=summary.conditions.replace({"guide": missing})), model.module.specs, 0)


SIZES = {  # untreated and treated cells of each type
    "a": (30, 20),
    "b": (30, 19),
    "c": (30, 5),
    "d": (30, 1),
    "e": (5, 40),
    "f": (1, 0),
}


def arrays_in(saved: object) -> Iterator[np.ndarray]:
    """Every array in a file, whatever it is in."""
    if isinstance(saved, dict):
        saved = list(saved.values())
    if isinstance(saved, list | tuple):
        for part in saved:
            yield from arrays_in(part)
    elif isinstance(saved, np.ndarray | torch.Tensor):
        yield np.asarray(saved)


def shares(counts: np.ndarray) -> np.ndarray:
    return np.asarray(counts) / np.asarray(counts).sum(1, keepdims=True)


def test_a_file_holds_no_sum_of_few_cells_and_predicts_their_responses(tmp_path: Path) -> None:
    treated = [
        (kind, guide)
        for kind, both in SIZES.items()
        for guide, n in zip(("ctrl", "A"), both, strict=True)
        for _ in range(n)
    ]
    cells = simulated_cells(len(treated), n_genes=12)
    adata = AnnData(cells.X, obs=pd.DataFrame(treated, columns=["cell_type", "guide"], index=cells.obs_names))
    with pytest.warns(UserWarning, match="with a single cell"):
        TokenDiffusion.setup_anndata(adata, labels_key="cell_type", perturbation_key="guide", control="ctrl")
    model = TokenDiffusion(adata, **SMALL)
    model.train(max_epochs=1, **QUIET)
    model.save(tmp_path / "model")
    saved = torch.load(tmp_path / "model/model.pt", weights_only=False)
    (bulks,) = saved["attr_dict"]["training_summary_"]["pseudobulks"]
    assert sorted(bulks["n_cells"]) == [20, 25, 30, 30, 30, 30, 40]  # b, c and d as treated are together 25
    rows = np.concatenate(
        [a.reshape(-1, 12) for a in arrays_in(saved) if a.ndim and a.shape[-1] == 12 and a.dtype.kind in "fiu"]
    )
    for name, cells_of in (("log_mean", log_normalise), ("share", shares)):
        of_cells, totals = cells_of(adata.X), bulks[name] * bulks["n_cells"][:, None]
        seen = np.concatenate([rows, totals, (totals[:, None] - totals[None]).reshape(-1, 12)])
        sums = pd.DataFrame(of_cells).groupby([adata.obs[key].to_numpy() for key in ("cell_type", "guide")])
        for group, total in sums.sum().iterrows():
            n_cells = SIZES[group[0]][int(group[1] == "A")]
            is_kept = n_cells >= 20 and (name == "share" or group[1] == "ctrl")  # treated means are at another depth
            assert np.isclose(seen, total.to_numpy(), rtol=1e-4).all(1).any() == is_kept, group
        assert not np.isclose(seen[:, None], of_cells[None], rtol=1e-4).all(2).any()
    assert not (rows[:, None] == np.asarray(adata.X)[None]).all(2).any()
    start = adata[adata.obs["guide"] == "ctrl"].copy()
    predicted = model.predict_perturbation(start, {"guide": "A"}, seed=0, silent=True)
    responses = predicted.obs["response_source"].astype(str).groupby(start.obs["cell_type"].to_numpy()).unique()
    own = {kind: list(names) for kind, names in responses.items()}
    assert own == {kind: ["own" if min(SIZES[kind]) >= 20 else "transferred"] for kind in "abcdef"}
