"""scGen (Lotfollahi et al. 2019), as in pertpy: a shift between conditions in the latents of an autoencoder.

Run from the repository, in an environment with pertpy: ``python -m benchmarks.external.scgen``.
"""

import numpy as np

from benchmarks.external._responses import CONTEXT, CONTROL, RESPONSE, Job, Predicted, Target, drive

FULL = 100  # epochs at most, of the tutorial on these cells
TRAINING = {"batch_size": 32, "early_stopping": True, "early_stopping_patience": 25}  # of the tutorial


class Program:
    """The model with its defaults, trained as in the tutorial."""

    full = FULL
    settings = TRAINING

    def __init__(self, job: Job) -> None:
        from pertpy.tools import Scgen

        self.cells = job.logged()
        Scgen.setup_anndata(self.cells, batch_key=RESPONSE, labels_key=CONTEXT)
        self.model = Scgen(self.cells)

    def train(self, length: int) -> None:
        """Train, at most for so many epochs."""
        self.model.train(max_epochs=length, enable_progress_bar=False, **TRAINING)
        self.settings = TRAINING | {"epochs": len(self.model.history["elbo_validation"])}

    def predict(self, target: Target) -> Predicted:
        """Move all controls of the context by the difference in latents, balanced over the other contexts."""
        predicted, _ = self.model.predict(
            ctrl_key=CONTROL, stim_key=target.response, celltype_to_predict=target.context
        )
        return Predicted(np.asarray(predicted.X))


if __name__ == "__main__":
    drive(__doc__, Program, ["pertpy", "scvi-tools", "jax"])
