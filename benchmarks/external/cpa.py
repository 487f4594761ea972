"""CPA (Lotfollahi et al. 2023): an autoencoder whose latents add a cell, its type and its perturbation.

Run from the repository, in an environment with cpa-tools: ``python -m benchmarks.external.cpa``.
"""

import sys
from types import ModuleType
from typing import Any
from unittest.mock import MagicMock

import anndata
import numpy as np
import torch

from benchmarks.external._responses import CONTEXT, CONTROL, RESPONSE, Job, Predicted, Target, drive

FULL = 155  # epochs after which early stopping ended the training of the tutorial on these cells
PRETRAINED, WARMED_UP = 30, 50  # epochs, of these
MODEL = {
    "n_latent": 64,
    "recon_loss": "nb",
    "doser_type": "linear",
    "n_hidden_encoder": 128,
    "n_layers_encoder": 2,
    "n_hidden_decoder": 512,
    "n_layers_decoder": 2,
    "use_batch_norm_encoder": True,
    "use_layer_norm_encoder": False,
    "use_batch_norm_decoder": False,
    "use_layer_norm_decoder": True,
    "dropout_rate_encoder": 0.0,
    "dropout_rate_decoder": 0.1,
    "variational": False,
}
PLAN = {
    "n_epochs_kl_warmup": None,
    "n_epochs_mixup_warmup": 0,
    "mixup_alpha": 0.0,
    "adv_steps": None,
    "n_hidden_adv": 64,
    "n_layers_adv": 3,
    "use_batch_norm_adv": True,
    "use_layer_norm_adv": False,
    "dropout_rate_adv": 0.3,
    "reg_adv": 20.0,
    "pen_adv": 5.0,
    "lr": 0.0003,
    "wd": 4e-07,
    "adv_lr": 0.0003,
    "adv_wd": 4e-07,
    "adv_loss": "cce",
    "doser_lr": 0.0003,
    "doser_wd": 4e-07,
    "do_clip_grad": True,
    "gradient_clip_value": 1.0,
    "step_size_lr": 10,
}
SPLIT, DOSE = "split", "dose"


class Program:
    """The model and its training with the settings of the tutorial."""

    full = FULL
    settings = {"batch_size": 512}

    def __init__(self, job: Job) -> None:
        program = imported()
        train = job.train.copy()
        train.obs[SPLIT] = job.split()
        asked = []
        for target in job.targets:
            controls = job.train[job.controls(target.context)].copy()
            controls.obs[RESPONSE], controls.obs[SPLIT] = target.response, "ood"
            asked.append(controls)
        self.cells = anndata.concat([train, *asked], index_unique="-")
        self.cells.obs[DOSE] = "1.0"
        for key in (RESPONSE, CONTEXT):
            self.cells.obs[key] = self.cells.obs[key].astype(str)
        self.job, options = job, {"categorical_covariate_keys": [CONTEXT], "max_comb_len": 1}
        program.CPA.setup_anndata(self.cells, RESPONSE, CONTROL, DOSE, is_count_data=True, **options)
        split = {"split_key": SPLIT, "train_split": "train", "valid_split": "valid", "test_split": "ood"}
        self.model = program.CPA(self.cells, **split, **MODEL, seed=job.seed)

    def train(self, length: int) -> None:
        """Train; what is first and what is warmed up keeps its share of the length."""
        shares = {"n_epochs_pretrain_ae": PRETRAINED, "n_epochs_adv_warmup": WARMED_UP}
        self.model.train(
            max_epochs=length,
            batch_size=512,
            plan_kwargs=PLAN | {name: max(1, round(n * length / FULL)) for name, n in shares.items()},
            early_stopping_patience=5,
            check_val_every_n_epoch=5,
            save_path=False,
            enable_progress_bar=False,
        )

    def predict(self, target: Target) -> Predicted:
        """Expected counts of the controls with the perturbation, and draws from their negative binomials."""
        obs = self.cells.obs
        asked = (obs[SPLIT] == "ood") & (obs[RESPONSE] == target.response) & (obs[CONTEXT] == target.context)
        self.model.predict(self.cells, indices=np.arange(self.cells.n_obs), batch_size=2048)
        mean = self.cells.obsm["CPA_pred"][asked.to_numpy()].astype(np.float64)
        theta = np.exp(self.model.module.px_r.detach().numpy().astype(np.float64))
        rng = np.random.default_rng(self.job.seed)
        counts = rng.poisson(rng.gamma(np.broadcast_to(theta, mean.shape), mean / theta))
        return Predicted(np.log1p(1e4 * mean / mean.sum(axis=1, keepdims=True)), counts)


def imported() -> ModuleType:
    """Import the program beside an scvi-tools newer than the one it was written for.

    What it imports for drugs with structures, tuning and figures is left out; the rest is where it was.
    """
    import lightning.pytorch as lightning
    from scvi import settings
    from scvi.model import _utils
    from scvi.train import TrainRunner, _callbacks

    sys.modules["pytorch_lightning"] = lightning
    sys.modules["pytorch_lightning.callbacks"] = lightning.callbacks
    for name in ("tkinter", "rdkit", "rdkit.Chem", "cpa._tuner", "cpa._plotting"):
        sys.modules[name] = MagicMock()
    settings.dl_pin_memory_gpu_training = False
    _utils.parse_use_gpu_arg = lambda *_, **__: ("cpu", 1, torch.device("cpu"))

    class SaveBestState(lightning.Callback):
        """Keep the weights of the best epoch, and take them at the end."""

        def __init__(self, monitor: str, **_: Any) -> None:
            self.monitor, self.best, self.weights = monitor, -np.inf, None

        def on_validation_epoch_end(self, trainer: Any, plan: Any) -> None:
            value = trainer.callback_metrics.get(self.monitor)
            if value is not None and float(value) > self.best:
                self.best = float(value)
                self.weights = {key: part.detach().clone() for key, part in plan.module.state_dict().items()}

        def on_train_end(self, _: Any, plan: Any) -> None:
            if self.weights is not None:
                plan.module.load_state_dict(self.weights)

    _callbacks.SaveBestState = SaveBestState
    import cpa
    from cpa import _model

    class Plan(_model.CPATrainingPlan):
        """Gather what the steps of an epoch return, as Lightning did before version 2, for the methods at its end."""

        training_epoch_end = validation_epoch_end = None  # Lightning refuses methods of these names

        def training_step(self, *batch: Any) -> Any:
            self.steps = [*getattr(self, "steps", []), super().training_step(*batch)]
            return self.steps[-1]

        def validation_step(self, *batch: Any) -> Any:
            self.checks = [*getattr(self, "checks", []), super().validation_step(*batch)]
            return self.checks[-1]

        def on_train_epoch_end(self) -> None:
            super().training_epoch_end(self.steps)
            self.steps = []

        def on_validation_epoch_end(self) -> None:
            super().validation_epoch_end(self.checks)
            self.checks = []

    _model.CPATrainingPlan = Plan
    _model.TrainRunner = lambda *parts, use_gpu, **options: TrainRunner(*parts, accelerator="cpu", **options)
    return cpa


if __name__ == "__main__":
    drive(__doc__, Program, ["cpa-tools", "scvi-tools", "torch"])
