"""scDiffusion (Luo et al., Bioinformatics 2024): an autoencoder, diffusion of its latents, a guiding classifier.

Run from the repository, in an environment with the requirements of scDiffusion:
``python -m benchmarks.external.scdiffusion``. Its output is log-normalised; README.md says how it becomes counts.
"""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import scanpy as sc
import torch

from benchmarks.external._recipe import LABEL, Job, drive

FULL = {"autoencoder": 200_000, "diffusion": 800_000, "classifier": 400_000}  # steps, of the program's README


class Program:
    """The scripts of scDiffusion, one after the other, as its README has them."""

    full = FULL
    settings: ClassVar = {"guidance": "classifier, scale 2, last 500 of 1000 steps"}

    def __init__(self, job: Job, folder: Path) -> None:
        self.job, self.folder = job, folder
        (folder / "run").mkdir()  # some scripts write to a folder beside the working folder
        os.environ |= {"OPENAI_LOGDIR": str(folder / "logs"), "OPENAI_LOG_FORMAT": "log"}
        sys.path.insert(0, str(job.source / "VAE"))
        cells = job.train.copy()
        cells.obs["celltype"] = cells.obs[LABEL].astype(str)
        cells.write_h5ad(folder / "run/cells.h5ad")
        sc.pp.filter_genes(cells, min_cells=3)  # as the program does when it reads the file
        sc.pp.filter_cells(cells, min_genes=10)
        self.genes, self.kinds = cells.var_names, sorted(cells.obs["celltype"].unique())
        self._put_on_cpu()

    def autoencoder(self, n_steps: int) -> None:
        """Train from scratch: the weights of another model that the authors start from hold for human genes only."""
        import VAE_train

        torch.autograd.set_detect_anomaly(False)  # importing the script turns it on, which only costs time
        arguments = {"data_dir": "cells.h5ad", "num_genes": len(self.genes), "max_steps": n_steps, "save_dir": "ae"}
        with self._called_with(arguments):
            VAE_train.train_vae({**VAE_train.parse_arguments(), "state_dict": None})
        self.vae = self.folder / f"run/ae/model_seed=0_step={n_steps - 1}.pt"

    def diffusion(self, n_steps: int) -> None:
        """Train the diffusion of the latents; its learning rate falls to zero over the steps."""
        arguments = {"lr_anneal_steps": n_steps, "model_name": "diffusion", "save_dir": "."}
        self._script("cell_train", {**self._data(), **arguments})
        self.model_path = f"diffusion/model{n_steps:06d}.pt"

    def classifier(self, n_steps: int) -> None:
        """Train the classifier of noised latents."""
        arguments = {"iterations": n_steps, "num_class": len(self.kinds), "model_path": "classifier"}
        self._script("classifier_train", {**self._data(), **arguments})
        self.classifier_path = f"classifier/model{n_steps - 1:06d}.pt"

    def generate(self) -> tuple[np.ndarray, np.ndarray]:
        """Draw latents of one label after the other, and decode all together, as batch normalisation wants it."""
        latents, labels = [], []
        for code, kind in enumerate(self.kinds):
            n_cells = int((self.job.labels == kind).sum())
            if not n_cells:
                continue
            paths = {"model_path": self.model_path, "classifier_path": self.classifier_path, "sample_dir": "latents"}
            sizes = {"num_samples": n_cells, "batch_size": n_cells, "num_class": len(self.kinds)}
            self._script("classifier_sample", {**paths, **sizes}, cell_type=[code])
            latents.append(np.load(self.folder / f"run/latents{code}.npz")["cell_gen"])
            labels += [kind] * n_cells
        decoder = self._loader.load_VAE(self.vae, len(self.genes), 128)
        with torch.no_grad():
            decoded = decoder(torch.as_tensor(np.concatenate(latents)), return_decoded=True)
        expression = np.zeros((len(labels), self.job.train.n_vars), dtype=np.float32)
        expression[:, self.job.train.var_names.get_indexer(self.genes)] = decoded.numpy()
        return expression, np.array(labels)

    def _data(self) -> dict[str, Any]:
        return {"data_dir": "cells.h5ad", "vae_path": self.vae}

    def _script(self, name: str, arguments: dict[str, Any], **options: Any) -> None:
        """Run ``main`` of a script with arguments from the command line."""
        module = __import__(name)
        module.DDP = lambda model, **_: model  # one process; the wrapper wants a graphics card
        with self._called_with(arguments):
            module.main(**options)

    @contextmanager
    def _called_with(self, arguments: dict[str, Any]) -> Iterator[None]:
        before, here = sys.argv, Path.cwd()
        sys.argv = ["script", *(f"--{name}={value}" for name, value in arguments.items())]
        os.chdir(self.folder / "run")
        try:
            yield
        finally:
            sys.argv = before
            os.chdir(here)

    def _put_on_cpu(self) -> None:
        """Let what asks for a graphics card stay in memory, and make batches in this process, not in another."""
        from guided_diffusion import cell_datasets_loader as loader

        model, batches = loader.VAE, loader.DataLoader
        loader.DataLoader = lambda data, **settings: batches(data, **{**settings, "num_workers": 0})
        loader.VAE = lambda **settings: model(**{**settings, "device": "cpu"})
        torch.Tensor.cuda = lambda self: self  # type: ignore[method-assign]
        self._loader = loader


def as_counts(expression: np.ndarray, labels: np.ndarray, job: Job) -> tuple[np.ndarray, np.ndarray]:
    """Turn log-normalised expression into counts, rounded and drawn, at library sizes of real cells of the label."""
    rng = np.random.default_rng(job.seed)
    known, sizes = job.train.obs[LABEL].to_numpy(dtype=str), np.asarray(job.train.X.sum(axis=1)).ravel()
    library = np.array([rng.choice(sizes[known == label]) for label in labels]).astype(int)
    shares = np.expm1(expression.astype(np.float64))
    shares /= shares.sum(axis=1, keepdims=True)
    return np.rint(shares * library[:, None]), rng.multinomial(library, shares)


def files(job: Job, expression: np.ndarray, labels: np.ndarray) -> dict[Path, np.ndarray]:
    """Counts made in both ways; those that are drawn go to a folder beside."""
    drawn = job.out.parent.with_name(f"{job.out.parent.name}-drawn") / job.out.name
    return dict(zip((job.out, drawn), as_counts(expression, labels, job), strict=True))


if __name__ == "__main__":
    drive(__doc__, Program, few=20, files=files)
