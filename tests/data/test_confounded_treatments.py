"""Registration names treatments that share no batch, covariate or hierarchy node with control cells."""

import re
import warnings
from collections.abc import Callable, Sequence
from typing import Any

import anndata as ad
import mudata
import numpy as np
import pandas as pd
import pytest
from scipy import sparse

from scdiffgen.data import Manager
from scdiffgen.data._setup import warn_of_screen_design
from scdiffgen.model import TokenDiffusion

Register = Callable[..., Manager]
KEYS = {"batch_key": "plate", "perturbation_key": "drug", "control": "ctrl"}
START = "Treatment and "


def plated(*groups: tuple[Any, str], n_cells: int = 25, **columns: Sequence[str]) -> ad.AnnData:
    """Shuffled cells of groups (plate, drug), and further columns, an entry for each group."""
    obs = pd.DataFrame(groups, columns=["plate", "drug"], dtype=object).assign(**columns)
    obs = obs.loc[np.repeat(obs.index, n_cells)].sample(frac=1, random_state=0).reset_index(drop=True)
    obs.index = obs.index.astype(str)
    return ad.AnnData(sparse.csr_matrix(np.ones((len(obs), 3), dtype=np.float32)), obs=obs)


def said_of(cells: ad.AnnData, register: Register, **options: Any) -> list[str]:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        register(cells, **{**KEYS, **options})
    return [str(warning.message) for warning in caught if str(warning.message).startswith(START)]


def named_in(message: str) -> tuple[list[str], list[str], list[str]]:
    """Treatments, their batches, and the batches of control cells."""
    found = re.search(r"cells of (.*?)\. Treated cells are in (.*?), control cells in (.*?)\. The ", message)
    assert found is not None, message
    return tuple(re.findall(r"'([^']*)'", names) for names in found.groups())


CTRL, A, B = ("p1", "ctrl"), ("p2", "A"), ("p2", "B")
CONFOUNDED: dict[str, tuple[list, dict[str, Any], tuple[list[str], list[str], list[str]]]] = {
    "a plate for each arm": ([CTRL, A], {}, (["A"], ["p2"], ["p1"])),
    "plates nested in arms": (
        [("p4", "A"), CTRL, ("p3", "A"), ("p2", "ctrl"), ("p5", "B")],
        {},
        (["A", "B"], ["p3", "p4", "p5"], ["p1", "p2"]),
    ),
    "only some treatments": ([CTRL, ("p1", "A"), A, B, ("p3", "B")], {}, (["B"], ["p2", "p3"], ["p1"])),
    "a combination": (
        [CTRL, ("p1", "A"), ("p1", "B"), ("p2", "B+A"), ("p3", "A+B")],
        {},
        (["A+B"], ["p2", "p3"], ["p1"]),
    ),
    "a drug beside its combination": ([CTRL, A, ("p3", "A+B")], {}, (["A", "A+B"], ["p2", "p3"], ["p1"])),
    "several names of the control": (
        [CTRL, ("p2", "A+ctrl"), ("p2", "DMSO"), ("p3", "B")],
        {"control": ["ctrl", "DMSO"]},
        (["B"], ["p3"], ["p1", "p2"]),
    ),
    "parts in columns of their own": (
        [CTRL, ("p1", "A"), A],
        {"gene": ["ctrl", "ctrl", "KLF1"], "perturbation_key": ["drug", "gene"]},
        (["A+KLF1"], ["p2"], ["p1"]),
    ),
    "doses of one treatment": (
        [CTRL, A, ("p3", "A")],
        {"dose": ["0", "1", "10"], "dose_key": "dose"},
        (["A"], ["p2", "p3"], ["p1"]),
    ),
}


@pytest.mark.parametrize("design", CONFOUNDED)
def test_treatments_without_controls_in_their_batches_are_named(register: Register, design: str) -> None:
    groups, options, expected = CONFOUNDED[design]
    columns = {name: options[name] for name in ("gene", "dose") if name in options}
    keys = {name: value for name, value in options.items() if name not in columns}
    (message,) = said_of(plated(*groups, **columns), register, **keys)
    assert named_in(message) == expected
    assert message.startswith("Treatment and batch are confounded: no 'plate' holds both control cells and cells of ")


@pytest.mark.parametrize(
    "groups",
    [
        pytest.param([CTRL, ("p1", "A"), A, ("p3", "ctrl")], id="partly crossed"),
        pytest.param([(lane, drug) for lane in (1, 2, 3) for drug in ("ctrl", "A", "B")], id="lanes"),
        pytest.param([CTRL, ("p1", "A")], id="one batch"),
    ],
)
def test_designs_with_shared_batches_give_no_warning(register: Register, groups: list[tuple[Any, str]]) -> None:
    assert said_of(plated(*groups), register) == []


def test_doses_do_not_separate_treatments(register: Register) -> None:
    crossed = plated(CTRL, ("p1", "A"), A, dose=["0", "1", "10"])
    assert said_of(crossed, register, dose_key="dose") == []


