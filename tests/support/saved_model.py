"""A small trained model with a perturbation, and results by which a later version shows that it loads the model alike.

``PYTHONPATH=src:tests/support python tests/support/saved_model.py`` saves the model of this version, with its results,
in ``tests/model/saved_by_<version>``. Run it once for each release; the tests load every folder.
"""

import json
import warnings
from importlib.metadata import version
from pathlib import Path

import numpy as np
from anndata import AnnData
from small_cells import trained_model
from treated_cells import treated_cells

from scdiffgen.model import NetworkOptions, TokenDiffusion

FOLDERS = Path(__file__).parents[1] / "model"
RESULTS = "results.json"
TINY = NetworkOptions(conditioning_dim=8, n_hidden=16)
SETUP = {"labels_key": "cell_type", "batch_key": "batch", "perturbation_key": "guide", "dose_key": "dose"}


def cells_of_two_types() -> AnnData:
    """Cells of types ``a`` and ``b``, untreated or given A or B at two doses; no cell of type ``b`` is given A."""
    cells = treated_cells(240)
    return cells[(cells.obs["cell_type"] == "a") | (cells.obs["guide"] != "A")].copy()


def results_of(model: TokenDiffusion) -> dict[str, np.ndarray]:
    """Results that depend on weights, training summary and registry of the model, and on no random number."""
    cells = cells_of_two_types()[:4].copy()
    response = {"guide": "A", "dose": 2.0}
    return {
        "activation": model.get_token_activation(cells, silent=True).to_numpy(),
        "expression": np.asarray(model.get_normalized_expression(cells, silent=True)),
        "loadings": model.get_token_loadings(method="readout").to_numpy(),
        "own response": model.get_mean_response({"cell_type": "a", **response})[["change"]].to_numpy().T,
        "transferred response": model.get_mean_response({"cell_type": "b", **response})[["change"]].to_numpy().T,
    }


def main() -> None:
    """Train and save the model."""
    folder = FOLDERS / f"saved_by_{version('scdiffgen')}"
    with warnings.catch_warnings(action="ignore"):
        model = trained_model(cells_of_two_types(), n_epochs=20, network=TINY, control="ctrl", **SETUP)  # type: ignore[arg-type]
        model.save(folder, overwrite=True)
        results = {name: values.tolist() for name, values in results_of(model).items()}
    (folder / RESULTS).write_text(json.dumps(results) + "\n")


if __name__ == "__main__":
    main()
