"""Descriptions: embedded once, kept in the registry, appended when they are new."""

import pickle
from collections.abc import Callable

import anndata as ad
import numpy as np
import pandas as pd
import pytest
import sentence_encoder
import torch

from scdiffgen.conditions import conditions_from_batch
from scdiffgen.data import Manager, add_texts, condition_specs, encode_conditions, field_state, unseen_texts

Register = Callable[..., Manager]
NOTES = ["a memory cell", "a naive cell"]


def vectors(manager: Manager) -> np.ndarray:
    state = field_state(manager, "text")
    assert state is not None
    return state["features"]


def test_each_description_is_embedded_once_and_kept(cells: ad.AnnData, register: Register, encoded: list[str]) -> None:
    manager = register(cells, text_key="note")
    np.testing.assert_allclose(vectors(manager), [sentence_encoder.vector_of(note) for note in NOTES], rtol=1e-6)
    assert vectors(manager).dtype == np.float32
    (spec,) = condition_specs(manager)
    assert (spec.name, spec.kind, spec.n_categories, spec.n_features) == ("note", "category", 2, 384)
    assert encoded == NOTES


def test_a_saved_registry_needs_no_encoder(
    cells: ad.AnnData, register: Register, monkeypatch: pytest.MonkeyPatch
) -> None:
    manager = register(cells, text_key="note")
    source = pickle.loads(pickle.dumps(manager.registry))
    sentence_encoder.uninstall(monkeypatch)
    query = cells[[1, 2]].copy()
    again = Manager(fields=manager.fields)
    again.register_fields(query, source)
    assert query.obs["_scvi_text"].tolist() == [0, 1]
    np.testing.assert_array_equal(vectors(again), vectors(manager))


def test_without_the_encoder_the_extra_is_named_and_nothing_is_left_behind(
    cells: ad.AnnData, register: Register, monkeypatch: pytest.MonkeyPatch
) -> None:
    sentence_encoder.uninstall(monkeypatch)
    with pytest.raises(ImportError, match=r"pip install 'scdiffgen\[text\]'"):
        register(cells, text_key="note")
    assert "_scvi_text" not in cells.obs


def test_numbers_are_no_descriptions(cells: ad.AnnData, register: Register) -> None:
    with pytest.raises(ValueError, match="`text_key='donor'`: 3 is no text"):
        register(cells, text_key="donor")


def test_other_cells_have_the_registered_descriptions_or_extend_them(
    cells: ad.AnnData, register: Register, encoded: list[str]
) -> None:
    manager = register(cells, text_key="note")
    query = cells[:2].copy()
    query.obs["note"] = ["a naive cell", "a blood cell"]
    with pytest.raises(ValueError, match="1 unseen category .'a blood cell'"):
        register(query, source=manager, text_key="note")
    extended = register(query, source=manager, extend=True, text_key="note")
    assert encoded == [*NOTES, "a blood cell"]
    np.testing.assert_array_equal(vectors(extended)[:2], vectors(manager))
    np.testing.assert_allclose(vectors(extended)[2], sentence_encoder.vector_of("a blood cell"), rtol=1e-6)


def test_descriptions_are_added_to_a_copy_of_the_registry(cells: ad.AnnData, register: Register) -> None:
    manager = register(cells, text_key="note", labels_key="cell_type")
    table = pd.DataFrame({"note": ["a blood cell", "a naive cell", None, "a blood cell"], "cell_type": "B cells"})
    assert unseen_texts(manager.registry, table) == ["a blood cell"]
    registry = add_texts(manager.registry, ["a blood cell"])
    assert unseen_texts(registry, table) == []
    parts = encode_conditions(registry, table)["note"]
    assert parts.ids[:, 0].tolist() == [2, 1, 0, 2]
    assert parts.given.tolist() == [True, True, False, True]
    with pytest.raises(ValueError, match="'a blood cell' was not registered"):
        encode_conditions(manager, table)
    assert [spec.n_categories for spec in condition_specs(registry)] == [2, 3]
    assert registry["field_registries"]["text"]["summary_stats"] == {"n_text": 3}


def test_without_descriptions_there_are_none_to_add(cells: ad.AnnData, register: Register) -> None:
    manager = register(cells, labels_key="cell_type")
    assert unseen_texts(manager.registry, pd.DataFrame({"cell_type": ["liver"], "note": "x"})) == []
    with pytest.raises(ValueError, match="pass `text_key`"):
        add_texts(manager.registry, ["x"])


def test_codes_reach_the_minibatch(cells: ad.AnnData, register: Register) -> None:
    manager = register(cells, text_key="note")
    codes = torch.tensor(np.asarray(manager.get_from_registry("text")))
    parts = conditions_from_batch({"text": codes}, condition_specs(manager))["note"]
    assert [NOTES[i] for i in parts.ids[:, 0].tolist()] == cells.obs["note"].tolist()
