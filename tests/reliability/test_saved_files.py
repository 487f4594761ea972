"""Files of models: whole or not there, and no code in them is run."""

import os
import pickle
import threading
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import anndata as ad
import numpy as np
import pandas as pd
import pyro
import pytest
import torch
from fingerprint import weights_of
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from small_cells import SMALL, simulated_cells

from scdiffgen.io import _plain_data, read_plainly
from scdiffgen.model import NetworkOptions, TokenDiffusion
from scdiffgen.model._persisting import OPTIONS as KINDS

SAVED_BY = {"pickle_module": _plain_data}


@pytest.fixture
def saved(tiny: TokenDiffusion, tmp_path: Path) -> Path:
    tiny.save(tmp_path / "model")
    return tmp_path / "model"


def load(folder: Path, **options: Any) -> TokenDiffusion:
    return TokenDiffusion.load(folder, adata=False, accelerator="cpu", **options)


def contents(folder: Path) -> dict[str, Any]:
    return torch.load(folder / "model.pt", weights_only=False)


class Runs:
    """When it is unpickled, makes a folder."""

    def __init__(self, mark: Path) -> None:
        self.mark = mark

    def __reduce__(self) -> tuple[Callable[[str], None], tuple[str]]:
        return os.mkdir, (str(self.mark),)


def at(place: str) -> Callable[[Path, Runs], None]:
    """Put the code at a place in the file."""
    *above, last = place.split("/")

    def attack(folder: Path, code: Runs) -> None:
        whole = inner = contents(folder)
        for name in above:
            inner = inner[name]
        inner[last] = code
        torch.save(whole, folder / "model.pt", **SAVED_BY)

    return attack


IN_PLACES = [at("attr_dict/saved_with_"), at("attr_dict/registry_/setup_args/control")]
IN_PLACES += [at("model_state_dict/pyro_param_store"), at("attr_dict/init_params_/non_kwargs/network")]


def in_old_format(folder: Path, code: Runs) -> None:
    torch.save({"attr_dict": code}, folder / "model.pt", _use_new_zipfile_serialization=False)


def as_plain_pickle(folder: Path, code: Runs) -> None:
    (folder / "model.pt").write_bytes(pickle.dumps(code))


def in_zip_without_tensors(folder: Path, code: Runs) -> None:
    with zipfile.ZipFile(folder / "model.pt", "w") as file:
        file.writestr("model/data.pkl", pickle.dumps(code, protocol=2))
        file.writestr("model/version", "3\n")


