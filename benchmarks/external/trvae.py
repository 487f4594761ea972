"""trVAE (Lotfollahi et al. 2020), as in scArches and in the script of the published benchmark (scPerturBench).

Run from the repository, in an environment with scarches: ``python -m benchmarks.external.trvae``, on the cells of
``python -m benchmarks.published --export FOLDER``.
"""

import sys
from types import ModuleType
from unittest.mock import MagicMock

import anndata
import numpy as np
import torch

from benchmarks.external._responses import CONTROL, RESPONSE, Job, Predicted, Target, drive

FULL = 1000  # epochs at most
MODEL = {"hidden_layer_sizes": [128, 128], "recon_loss": "mse", "dr_rate": 0.2, "use_bn": True}
STOPPING = {"early_stopping_metric": "val_unweighted_loss", "threshold": 0, "patience": 100, "reduce_lr": False}
TRAINING = {"alpha_epoch_anneal": 200, "batch_size": 512, "clip_value": 100}
AT_ONCE = 512  # cells
NOT_NEEDED = ("scHPL", "muon", "leidenalg", "newick")  # by this model of the package


class Program:
    """The model with the settings of the script."""

    full = FULL
    settings = {**TRAINING, "patience": STOPPING["patience"]}

    def __init__(self, job: Job) -> None:
        self.job, self.cells = job, job.logged()
        self.cells.X = self.cells.X.toarray().astype(np.float32)
        responses = [CONTROL, *sorted({target.response for target in job.targets})]
        self.model = _scarches().models.TRVAE(adata=self.cells, condition_key=RESPONSE, conditions=responses, **MODEL)

    def train(self, length: int) -> None:
        """Train, at most for so many epochs."""
        self.model.train(n_epochs=length, early_stopping_kwargs=STOPPING, **TRAINING)
        self.settings = Program.settings | {"epochs": self.model.trainer.epoch + 1}

    def predict(self, target: Target) -> Predicted:
        """Encode all controls of the context as such, and decode them as treated."""
        network, code = self.model.model, self.model.model.condition_encoder
        expression = torch.from_numpy(self.cells.X[self.job.controls(target.context)])
        decoded = []
        with torch.no_grad():
            for cells in expression.split(AT_ONCE):
                labels = torch.zeros(len(cells))
                latent = network.sampling(*network.encoder(cells, labels + code[CONTROL]))
                decoded.append(network.decoder(latent, labels + code[target.response])[0])
        return Predicted(torch.cat(decoded).numpy())


def _scarches() -> ModuleType:
    """The package, which asks for an older anndata, and for more than is needed."""
    anndata.read = anndata.read_h5ad
    for name in NOT_NEEDED:
        sys.modules.setdefault(name, MagicMock())
    import scarches

    return scarches


if __name__ == "__main__":
    drive(__doc__, Program, ["scarches", "torch"])