def test_neither_batches_nor_perturbations_alone_are_compared(register: Register) -> None:
    cells = plated(CTRL, A)
    assert said_of(cells, register, batch_key=None) == []
    assert said_of(cells, register, perturbation_key=None) == []
    assert said_of(cells, register, batch_key=None, labels_key="plate") == []


TIMES = [("0h", "ctrl"), ("6h", "A"), ("24h", "A"), ("24h", "B")]


@pytest.mark.parametrize("option", ["categorical_covariate_keys", "hierarchy_keys"])
def test_covariates_and_hierarchies_without_controls_are_named_once(register: Register, option: str) -> None:
    (message,) = said_of(plated(*TIMES), register, batch_key=None, **{option: ["plate"]})
    treatments, treated, controls = named_in(message)
    assert (treatments, set(treated), controls) == (["A", "B"], {"6h", "24h"}, ["0h"])
    assert said_of(plated(*TIMES, ("24h", "ctrl")), register, batch_key=None, **{option: ["plate"]}) == []


def test_numbers_are_compared_by_the_ranges_of_both_arms(register: Register) -> None:
    """Controls at 0 h only are apart from treated cells; those of any range that overlaps theirs are not."""
    options = {"batch_key": None, "continuous_covariate_keys": ["hours"]}
    (message,) = said_of(plated(*TIMES, hours=[0.0, 6.0, 24.0, np.nan]), register, **options)
    assert message.startswith("Treatment and 'hours' are confounded: 'hours' is 6 to 24 in cells of 'A', and 0 to 0")
    assert said_of(plated(*TIMES, ("24h", "ctrl"), hours=[0.0, 6.0, 24.0, 24.0, 24.0]), register, **options) == []
    assert said_of(plated(*TIMES, hours=[np.nan, 6.0, 24.0, 24.0]), register, **options) == []


def test_a_level_of_a_hierarchy_is_compared_below_its_parents(register: Register) -> None:
    """Both types hold both arms; times below them do not, although each time has both in some type."""
    cells = plated(CTRL, ("p2", "A"), CTRL, ("p2", "A"), type=list("uuvv"), time=["0h", "6h", "6h", "0h"])
    (message,) = said_of(cells, register, batch_key=None, hierarchy_keys=["type", "time"])
    assert message.startswith("Treatment and 'time' are confounded")
    assert named_in(message) == (["A"], ["u > 6h", "v > 0h"], ["u > 0h", "v > 6h"])
    refined = plated(CTRL, ("p2", "A"), ("p2", "A"), CTRL, type=list("uuvw"))
    assert said_of(refined, register, batch_key=None, hierarchy_keys=["type"]) == []


def test_each_confounded_condition_has_one_warning(register: Register) -> None:
    cells = plated(*TIMES, time=["0h", "6h", "24h", "24h"], root=list("xyyy"))
    options = {"categorical_covariate_keys": ["time"], "hierarchy_keys": ["root", "site"]}
    cells.obs["site"] = cells.obs["plate"]
    assert [message.split()[2] for message in said_of(cells, register, **options)] == ["'root'", "'time'", "batch"]


def test_cells_without_controls_have_a_warning_of_their_own(register: Register) -> None:
    with pytest.warns(UserWarning, match="no cell is a control"):
        assert said_of(plated(("p1", "A"), ("p2", "B")), register) == []
        register(plated(("p1", "A"), ("p2", "B")), **KEYS)


def test_cells_that_are_registered_as_others_are_not_named_again(register: Register) -> None:
    cells = plated(("p1", "ctrl"), ("p2", "A"))
    with pytest.warns(UserWarning, match=START):
        manager = register(cells, **KEYS)
    assert said_of(cells[cells.obs["drug"] == "A"].copy(), register, source=manager) == []


def test_models_name_them_once_also_of_a_mudata() -> None:
    cells = plated(("p1", "ctrl"), ("p2", "A"))
    with pytest.warns(UserWarning, match=START) as caught:
        TokenDiffusion.setup_anndata(cells, **KEYS)
    assert len(caught) == 1 and caught[0].filename == __file__
    both = mudata.MuData({"rna": plated(("p1", "ctrl"), ("p2", "A"))})
    both.obs = cells.obs[["plate", "drug"]].copy()
    with pytest.warns(UserWarning, match=START) as caught:
        TokenDiffusion.setup_mudata(both, **KEYS)
    assert len([warning for warning in caught if START in str(warning.message)]) == 1


def test_a_large_screen_is_compared_at_once(register: Register) -> None:
    random, n_cells = np.random.default_rng(0), 100_000
    drug, plate = random.integers(300, size=n_cells), random.integers(25, size=n_cells)
    obs = pd.DataFrame({"drug": [f"drug{i:03}" for i in drug], "plate": plate + 25 * (drug > 0)})
    obs.index = obs.index.astype(str)
    cells = ad.AnnData(sparse.csr_matrix(np.ones((n_cells, 1), dtype=np.float32)), obs=obs)
    options = {**KEYS, "control": "drug000"}
    with pytest.warns(UserWarning, match=r"'drug010', \.\.\. \(299 in all\)\. Treated cells are in 25, 26, "):
        manager = register(cells, **options)
    with pytest.warns(UserWarning, match=START):
        warn_of_screen_design(manager)