@pytest.mark.parametrize("attack", [*IN_PLACES, in_old_format, as_plain_pickle, in_zip_without_tensors])
def test_nothing_in_a_file_is_run(
    attack: Callable[[Path, Runs], None], saved: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mark = tmp_path / "was_run"
    attack(saved, Runs(mark))
    monkeypatch.setenv("TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD", "1")  # what others may have set must not weaken it
    for read in (load, TokenDiffusion.load_registry, TokenDiffusion.view_setup_args):
        with pytest.raises(ValueError, match="`dir_path`: .*(more than plain data|no saved model|cannot be read)"):
            read(saved)
    assert not mark.exists()


@pytest.mark.parametrize("attack", IN_PLACES[:3])
def test_a_file_from_people_you_trust_may_run_code(
    attack: Callable[[Path, Runs], None], saved: Path, tmp_path: Path
) -> None:
    """So the test above can fail."""
    attack(saved, Runs(tmp_path / "was_run"))
    load(saved, safe=False)
    assert (tmp_path / "was_run").exists()


def test_the_refusal_names_what_the_file_would_call_and_the_way_out(saved: Path, tmp_path: Path) -> None:
    IN_PLACES[0](saved, Runs(tmp_path / "was_run"))
    with pytest.raises(ValueError, match=r"plain data \('posix.mkdir'\), so.*load\(\.\.\., safe=False\)"):
        load(saved)


def test_files_of_pickled_objects_are_read_when_trusted(saved: Path, tiny: TokenDiffusion) -> None:
    torch.save(contents(saved), saved / "model.pt")  # as scvi-tools pickles arrays and tables
    with pytest.raises(ValueError, match="not saved by `TokenDiffusion`.*safe=False"):
        load(saved)
    assert weights_of(load(saved, safe=False)) == weights_of(tiny)


OPTIONS = {
    "everything": {
        "labels_key": "cell_type",
        "batch_key": "batch",
        "hierarchy_keys": ["organ", "tissue"],
        "categorical_covariate_keys": ["sex"],
        "continuous_covariate_keys": ["age"],
        "perturbation_key": "guide",
        "control": ("ctrl", np.str_("none")),
        "dose_key": "dose",
        "dose_unit": "uM",
        "perturbation_features_key": "vectors",
    },
    "nothing": {},
    "numbers as categories": {"labels_key": "year", "batch_key": "yes"},
}


@pytest.mark.parametrize("name", OPTIONS)
def test_whatever_is_registered_is_saved_as_plain_data(name: str, cells: Any, tmp_path: Path) -> None:
    cells.obs["sex"], cells.obs["yes"] = np.resize([*"fm"], 60), np.resize([True, False], 60)
    cells.obs["year"] = np.resize([2020, 2021], 60)
    TokenDiffusion.setup_anndata(cells, **OPTIONS[name])
    model = TokenDiffusion(cells, **SMALL, network=NetworkOptions(orthogonality=0.5))
    model.save(tmp_path / "model")
    loaded = load(tmp_path / "model")
    assert weights_of(loaded) == weights_of(model)
    assert loaded.init_params_["non_kwargs"]["network"] == NetworkOptions(orthogonality=0.5)
    np.testing.assert_equal(_plain(loaded.registry), _plain(model.registry))


def _plain(value: Any) -> Any:
    """Mappings of any kind as dict, and without the identifier of the data."""
    if isinstance(value, dict):
        return {key: _plain(entry) for key, entry in value.items() if key != "_scvi_uuid"}
    return value


def test_the_parameters_of_other_models_are_not_saved(tiny: TokenDiffusion, tmp_path: Path) -> None:
    pyro.param("somebody_elses", torch.ones(2), constraint=pyro.distributions.constraints.positive)
    try:
        tiny.save(tmp_path / "model")
        assert not contents(tmp_path / "model")["model_state_dict"]["pyro_param_store"]["params"]
        assert "somebody_elses" in pyro.get_param_store()
    finally:
        pyro.clear_param_store()


def test_models_load_in_several_threads_and_leave_the_process_as_it_was(
    saved: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TORCH_FORCE_WEIGHTS_ONLY_LOAD", "0")
    allowed = set(torch.serialization.get_safe_globals())
    loaded: list[TokenDiffusion] = []
    threads = [threading.Thread(target=lambda: loaded.append(load(saved))) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(loaded) == 4
    assert os.environ["TORCH_FORCE_WEIGHTS_ONLY_LOAD"] == "0"
    assert set(torch.serialization.get_safe_globals()) == allowed


ARRAYS = hnp.arrays(
    st.sampled_from(
        ["bool", "int8", "int32", "int64", "uint8", "uint16", "uint64", "float16", "float32", "float64", "U3"]
    ),
    hnp.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=3),
)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(array=ARRAYS, texts=st.lists(st.text(max_size=5), min_size=1, max_size=4), number=st.floats(width=32))
def test_arrays_and_tables_come_back_as_they_were(
    array: np.ndarray, texts: list[str], number: float, tmp_path: Path
) -> None:
    texts = [text.encode("utf-8", "ignore").decode() for text in texts]
    objects = np.array([*texts, None, 3], dtype=object)
    table = pd.DataFrame({text: [number, 1.0] for text in texts}, index=pd.Index([4, 7], name="epoch"))
    scalars = [np.float32(number), np.int64(3), np.str_(texts[0]), np.bool_(True)]
    torch.save([array, objects, table, scalars], tmp_path / "data.pt", **SAVED_BY)
    found, found_objects, found_table, found_scalars = read_plainly(tmp_path / "data.pt", KINDS)
    assert found.dtype == array.dtype
    np.testing.assert_array_equal(found, array, strict=True)
    assert found_objects.tolist() == objects.tolist()
    pd.testing.assert_frame_equal(found_table, table)
    assert repr(found_scalars) == repr(scalars)


def test_what_occurs_twice_comes_back_twice(tmp_path: Path) -> None:
    """Pickles refer to what they have written already."""
    names, numbers = np.array(["x", "y"], dtype=object), np.arange(3)
    shared = {"names": names, "all": [names, names, numbers, numbers], "numbers": numbers, "pair": ("x", numbers)}
    torch.save([shared, shared], tmp_path / "data.pt", **SAVED_BY)
    np.testing.assert_equal(read_plainly(tmp_path / "data.pt", KINDS), [shared, shared])


def test_when_saving_fails_the_file_stays(saved: Path, tiny: TokenDiffusion, monkeypatch: pytest.MonkeyPatch) -> None:
    before = (saved / "model.pt").read_bytes()

    def disk_is_full(*_: Any, **__: Any) -> None:
        raise OSError("No space left on device")

    monkeypatch.setattr(torch, "save", disk_is_full)
    for folder in (saved, saved.parent / "new"):
        with pytest.raises(OSError, match="No space left"):
            tiny.save(folder, overwrite=True)
    assert (saved / "model.pt").read_bytes() == before
    assert [path.name for path in saved.parent.rglob("*")] == ["model", "model.pt"]


def test_an_error_of_pytorch_in_writing_names_the_free_space(
    tiny: TokenDiffusion, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a full disk, PyTorch says "unexpected pos 940480 vs 940376" alone."""
    write = torch.save

    def disk_is_full(*args: Any, **options: Any) -> None:
        write(*args, **options)
        raise RuntimeError("unexpected pos 940480 vs 940376")

    monkeypatch.setattr(torch, "save", disk_is_full)
    with pytest.raises(OSError, match=r"`dir_path`: .*model cannot be written \(unexpected pos.*bytes are free"):
        tiny.save(tmp_path / "model")
    assert not list(tmp_path.iterdir())


def test_a_file_without_permission_is_named(saved: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def forbidden(*_: Any) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(zipfile, "ZipFile", forbidden)
    with pytest.raises(PermissionError, match="`dir_path`: you may not read .*model.pt. Ask its owner"):
        load(saved)


def test_saving_replaces_the_files_of_the_model_and_no_others(tiny: TokenDiffusion, tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    tiny.save(tmp_path, prefix="first_", overwrite=True)
    tiny.save(tmp_path, prefix="second_", overwrite=True, save_anndata=True)
    names = {path.name for path in tmp_path.iterdir()}
    assert names == {"notes.txt", "first_model.pt", "second_model.pt", "second_adata.h5ad"}
    assert load(tmp_path, prefix="first_").is_trained


def test_folders_are_made_and_open_to_those_who_may_see_the_folder_above(tiny: TokenDiffusion, tmp_path: Path) -> None:
    tiny.save(tmp_path / "a" / "b")
    (tmp_path / "c").mkdir()
    assert (tmp_path / "a" / "b").stat().st_mode == (tmp_path / "c").stat().st_mode


def test_a_model_of_a_file_on_disk_follows_the_file_that_it_saves(tmp_path: Path) -> None:
    simulated_cells().write_h5ad(tmp_path / "cells.h5ad")
    adata = ad.read_h5ad(tmp_path / "cells.h5ad", backed="r")
    TokenDiffusion.setup_anndata(adata, labels_key="cell_type")
    model = TokenDiffusion(adata, **SMALL)
    for _ in range(2):  # the second time, over the very file that the cells are read from
        model.save(tmp_path / "model", overwrite=True, save_anndata=True)
        assert Path(adata.filename) == tmp_path / "model" / "adata.h5ad"
        np.testing.assert_array_equal(adata.X[:], simulated_cells().X)
