"""biolord (Piran et al. 2024): latents of known attributes, and a small one of each cell for what is not known.

Run from the repository, in an environment with biolord: ``python -m benchmarks.external.biolord``.
"""

import numpy as np
import torch

from benchmarks.external._responses import CONTEXT, RESPONSE, Job, Predicted, Target, drive

FULL = 500  # epochs at most, of the program's tutorial
MODULE = {
    "decoder_width": 1024,
    "decoder_depth": 4,
    "attribute_nn_width": 512,
    "attribute_nn_depth": 2,
    "n_latent_attribute_categorical": 4,
    "gene_likelihood": "normal",
    "reconstruction_penalty": 1e2,
    "unknown_attribute_penalty": 1e1,
    "unknown_attribute_noise_param": 1e-1,
    "attribute_dropout_rate": 0.1,
    "use_batch_norm": False,
    "use_layer_norm": False,
}
PLAN = {
    "n_epochs_warmup": 0,
    "latent_lr": 1e-4,
    "latent_wd": 1e-4,
    "decoder_lr": 1e-4,
    "decoder_wd": 1e-4,
    "attribute_nn_lr": 1e-2,
    "attribute_nn_wd": 4e-8,
    "step_size_lr": 45,
    "cosine_scheduler": True,
    "scheduler_final_lr": 1e-5,
}
SPLIT = "split"


class Program:
    """The model and its training with the settings of the tutorial."""

    full = FULL
    settings = {"n_latent": 32, "batch_size": 512}

    def __init__(self, job: Job) -> None:
        from biolord import Biolord

        self.job, self.cells = job, job.logged()
        self.cells.obs[SPLIT] = job.split()
        for key in (RESPONSE, CONTEXT):
            self.cells.obs[key] = self.cells.obs[key].astype("category")
        Biolord.setup_anndata(self.cells, categorical_attributes_keys=[RESPONSE, CONTEXT])
        module = MODULE | {"seed": job.seed}
        self.model = Biolord(
            self.cells, n_latent=32, module_params=module, split_key=SPLIT, valid_split="valid", train_classifiers=False
        )

    def train(self, length: int) -> None:
        """Train, at most for so many epochs."""
        self.model.train(
            max_epochs=length,
            batch_size=512,
            plan_kwargs=PLAN,
            early_stopping=True,
            early_stopping_patience=20,
            check_val_every_n_epoch=10,
            enable_checkpointing=False,
            enable_progress_bar=False,
            accelerator="cpu",
        )

    def predict(self, target: Target) -> Predicted:
        """Start from controls that were trained on: only these have a latent of their own."""
        start = self.job.controls(target.context) & (self.cells.obs[SPLIT] == "train").to_numpy()
        source = self.model.get_dataset(self.cells[start].copy())
        predictions, _ = self.model._compute_prediction(self.cells, dataset_source=source, target_attributes=[RESPONSE])
        return Predicted(torch.as_tensor(predictions[(target.response,)]).cpu().numpy().astype(np.float32))


if __name__ == "__main__":
    drive(__doc__, Program, ["biolord", "scvi-tools", "torch"])
