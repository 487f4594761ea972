"""The folder of scvi-tools' hub: what it reads there is the model, without a network."""

import json
import sys
from pathlib import Path

import numpy as np
import pytest
import scvi
from condition_rows import fitted
from mudata_cells import paired
from small_cells import QUIET, simulated_cells, small_model, trained_model

from scdiffgen.model import TokenDiffusion
from scdiffgen.model._persisting import card_text

pytest.importorskip("huggingface_hub")
hub_of_scvi = pytest.importorskip("scvi.hub")


@pytest.fixture(scope="module")
def model() -> TokenDiffusion:
    model = small_model(simulated_cells(80), labels_key="cell_type", batch_key="batch")
    model.train(max_epochs=1, batch_size=32, **QUIET)
    return model


def made_by(model: TokenDiffusion) -> np.ndarray:
    return model.generate({"cell_type": "a"}, 20, n_steps=4, seed=0, silent=True).X.toarray()


def test_scvi_tools_reads_the_folder_and_gets_the_model(model: TokenDiffusion, tmp_path: Path) -> None:
    model.save_for_hub(tmp_path / "hub", title="Two types", license_info="cc-by-4.0", save_anndata=True)
    hub = hub_of_scvi.HubModel(str(tmp_path / "hub"))  # metadata and card as they are on the disk
    assert hub.metadata.model_cls_name == "TokenDiffusion"
    hub.load_model(accelerator="cpu")
    np.testing.assert_array_equal(made_by(hub.model), made_by(model))
    np.testing.assert_array_equal(hub.adata.X, model.adata.X)
    again = hub_of_scvi.HubMetadata.from_dir(
        str(tmp_path / "hub"), hub.metadata.anndata_version, model_parent_module="scdiffgen.model"
    )
    assert again == hub.metadata
    assert again.scvi_version == scvi.__version__


def test_without_cells_the_model_generates(model: TokenDiffusion, tmp_path: Path) -> None:
    """And takes cells that are given, as scvi-tools hands them on."""
    hub = model.save_for_hub(tmp_path / "hub", title="Two types", license_info="mit")
    assert sorted(path.name for path in (tmp_path / "hub").iterdir()) == [
        "README.md",
        "_scvi_required_metadata.json",
        "model.pt",
    ]
    loaded = TokenDiffusion.load(hub.local_dir, adata=False, accelerator="cpu")
    np.testing.assert_array_equal(made_by(loaded), made_by(model))
    hub.load_model(simulated_cells(30, seed=3), accelerator="cpu")
    assert hub.model.get_latent_representation().shape[0] == 30


def test_the_card_says_what_the_model_is_and_how_to_ask_it(model: TokenDiffusion, tmp_path: Path) -> None:
    hub = model.save_for_hub(tmp_path / "hub", title="Two types", license_info="mit", description="Not *real* cells.")
    card = hub.model_card
    assert card.data.license == "mit"
    assert card.text.strip().startswith("# Two types\n\nNot *real* cells.")
    assert "- `cell_type`: 'a', 'b'\n- `batch`: 'x', 'y'" in card.text
    question = card.text.split("model.generate(")[1].split(")")[0]
    assert question == "{'cell_type': 'a'}, n_cells=100"
    assert "`scdiffgen.metrics.membership_inference` measures" in card.text
    assert json.loads((tmp_path / "hub/_scvi_required_metadata.json").read_text())["training_data_url"] is None


def test_the_card_knows_every_kind_of_condition(tmp_path: Path) -> None:
    hub = fitted("set").save_for_hub(tmp_path / "set", title="Drugs", license_info="mit")
    assert "- `guide`: combinations of 'A', 'B', 'C' with doses (uM)" in hub.model_card.text
    assert "generate({}, n_cells=100)" in hub.model_card.text
    assert "levels 'organ', 'tissue'" in card_text(fitted("hierarchical"), "", "")
    assert "- `age`: a number" in card_text(fitted("direct"), "", "")


def test_a_model_that_cannot_be_handed_on_is_refused(
    model: TokenDiffusion, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(RuntimeError, match="not trained"):
        small_model().save_for_hub(tmp_path / "hub", title="", license_info="mit")
    model.save_for_hub(tmp_path / "hub", title="First", license_info="mit")
    with pytest.raises(ValueError, match="already exists"):
        model.save_for_hub(tmp_path / "hub", title="Second", license_info="mit")
    assert "# First" in (tmp_path / "hub/README.md").read_text()
    model.save_for_hub(tmp_path / "hub", title="Second", license_info="mit", overwrite=True)
    assert "# Second" in (tmp_path / "hub/README.md").read_text()
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    with pytest.raises(ImportError, match=r"pip install 'scdiffgen\[hub\]'"):
        model.save_for_hub(tmp_path / "other", title="", license_info="mit")


def test_a_model_of_several_modalities_is_handed_on_too(tmp_path: Path) -> None:
    mdata = paired(40)
    model = trained_model(mdata, labels_key="sort_of_cell")
    model.save_for_hub(tmp_path / "hub", title="Two modalities", license_info="mit")
    hub = hub_of_scvi.HubModel(str(tmp_path / "hub"))
    hub.load_model(paired(10, seed=4), accelerator="cpu")
    made = [
        of.generate({"sort_of_cell": "a"}, 5, n_steps=3, seed=0, silent=True)["prot"].X.toarray()
        for of in (model, hub.model)
    ]
    np.testing.assert_array_equal(*made)
    assert "- `sort_of_cell`: 'a', 'b'" in hub.model_card.text
