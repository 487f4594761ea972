"""CFGen (Palma et al., ICLR 2025): an autoencoder with a negative binomial decoder, then flow matching in its latents.

Run from the repository, in an environment with the requirements of CFGen: ``python -m benchmarks.external.cfgen``.
"""

from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.utils.data import DataLoader

from benchmarks.external._recipe import LABEL, Job, drive

FULL = {"autoencoder": 300, "flow": 1500}  # epochs, of configs/*/trainer/default.yaml
SMALL = 5000  # training cells; up to here as the program's scripts train on pbmc3k, beyond as on the dentate gyrus
CELLS_AT_A_TIME, GUIDANCE = 1000, 1.0  # of configs/configs_sccfm/dataset/*.yaml


class Program:
    """The two estimators of CFGen, on its own configuration files."""

    full = FULL

    def __init__(self, job: Job, folder: Path) -> None:
        from cfgen.estimator import cfgen_estimator, encoder_estimator

        torch.autograd.set_detect_anomaly(False)  # importing the estimators turns it on, which only costs time
        for module in (cfgen_estimator, encoder_estimator):
            module.WandbLogger = lambda **_: False
            module.TRAINING_FOLDER = folder
        self.estimators = encoder_estimator.EncoderEstimator, cfgen_estimator.CfgenEstimator
        self.job, self.checkpoint = job, folder / "autoencoder.ckpt"
        self.small = job.train.n_obs <= SMALL
        self.settings = {"small": self.small, "guidance": GUIDANCE}

    def autoencoder(self, n_epochs: int) -> None:
        """Train the autoencoder; its weights go where the second stage looks for them."""
        args = self._settings("configs_encoder", n_epochs, "dataset", "encoder", "training_config", "trainer")
        estimator = self._trained(self.estimators[0](args))
        torch.save({"state_dict": estimator.encoder_model.state_dict()}, self.checkpoint)

    def flow(self, n_epochs: int) -> None:
        """Train the flow on the latents of the autoencoder, which stays as it is."""
        groups = ("dataset", "encoder", "training_config", "trainer", "denoising_module", "generative_model")
        args = self._settings("configs_sccfm", n_epochs, *groups)
        args.training_config.encoder_ckpt = str(self.checkpoint)
        args.dataset.guidance_weights = {LABEL: GUIDANCE}
        args.dataset.size_factor_covariate = LABEL
        if self.small:
            args.training_config.batch_size = 64
        else:
            args.denoising_module.embed_size_factor = True
        self.model = self._trained(self.estimators[1](args)).generative_model.eval()

    def generate(self) -> tuple[np.ndarray, np.ndarray]:
        """Draw cells of the labels: library sizes from the program's log-normal distribution of each label."""
        codes = np.unique(self.job.labels, return_inverse=True)[1]
        drawn = []
        for part in np.array_split(codes, -(-len(codes) // CELLS_AT_A_TIME)):
            cells = self.model.sample(
                len(part),
                n_sample_steps=2,
                theta_covariate=LABEL,
                size_factor_covariate=LABEL,
                conditioning_covariates=[LABEL],
                covariate_indices={LABEL: torch.as_tensor(part)},
            )
            drawn.append(cells["rna"].numpy())
        return np.concatenate(drawn), self.job.labels

    def _settings(self, configs: str, n_epochs: int, *groups: str) -> Any:
        """Merge files of settings, and point them at the exported cells and the processor."""
        from omegaconf import OmegaConf

        files = {"dataset": "pbmc3k", "denoising_module": "resnet_small"}
        folder = self.job.source / "configs" / configs
        args = OmegaConf.create(
            {group: OmegaConf.load(folder / group / f"{files.get(group, 'default')}.yaml") for group in groups}
        )
        here = {"dataset_path": str(self.job.cells), "covariate_keys": [LABEL], "theta_covariate": LABEL}
        here["split_rates"] = [1.0, 0.0]
        on_cpu = {"max_epochs": n_epochs, "accelerator": "cpu", "detect_anomaly": False, "limit_val_batches": 0}
        quiet = {"enable_progress_bar": False, "enable_model_summary": False}
        none = {"checkpoints": {"save_top_k": 0}, "logger": {"project": "run"}}
        return OmegaConf.merge(args, none, {"dataset": here, "trainer": on_cpu | quiet})

    def _trained(self, estimator: Any) -> Any:
        """Train with batches made in this process, so that threads are what they are said to be."""
        estimator.train_dataloader = DataLoader(
            estimator.train_data, estimator.args.training_config.batch_size, shuffle=True, drop_last=True
        )
        estimator.train()
        return estimator


if __name__ == "__main__":
    drive(__doc__, Program)
