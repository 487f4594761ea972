"""Every kind of condition through the model: it registers, trains, generates, loads, and means what it says."""

import numpy as np
import pandas as pd
import pytest
from condition_rows import ROWS, cells, fitted, log_odds

from scdiffgen.conditions import request_table
from scdiffgen.data import encode_conditions
from scdiffgen.model import TokenDiffusion

pytestmark = pytest.mark.usefixtures("encoded")


@pytest.mark.parametrize("name", [name for name in ROWS if ROWS[name][2]])
def test_each_given_condition_matters_and_any_may_be_left_out(name: str) -> None:
    model, conditions = fitted(name), ROWS[name][2]
    given = log_odds(model, conditions)
    together = {"guide": "dose", "organ": "tissue", "gene": "gene_dose", "drug": "drug_dose"}
    for column in conditions.keys() - set(together.values()):
        left_out = {column, together.get(column)}
        rest = {name: value for name, value in conditions.items() if name not in left_out}
        assert np.abs(log_odds(model, rest) - given).max() > 1e-4, column


def test_an_unseen_label_is_named() -> None:
    with pytest.raises(ValueError, match=r"Condition 'cell_type': 'B' was not registered.*'a', 'b'. Did you mean 'b'"):
        fitted("categorical").generate({"cell_type": "B"}, n_cells=1)


@pytest.mark.parametrize("name", ["set", "adaln", "concat"])
def test_combinations_are_invariant_to_order_and_keep_doses(name: str) -> None:
    model = fitted(name)
    one = log_odds(model, {"guide": "A+B", "dose": "0.5+2.0"})
    for same in ({"guide": "B+A", "dose": "2.0+0.5"}, {"guide": "B+ctrl+A", "dose": {"A": 0.5, "B": 2.0}}):
        np.testing.assert_allclose(log_odds(model, same), one, rtol=1e-4, atol=1e-4)
    assert np.abs(log_odds(model, {"guide": "A+B", "dose": "2.0+0.5"}) - one).max() > 1e-4


def test_generated_cells_register_again_for_any_form_of_dose() -> None:
    asked = {"guide": ["B+ctrl+A", "A", "ctrl"], "dose": [{"A": 0.5, "B": 2.0}, 1.0, None], "n_cells": [3, 3, 3]}
    made = fitted("set").generate(pd.DataFrame(asked), n_steps=2, seed=0, silent=True)
    assert made.obs["guide"].tolist() == ["A+B"] * 3 + ["A"] * 3 + ["ctrl"] * 3
    assert (
        made.obs["dose"].tolist()[:6] == ["0.5+2.0"] * 3 + ["1.0"] * 3 and made.obs["dose"].tolist()[6:] == ["0.0"] * 3
    )
    TokenDiffusion.setup_anndata(made, perturbation_key="guide", dose_key="dose", control="ctrl")
    assert TokenDiffusion(made).module.specs[0].n_slots == 2


@pytest.mark.parametrize("name", ["set", "multi-component"])
def test_a_control_is_not_a_cell_without_conditions(name: str) -> None:
    model = fitted(name)
    control, nothing = log_odds(model, {"perturbation" if "multi" in name else "guide": "ctrl"}), log_odds(model, {})
    assert np.isfinite(control).all()
    assert np.abs(control - nothing).max() > 1e-4


def test_a_combination_larger_than_any_that_was_seen() -> None:
    model = fitted("set")
    padded = pd.DataFrame({"guide": ["A", "A+B+C"], "dose": ["1.0", "1+1+1"], "n_cells": 2})
    made = model.generate(padded, n_steps=4, seed=0)
    assert made.obs["unseen_in_training"].tolist() == [False, False, True, True]
    table = request_table({"guide": "A", "dose": 1.0}, 1)
    wide, narrow = encode_conditions(model.registry, padded)["guide"], encode_conditions(model.registry, table)["guide"]
    assert wide.ids.shape[1] == narrow.ids.shape[1] + 1
    first = padded.drop(columns="n_cells")  # of which `log_odds` takes the first row
    np.testing.assert_allclose(log_odds(model, first), log_odds(model, table), rtol=1e-4, atol=1e-4)


def test_a_dose_matters_only_where_its_drug_is_present() -> None:
    model = fitted("multi-component")
    (spec,) = model.module.specs
    assert spec.components == (1, 1, 0, 0)  # of D1, D2, K1, K2: the gene's column comes first
    knocked_out = {"gene": "K1", "gene_dose": 1.0}
    weak, strong = ({**knocked_out, "drug": "D1", "drug_dose": dose} for dose in (0.5, 3.0))
    assert np.abs(log_odds(model, weak) - log_odds(model, strong)).max() > 1e-4
    for absent in (None, "ctrl"):
        with pytest.raises(ValueError, match="dose 3"):
            log_odds(model, {**knocked_out, "drug": absent, "drug_dose": 3.0})
    np.testing.assert_array_equal(log_odds(model, {**knocked_out, "drug": "ctrl"}), log_odds(model, knocked_out))


def test_a_part_is_of_its_kind_in_whatever_order_it_is_written() -> None:
    model = fitted("multi-component")
    one = log_odds(model, {"perturbation": "K1+D2", "dose": "1.0+3.0"})
    other = log_odds(model, {"gene": "K1", "gene_dose": 1.0, "drug": "D2", "drug_dose": 3.0})
    np.testing.assert_array_equal(log_odds(model, {"perturbation": "D2+K1", "dose": "3.0+1.0"}), one)
    np.testing.assert_array_equal(other, one)


def test_an_unseen_leaf_is_its_parent() -> None:
    model, query = fitted("hierarchical"), cells()[:10].copy()
    query.obs["organ"], query.obs["tissue"] = "blood", "capillary"
    with pytest.warns(UserWarning, match="1 unseen node .*'blood', 'capillary'.*last known parent"):
        tokens = model.get_latent_representation(query)
    query = cells()[:10].copy()
    query.obs["organ"], query.obs["tissue"] = "blood", None
    np.testing.assert_array_equal(model.get_latent_representation(query), tokens)
    leaf, parent = (log_odds(model, place) for place in ({"tissue": "vein"}, {"organ": "blood"}))
    assert np.abs(leaf - parent).max() > 1e-4
    np.testing.assert_array_equal(log_odds(model, {"organ": "blood", "tissue": "vein"}), leaf)


def test_dose_0_is_the_control() -> None:
    model, context = fitted("adaln"), {"cell_type": "a", "age": 30.0}
    control = log_odds(model, {**context, "guide": "ctrl"})
    for guide, dose in (("A", 0.0), ("A+C", "0+0")):
        np.testing.assert_array_equal(log_odds(model, {**context, "guide": guide, "dose": dose}), control)
    assert np.abs(log_odds(model, {**context, "guide": "A", "dose": 1.0}) - control).max() > 1e-3


def test_a_pair_never_seen_together_is_generated_and_marked() -> None:
    model, asked = fitted("adaln"), pd.DataFrame({"cell_type": ["a", "b"], "guide": "A", "dose": 1.0, "n_cells": 3})
    with pytest.warns(UserWarning, match="treatments that no measured response predicts"):
        made = model.generate(asked, n_steps=4, seed=0)
    with pytest.warns(UserWarning, match="treatments that no measured response predicts"):
        model.predict_perturbation(None, {"guide": "A", "dose": 1.0}, indices=[0], n_steps=4, silent=True)
    assert made.obs["unseen_in_training"].tolist() == [False] * 3 + [True] * 3
