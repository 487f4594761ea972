"""What is compared on RNA and chromatin: ways to draw cells of given labels, and to impute one modality."""

from collections.abc import Callable

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import sparse
from scvi.model import MULTIVI

from benchmarks._chromatin_data import ATAC, OTHER, ChromatinSplit, labels_of
from benchmarks._data import LABEL
from benchmarks._models import Labels
from benchmarks._multimodal_data import RNA, joined, padded
from benchmarks._multimodal_methods import Counts, JointMethod, counts_of, ridge_predicts, total_by_depth
from benchmarks._scvi import ScviLatents
from scdiffgen.metrics.baselines import null_poisson
from scdiffgen.model import TokenDiffusion

Expected = NDArray[np.float64]  # (cells, columns)


def fit_scdiffgen(split: ChromatinSplit, max_epochs: int | None) -> TokenDiffusion:
    """Train with the defaults on cells of which some lack a modality, with labels."""
    mdata = split.seen()
    TokenDiffusion.setup_mudata(mdata, labels_key=LABEL)
    model = TokenDiffusion(mdata)
    model.train(max_epochs=max_epochs, enable_progress_bar=False)
    return model


def fit_multivi(split: ChromatinSplit, max_epochs: int | None) -> MULTIVI:
    """Train with the defaults on the same cells; the label is the batch, so that the decoder knows it."""
    seen = split.seen()
    mdata = padded(seen)
    mdata.obs[LABEL] = seen.obs[LABEL]
    MULTIVI.setup_mudata(mdata, batch_key=LABEL, modalities={"rna_layer": RNA, "atac_layer": ATAC})
    model = MULTIVI(mdata)
    model.train(**({} if max_epochs is None else {"max_epochs": max_epochs}), enable_progress_bar=False)
    return model


# Drawing cells.


def real_cells(split: ChromatinSplit) -> list[JointMethod]:
    """Other real cells; with peaks of other cells of the label; and independent Poisson counts."""
    labels, wanted = labels_of(split.other), split.conditions[LABEL].to_numpy(dtype=str)

    def of_label(seed: int) -> NDArray[np.intp]:
        """Other real cells of the labels of the held-out cells, none twice where there are enough."""
        rng, rows = np.random.default_rng(seed), np.empty(len(wanted), dtype=np.intp)
        for label in np.unique(wanted):
            places, there = np.flatnonzero(wanted == label), rng.permutation(np.flatnonzero(labels == label))
            rows[places] = np.resize(there, len(places))
        return rows

    def whole(n_cells: int, seed: int) -> Counts:
        return counts_of(split.other, of_label(seed))

    def torn(n_cells: int, seed: int) -> Counts:
        return whole(n_cells, seed) | {ATAC: counts_of(split.other, of_label(seed + 1))[ATAC]}

    def poisson(n_cells: int, seed: int) -> Counts:
        known = labels_of(split.train)
        drawn = {key: null_poisson(split.train[key].X, known, wanted, seed=seed) for key in OTHER}
        return {key: sparse.csr_matrix(counts) for key, counts in drawn.items()}

    return [
        JointMethod("other real cells", "limit", whole),
        JointMethod("peaks of other cells of the label", "null", torn),
        JointMethod("independent Poisson", "null", poisson),
    ]


