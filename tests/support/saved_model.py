"""A tiny model saved by each version, beside what it answers: ``python tests/support/saved_model.py`` at a release.

Every later version must load all of them. ``model.pt`` is never made again; ``results.npz`` only by a version that
changes results on purpose.
"""

from importlib.metadata import version
from pathlib import Path

import numpy as np
import scvi
from anndata import AnnData
from small_cells import QUIET, SMALL, simulated_cells

from scdiffgen.model import NetworkOptions, TokenDiffusion

FOLDER = Path(__file__).parents[1] / "saved_models"
REQUEST = {"cell_type": "b", "guide": "A+B", "dose": "1+0.5", "age": 40.0}
ASKED = {"n_steps": 4, "seed": 0, "silent": True}


def results(model: TokenDiffusion, cells: AnnData) -> dict[str, np.ndarray]:
    """What a model generates, reads and predicts."""
    return {
        "generated": model.generate(REQUEST, 12, **ASKED).X.toarray(),
        "predicted": model.predict_perturbation(cells, {"guide": "A", "dose": 1.0}, **ASKED).X.toarray(),
        "latent": model.get_latent_representation(cells, silent=True),
        "loadings": model.get_token_loadings().to_numpy(),
        "nll": model.get_nll(cells, n_draws=2, seed=0, silent=True)["nll"].to_numpy(),
    }


def treated_cells(n_cells: int = 120) -> AnnData:
    """Cells of two types with two perturbations, alone and together, at several doses."""
    cells = simulated_cells(n_cells, n_genes=12)
    cells.obs["guide"] = np.resize(["ctrl", "B+A", "A", "ctrl", "B"], n_cells)
    cells.obs["dose"] = cells.obs["guide"].map({"ctrl": "0", "B+A": "0.5+1", "A": "1", "B": "0.5"})
    return cells


def main(folder: Path) -> None:
    """Train, save, and write down what the model answers of cells that are saved as arrays."""
    cells = treated_cells()
    keys = {"labels_key": "cell_type", "batch_key": "batch", "perturbation_key": "guide", "dose_key": "dose"}
    TokenDiffusion.setup_anndata(cells, **keys, control="ctrl", continuous_covariate_keys=["age"])
    scvi.settings.seed = 0
    model = TokenDiffusion(cells, **SMALL, network=NetworkOptions(n_hidden=8, conditioning_dim=8, readout_dim=4))
    model.train(max_epochs=2, **QUIET)
    model.save(folder)
    few = treated_cells()[:8].copy()
    columns = {f"obs_{name}": np.array(few.obs[name].tolist()) for name in few.obs}
    np.savez_compressed(folder / "results.npz", counts=few.X, **columns, **results(model, few))


if __name__ == "__main__":
    main(FOLDER / version("scdiffgen"))
