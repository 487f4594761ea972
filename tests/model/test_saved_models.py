"""Models that earlier versions saved are loaded, and answer as they did."""

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from anndata import AnnData
from mudata_cells import join
from saved_model import ASKED, FOLDER, MODELS, results

from scdiffgen.model import TokenDiffusion
from scdiffgen.model._training_summary import TrainingSummary

FILES = [(file.name.split(".")[0], file) for file in sorted(FOLDER.glob("*/*.tar.xz"))]


def cells_in(stored: Any, names: Any) -> Any:
    """Cells that lie beside a model as arrays, with its genes."""
    obs = pd.DataFrame({name.removeprefix("obs_"): stored[name] for name in stored if name.startswith("obs_")})
    obs.index = [f"cell{i}" for i in range(len(obs))]
    parts = {
        part: AnnData(stored[f"counts{part}"], obs=obs[[]], var=pd.DataFrame(index=genes))
        for part, genes in (names if isinstance(names, dict) else {"": names}).items()
    }
    cells = parts.get("") or join(parts)
    cells.obs = obs
    return cells


@pytest.mark.parametrize(("kind", "file"), FILES)
def test_a_saved_model_answers_as_it_did(kind: str, file: Path, tmp_path: Path) -> None:
    shutil.unpack_archive(file, tmp_path, filter="data")
    stored, request = np.load(tmp_path / "results.npz"), MODELS[kind].request
    model = TokenDiffusion.load(tmp_path, adata=False, accelerator="cpu")
    found = results(model, cells_in(stored, model.get_var_names()), request)
    assert set(found) < set(stored)
    kept, read = model.training_summary_, TrainingSummary.from_plain(model.training_summary_).to_plain()
    np.testing.assert_equal({name: read[name] for name in kept}, kept)
    for name, values in found.items():
        if values.dtype.kind == "i":  # another processor may round a probability otherwise, and one draw with it
            assert (values == stored[name]).mean() > 0.99, name
        else:
            np.testing.assert_allclose(values, stored[name], rtol=1e-3, atol=1e-4, err_msg=name)
    made = model.generate(request, 1, **ASKED).obs.iloc[0]
    assert all(set(str(made[name])) == set(str(asked)) for name, asked in request.items() if name != "dose")


def test_there_is_a_small_file_of_each_kind_of_model() -> None:
    assert {kind for kind, _ in FILES} == set(MODELS)
    assert all(file.stat().st_size < 50_000 for _, file in FILES)