class MultiviLatents(ScviLatents):
    """Cells decoded by MULTIVI from different latents, with the library factors of cells that have both modalities."""

    def __init__(self, model: MULTIVI, split: ChromatinSplit) -> None:
        self.model = model
        rows = model.adata.obs_names.get_indexer(split.train.obs_names)
        self.mean, self.variance = model.get_latent_representation(indices=rows, return_dist=True)
        self.known = model.adata.obs[LABEL].to_numpy(dtype=str)[rows]
        self.library = model.get_library_size_factors(indices=rows)
        categories = model.adata_manager.get_state_registry("batch").categorical_mapping
        self.batches = {name: code for code, name in enumerate(categories)}

    @torch.inference_mode()
    def _decode(self, z: NDArray[np.float64], labels: Labels, cells: NDArray[np.intp], seed: int) -> sparse.csr_matrix:
        """Counts of genes, and open peaks beside them: zero-inflated negative binomial, and Bernoulli."""
        torch.manual_seed(seed)
        module = self.model.module.eval()
        factors = {key: torch.as_tensor(values[cells])[:, None] for key, values in self.library.items()}
        batch = torch.as_tensor([self.batches[label] for label in labels])[:, None]
        latent = torch.as_tensor(z, dtype=torch.float32)
        decoded = module.generative(latent, latent, batch, libsize_expr=factors["expression"], label=batch)
        rate = torch.distributions.Gamma(decoded["px_r"], decoded["px_r"] / decoded["px_rate"]).sample()
        genes = torch.poisson(rate) * torch.bernoulli(1 - decoded["px_dropout"].sigmoid())
        open_peaks = torch.bernoulli(decoded["p"] * factors["accessibility"] * module.region_factors.sigmoid())
        return sparse.csr_matrix(torch.cat([genes, open_peaks], 1).numpy())


def multivi_draws(model: MULTIVI, split: ChromatinSplit) -> list[JointMethod]:
    """Latents from a Gaussian for each label, and from posteriors of its training cells."""
    latents, labels = MultiviLatents(model, split), split.conditions[LABEL].to_numpy(dtype=str)
    n_genes = split.train[RNA].n_vars

    def drawn_by(sample: Callable[[Labels, int], sparse.csr_matrix]) -> Callable[[int, int], Counts]:
        def draw(n_cells: int, seed: int) -> Counts:
            counts = sample(labels, seed)
            return {RNA: counts[:, :n_genes], ATAC: counts[:, n_genes:]}

        return draw

    return [
        JointMethod("MULTIVI, Gaussian of the label", "other", drawn_by(latents.from_gaussians)),
        JointMethod("MULTIVI, posterior of real cells", "resampled", drawn_by(latents.from_posterior)),
    ]


# One modality from the other: expected counts of the cells that lack it.


def imputers(
    split: ChromatinSplit, ours: TokenDiffusion, other: MULTIVI, target: str
) -> dict[str, Callable[[], Expected]]:
    """Ways to impute a modality by name; MULTIVI and both profiles have totals that follow the depth of the other."""
    cells, given = split.without[target], OTHER[target]
    known, seen, counts = split.train[given].X, cells[given].X, split.train[target].X
    total = total_by_depth(known, seen, counts)[:, None]

    def from_profile(labels: Labels, known_labels: Labels) -> Expected:
        shares = {name: np.asarray(counts[known_labels == name].sum(axis=0)).ravel() for name in np.unique(labels)}
        return total * np.stack([shares[name] / shares[name].sum() for name in labels])

    def from_ours() -> Expected:
        mdata = joined({given: cells[given].copy()})
        mdata.obs[LABEL] = labels_of(cells)
        imputed = ours.generate_modality(mdata, given, target, expected=True, n_steps=1, seed=split.seed, silent=True)
        return np.asarray(imputed[target].layers["expected"], dtype=np.float64)

    def from_multivi() -> Expected:
        rows = other.adata.obs_names.get_indexer(cells.obs_names)
        if target == RNA:
            shares = other.get_normalized_expression(indices=rows, return_numpy=True)
        else:
            shares = other.get_normalized_accessibility(indices=rows, normalize_regions=True, return_numpy=True)
        return total * shares / shares.sum(axis=1, keepdims=True)

    return {
        "scdiffgen": from_ours,
        "MULTIVI": from_multivi,
        "kernel ridge on components": lambda: ridge_predicts(known, seen, counts, kernel=True),
        "ridge on components": lambda: ridge_predicts(known, seen, counts),
        "profile of the label": lambda: from_profile(labels_of(cells), labels_of(split.train)),
        "profile of all cells": lambda: from_profile(*(np.full(part.n_obs, "all") for part in (cells, split.train))),
    }
