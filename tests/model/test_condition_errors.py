"""Conditions that make no sense are named, at registration and when they are asked for."""

from typing import Any

import pytest
from condition_rows import SLOTS, cells, fitted
from small_cells import SMALL

from scdiffgen.model import NetworkOptions, TokenDiffusion


def test_a_dose_without_its_drug_is_named_at_registration() -> None:
    adata = cells()
    adata.obs.loc[adata.obs["drug"].isna(), "drug_dose"] = 2.0
    with pytest.raises(ValueError, match="dose 2 is given in a column without a perturbation"):
        TokenDiffusion.setup_anndata(adata, **SLOTS)
    with pytest.raises(ValueError, match="`dose_key` names 1 column .*, `perturbation_key` 2"):
        TokenDiffusion.setup_anndata(adata, **{**SLOTS, "dose_key": "drug_dose"})


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        ({"guide": "A+X", "dose": "1+1"}, "'X' was not registered; the registered perturbations are 'A', 'B', 'C'"),
        ({"guide": "A+B", "dose": 2.0}, "1 dose for 2 perturbations"),
        ({"guide": "A"}, "'A' has no dose. Pass one in 'dose'; the registered doses of A are"),
        ({"guide": "A", "dose": {"A": 1.0, "B": 2.0}}, "a dose is given of 'B'"),
    ],
)
def test_every_method_that_takes_conditions_checks_them(asked: dict[str, Any], message: str) -> None:
    model = fitted("set")
    for ask in (
        lambda: model.generate(asked, n_cells=1),
        lambda: model.predict_perturbation(model.adata, asked, indices=[0]),
    ):
        with pytest.raises(ValueError, match=message):
            ask()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"conditioning": "film"}, r"`conditioning` is 'film': pass one of \['adaln', 'cross_attention', 'concat'\]"),
        ({"level_embedding": "linear"}, "`level_embedding` is 'linear': pass one of"),
        ({"number_embedding": "linear"}, "`number_embedding` is 'linear'"),
    ],
)
def test_unknown_options_are_named(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        TokenDiffusion(fitted("set").adata, **SMALL, network=NetworkOptions(**options))
