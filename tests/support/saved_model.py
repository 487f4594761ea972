"""Tiny models saved by each version, beside what they answer: ``python tests/support/saved_model.py`` at a release.

Every later version must load all of them. A file holds ``model.pt``, which is never made again, and ``results.npz``,
which only a version makes anew that changes results on purpose.
"""

import shutil
from collections.abc import Mapping
from importlib.metadata import version
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import numpy as np
import scvi
from anndata import AnnData
from mudata import MuData
from mudata_cells import paired
from small_cells import QUIET, simulated_cells

from scdiffgen.model import GaussianOptions, LatentOptions, NetworkOptions, TokenDiffusion

FOLDER = Path(__file__).parents[1] / "saved_models"
ASKED = {"n_steps": 4, "seed": 0, "silent": True}
SIZE = {"n_tokens": 2, "token_dim": 4, "n_layers": 1}
FORMS = {"n_heads": 1, "n_hidden": 4, "conditioning_dim": 4, "readout_dim": 2}
TREATED = {"perturbation_key": "guide", "dose_key": "dose", "control": "ctrl"}
TYPES = {"labels_key": "cell_type"}


class Saved(NamedTuple):
    """How a model is registered and made, and what it is asked to generate."""

    setup: Mapping[str, Any]
    request: Mapping[str, Any]
    process: Any = "thinning"
    network: Mapping[str, Any] = {}


MODELS = {
    "doses": Saved(
        {**TYPES, **TREATED, "batch_key": "batch", "continuous_covariate_keys": ["age"]},
        {"cell_type": "b", "guide": "A+B", "dose": "1+0.5", "age": 40.0},
    ),
    "embedded": Saved(TREATED, {"guide": "A+B", "dose": "1+0.5"}, network={"intervention": "embedding"}),
    "vectors": Saved({**TREATED, "perturbation_features_key": "vectors"}, {"guide": "added", "dose": 1.0}),
    "hierarchy": Saved({"hierarchy_keys": ["organ", "tissue"]}, {"organ": "lung", "tissue": "lobe"}),
    "gaussian": Saved(TYPES, {"cell_type": "b"}, GaussianOptions(schedule="linear")),
    "latent": Saved(TYPES, {"cell_type": "b"}, LatentOptions(latent_dim=2)),
    "modalities": Saved({"labels_key": "sort_of_cell"}, {"sort_of_cell": "b"}),
    "query": Saved({**TYPES, **TREATED}, {"cell_type": "c", "guide": "B", "dose": 0.5}),
}


def results(model: TokenDiffusion, cells: AnnData | MuData, request: Mapping[str, Any]) -> dict[str, np.ndarray]:
    """What a model generates, reads and predicts."""
    made = model.generate(request, 12, **ASKED)
    parts = made.mod.values() if isinstance(made, MuData) else [made]
    found = {
        "generated": np.hstack([part.X.toarray() for part in parts]),
        "latent": model.get_latent_representation(cells, silent=True),
        "loadings": model.get_token_loadings().to_numpy(),
    }
    if model.module.process_name == "thinning":
        found["nll"] = model.get_nll(cells, n_draws=2, seed=0, silent=True)["nll"].to_numpy()
    if "guide" in request:
        found["predicted"] = model.predict_perturbation(cells, {"guide": "A", "dose": 1.0}, **ASKED).X.toarray()
    return found


def treated_cells(n_genes: int = 8) -> AnnData:
    """Cells of two types in organs, with two perturbations, alone and together, at several doses."""
    cells = simulated_cells(120, n_genes)
    cells.obs["guide"] = np.resize(["ctrl", "B+A", "A", "ctrl", "B"], 120)
    cells.obs["dose"] = cells.obs["guide"].map({"ctrl": "0", "B+A": "0.5+1", "A": "1", "B": "0.5"})
    cells.obs["organ"], cells.obs["tissue"] = np.resize(["blood", "lung"], 120), np.resize(["vein", "lobe"], 120)
    cells.uns["vectors"] = {"A": [1.0, 0.0], "B": [0.0, 1.0]}
    return cells


def query_cells() -> AnnData:
    """Cells of a new type, with a new perturbation and a new gene."""
    cells = treated_cells(n_genes=9)
    cells.obs["cell_type"] = cells.obs["cell_type"].replace("b", "c")
    cells.obs["guide"] = cells.obs["guide"].str.replace("B", "C")
    return cells


def trained(name: str) -> tuple[TokenDiffusion, AnnData | MuData]:
    """A model, and the cells that it was trained on."""
    saved, cells = MODELS[name], paired(100) if name == "modalities" else treated_cells()
    (TokenDiffusion.setup_mudata if isinstance(cells, MuData) else TokenDiffusion.setup_anndata)(cells, **saved.setup)
    scvi.settings.seed = 0
    network = NetworkOptions(**FORMS, **saved.network)
    model = TokenDiffusion(cells, **SIZE, process=saved.process, network=network)
    model.train(max_epochs=2, **QUIET)
    if name == "vectors":
        model.add_perturbation_features({"added": [0.5, 0.5]})
    if name == "query":
        model = TokenDiffusion.load_query_data(cells := query_cells(), model)
        model.train(max_epochs=2, **QUIET)
    return model, cells


def main(folder: Path) -> None:
    """Train, save, and write down what each model answers of cells that are saved as arrays."""
    for name in {*MODELS} - {path.name.split(".")[0] for path in folder.glob("*.tar.xz")}:
        with TemporaryDirectory() as made:
            model, cells = trained(name)
            model.save(made, overwrite=True)
            few = cells[:8].copy()
            parts = few.mod if isinstance(few, MuData) else {"": few}
            arrays = {f"obs_{key}": np.array(few.obs[key].tolist()) for key in few.obs if not key.startswith("_scvi")}
            arrays |= {f"counts{key}": AnnData(part.X).to_df().to_numpy() for key, part in parts.items()}
            np.savez_compressed(f"{made}/results.npz", **arrays, **results(model, few, MODELS[name].request))
            shutil.make_archive(str(folder / name), "xztar", made)


if __name__ == "__main__":
    main(FOLDER / version("scdiffgen"))
