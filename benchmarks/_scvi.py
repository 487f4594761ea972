"""scVI as a generator: its decoder is conditioned on the label, which it takes as the batch."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import sparse
from scvi.model import SCVI

from benchmarks._data import LABEL, Split
from benchmarks._models import Labels, Method

CHUNK = 1000  # cells decoded at a time


def fit_scvi(split: Split, *, max_epochs: int | None = None) -> SCVI:
    """Train with the defaults of scVI, epochs included."""
    adata = split.train.copy()
    SCVI.setup_anndata(adata, batch_key=LABEL)
    model = SCVI(adata)
    model.train(max_epochs=max_epochs, enable_progress_bar=False)
    return model


def scvi_methods(model: SCVI) -> list[Method]:
    """Latents from the prior, from a Gaussian for each label, and of real training cells of the label."""
    latents = ScviLatents(model)
    return [
        Method("scVI, prior", "other", latents.from_prior),
        Method("scVI, Gaussian of the label", "other", latents.from_gaussians),
        Method("scVI, posterior of real cells", "redrawn", latents.from_posterior),
    ]


class ScviLatents:
    """Cells decoded from different latents, at library sizes of training cells of the same label."""

    def __init__(self, model: SCVI) -> None:
        self.model = model
        self.mean, self.variance = model.get_latent_representation(return_dist=True)
        self.known = model.adata.obs[LABEL].to_numpy(dtype=str)
        self.library = np.asarray(model.adata.X.sum(axis=1)).ravel()
        categories = model.adata_manager.get_state_registry("batch").categorical_mapping
        self.batches = {name: code for code, name in enumerate(categories)}

    def from_prior(self, labels: Labels, seed: int) -> sparse.csr_matrix:
        """Draw from the standard normal prior; the label enters through the decoder."""
        rng = np.random.default_rng(seed)
        z = rng.normal(size=(len(labels), self.mean.shape[1]))
        return self._decode(z, labels, self._real_cells(labels, rng), seed)

    def from_gaussians(self, labels: Labels, seed: int) -> sparse.csr_matrix:
        """Draw from the normal distribution with the moments of the posteriors of the label."""
        rng = np.random.default_rng(seed)
        z = np.empty((len(labels), self.mean.shape[1]))
        for label in np.unique(labels):
            rows, places = self.known == label, labels == label
            centred = self.mean[rows] - self.mean[rows].mean(axis=0)
            covariance = centred.T @ centred / rows.sum() + np.diag(self.variance[rows].mean(axis=0))
            z[places] = rng.multivariate_normal(self.mean[rows].mean(axis=0), covariance, places.sum())
        return self._decode(z, labels, self._real_cells(labels, rng), seed)

    def from_posterior(self, labels: Labels, seed: int) -> sparse.csr_matrix:
        """Draw a training cell of the label, then from its posterior: a re-drawing of real cells."""
        rng = np.random.default_rng(seed)
        cells = self._real_cells(labels, rng)
        z = rng.normal(self.mean[cells], np.sqrt(self.variance[cells]))
        return self._decode(z, labels, cells, seed)

    def _real_cells(self, labels: Labels, rng: np.random.Generator) -> NDArray[np.intp]:
        """Draw a training cell of the label for each cell."""
        cells = np.empty(len(labels), dtype=int)
        for label in np.unique(labels):
            places = labels == label
            cells[places] = rng.choice(np.flatnonzero(self.known == label), places.sum())
        return cells

    @torch.inference_mode()
    def _decode(self, z: NDArray[np.float64], labels: Labels, cells: NDArray[np.intp], seed: int) -> sparse.csr_matrix:
        """Counts at given latents and labels, with the library sizes of given cells."""
        torch.manual_seed(seed)  # the distributions of scVI take no generator
        module, device = self.model.module.eval(), self.model.device
        batch = np.array([self.batches[label] for label in labels])
        drawn = []
        for rows in np.split(np.arange(len(z)), range(CHUNK, len(z), CHUNK)):
            latent = torch.as_tensor(z[rows], dtype=torch.float32, device=device)
            library = torch.as_tensor(self.library[cells[rows]], dtype=torch.float32, device=device).log()[:, None]
            decoded = module.generative(latent, library, torch.as_tensor(batch[rows], device=device)[:, None])
            drawn.append(sparse.csr_matrix(decoded["px"].sample().cpu().numpy()))
        return sparse.vstack(drawn, format="csr")
