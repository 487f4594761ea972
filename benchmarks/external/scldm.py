"""scLDM (Palla et al. 2025): an autoencoder of transformers over genes, then flow matching of its latents.

Run from the repository, in an environment with the requirements of scLDM: ``python -m benchmarks.external.scldm``.
"""

import importlib.metadata
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytorch_lightning as pl
import torch
from torch.utils.data import DataLoader, TensorDataset

from benchmarks.external._recipe import LABEL, Job, drive

EPOCHS, BATCH, GUIDANCE = 100, 128, 1.0  # of experiments/configs


class Program:
    """The two modules of scLDM, on its own configuration files and the exported cells."""

    def __init__(self, job: Job, folder: Path) -> None:
        steps = EPOCHS * (job.train.n_obs // BATCH)
        self.full, self.settings = {"autoencoder": steps, "diffusion": steps}, {"guidance": GUIDANCE}
        self.labels, self.folder, self.configs = job.labels, folder, job.source / "experiments/configs"
        import_program(job.source)
        counts = torch.as_tensor(job.train.X.toarray(), dtype=torch.float32)
        self.kinds, codes = np.unique(job.train.obs[LABEL].to_numpy(dtype=str), return_inverse=True)
        self.n_genes = counts.shape[1]
        self.cells = TensorDataset(counts, torch.as_tensor(codes))
        self.n_expressed = int((counts > 0).sum(dim=1).max())
        logs = counts.sum(dim=1).log()
        self.log_sizes = [(logs[codes == code].mean(), logs[codes == code].std()) for code in range(len(self.kinds))]

    def autoencoder(self, n_steps: int) -> None:
        """Train the autoencoder."""
        self.vae = self._trained(self._module("vae_training", n_steps), n_steps).vae_model

    def diffusion(self, n_steps: int) -> None:
        """Train the flow on the latents of the autoencoder, which stays as it is."""
        module = self._module("ldm_training", n_steps)
        module.vae_model.load_state_dict(self.vae.state_dict())
        self.module = self._trained(module, n_steps)

    @torch.no_grad()
    def generate(self) -> tuple[np.ndarray, np.ndarray]:
        """Draw cells of the labels: library sizes from a log-normal distribution of each label, as the program has."""
        module, drawn = self.module.eval(), []
        mean, spread = (torch.stack(values) for values in zip(*self.log_sizes, strict=True))
        module._sample_log_size_factors = lambda condition, _: torch.normal(
            mean[condition[LABEL]], spread[condition[LABEL]]
        )
        codes = torch.as_tensor(np.searchsorted(self.kinds, self.labels))
        for part in codes.split(BATCH):
            counts, _ = module.sample({LABEL: part}, {LABEL: GUIDANCE}, len(part), self._genes(len(part)))
            drawn.append(counts[len(part) :].numpy())  # the first half is unconditional
        return np.concatenate(drawn), self.labels

    def _module(self, name: str, n_steps: int) -> Any:
        """Build a module from the configuration files, for these genes, labels and steps."""
        import hydra

        changes = {
            "datamodule.vocabulary_encoder.n_genes": self.n_genes,
            "datamodule.vocabulary_encoder.class_vocab_sizes": f"{{{LABEL}: {len(self.kinds)}}}",
            "training.trainer.max_steps": n_steps,
            "model.module.vae_scheduler.num_warmup_steps": n_steps // 10,
        }
        if name == "ldm_training":
            changes["model.module.diffusion_scheduler.num_warmup_steps"] = n_steps // 10
        with hydra.initialize_config_dir(str(self.configs), version_base="1.2"):
            config = hydra.compose(name, [f"{key}={value}" for key, value in changes.items()])
        return hydra.utils.instantiate(config.model.module)

    def _trained(self, module: Any, n_steps: int) -> Any:
        batches = DataLoader(self.cells, BATCH, shuffle=True, drop_last=True, collate_fn=self._batch)
        trainer = pl.Trainer(
            max_steps=n_steps,
            accelerator="cpu",
            gradient_clip_val=10.0,
            logger=False,
            enable_checkpointing=False,
            enable_progress_bar=False,
            enable_model_summary=False,
            default_root_dir=self.folder,
        )
        trainer.fit(module, batches)
        return module

    def _batch(self, cells: list[tuple[torch.Tensor, torch.Tensor]]) -> Mapping[str, torch.Tensor]:
        """Genes and counts as the program makes them of "expressed" genes: those of each cell, padded with the mask."""
        counts, codes = (torch.stack(part) for part in zip(*cells, strict=True))
        order = (counts == 0).to(torch.uint8).sort(dim=1, stable=True).indices[:, : self.n_expressed]
        there = counts.gather(1, order)
        return {
            "counts": counts,
            "genes": self._genes(len(counts)),
            "counts_subset": there,
            "genes_subset": torch.where(there > 0, order + 1, 0),
            "library_size": counts.sum(dim=1, keepdim=True),
            LABEL: codes,
        }

    def _genes(self, n_cells: int) -> torch.Tensor:
        return torch.arange(1, self.n_genes + 1).expand(n_cells, -1)  # 0 is the mask


def import_program(source: Path) -> None:
    """Import scLDM from its sources, with an attention that has gradients on a processor."""
    version = importlib.metadata.version
    sys.path.insert(0, str(source / "src"))
    importlib.metadata.version = lambda name: "0" if name == "scldm" else version(name)
    from scldm import layers

    importlib.metadata.version = version
    layers.flex_attention = lambda q, k, v, **_: torch.nn.functional.scaled_dot_product_attention(q, k, v)


if __name__ == "__main__":
    drive(__doc__, Program)
