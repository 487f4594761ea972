"""scVI as a generator: its decoder is conditioned on the label, which it takes as the batch."""

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import sparse
from scvi.model import SCVI
from sklearn.mixture import GaussianMixture

from benchmarks._data import LABEL, Split
from benchmarks._models import Labels, Method

CHUNK = 1000  # cells decoded at a time
MOST_COMPONENTS = 10  # of a mixture, and never more than a tenth of the cells of the label


def fit_scvi(split: Split, *, max_epochs: int | None = None) -> SCVI:
    """Train with the defaults of scVI, epochs included, and counts that are negative binomial, as they mostly are."""
    adata = split.train.copy()
    SCVI.setup_anndata(adata, batch_key=LABEL)
    model = SCVI(adata, gene_likelihood="nb")
    model.train(max_epochs=max_epochs, enable_progress_bar=False)
    return model


def scvi_methods(model: SCVI) -> list[Method]:
    """Latents from a Gaussian or a mixture of Gaussians for each label, and from posteriors of its training cells."""
    latents = ScviLatents(model)
    return [
        Method("scVI, Gaussian of the label", "other", latents.from_gaussians),
        Method("scVI, Gaussian mixture of the label", "other", latents.from_mixtures),
        Method("scVI, aggregated posterior (resamples training cells)", "resampled", latents.from_posterior),
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

    def from_mixtures(self, labels: Labels, seed: int) -> sparse.csr_matrix:
        """Draw from a mixture of normal distributions of each label; BIC chooses the number of components."""
        rng = np.random.default_rng(seed)
        z = np.empty((len(labels), self.mean.shape[1]))
        for label in np.unique(labels):
            places = labels == label
            mixture = self._mixture(label, seed)
            z[places] = rng.permutation(mixture.sample(places.sum())[0])
        return self._decode(z, labels, self._real_cells(labels, rng), seed)

    def from_posterior(self, labels: Labels, seed: int) -> sparse.csr_matrix:
        """Draw a training cell of the label, then from its posterior: a re-drawing of real cells."""
        rng = np.random.default_rng(seed)
        cells = self._real_cells(labels, rng)
        z = rng.normal(self.mean[cells], np.sqrt(self.variance[cells]))
        return self._decode(z, labels, cells, seed)

    def _mixture(self, label: str, seed: int) -> GaussianMixture:
        """Fit mixtures to a posterior sample of each cell of a label, and take the one of the lowest BIC."""
        rows = self.known == label
        rng = np.random.default_rng(seed)
        z = rng.normal(self.mean[rows], np.sqrt(self.variance[rows]))
        most = max(1, min(MOST_COMPONENTS, len(z) // 10))
        fits = (GaussianMixture(n, reg_covar=1e-4, random_state=seed).fit(z) for n in range(1, most + 1))
        return min(fits, key=lambda fit: fit.bic(z))

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
