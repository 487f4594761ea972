"""Whether Gaussian diffusion yields cells when it runs on the normal scores of counts.

``python -m benchmarks.studies.gaussian_scores --data paul15 kang --seeds 0``

The scores are those of :class:`scdiffgen.normal_scores.GaussianCopula`, standardised by the mean and deviation of the
label and drawn, for each cell, around its factors. The denoiser is the posterior mean of the copula's factor model, and
in the row *network* a token network adds what this linear model lacks; its weights of the genes stay the axes of the
factors, or these and the next of 30 principal axes of the scores. It is trained to predict the noise. A quarter of the
training cells of each benchmark are held out, and scored.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence

import numpy as np
import torch
from scipy import sparse
from scipy.sparse.linalg import svds
from torch import Tensor, nn
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

from benchmarks._data import LABEL, Split, available, load_split
from benchmarks._models import fit_scdiffgen, scdiffgen_methods
from benchmarks._scores import Scorer
from benchmarks._variants import N_TREES, Run, inner_split, study_options, study_runs, study_table
from benchmarks.generation import timed
from scdiffgen.conditions import Condition, Conditions
from scdiffgen.diffusion import TIME_MAX, TIME_MIN, Level, noise_times
from scdiffgen.diffusion._ode_samplers import dpm_solver
from scdiffgen.diffusion._schedules import cosine_schedule
from scdiffgen.model import TokenDiffusion
from scdiffgen.normal_scores import GaussianCopula

VARIANTS = ("thinning", "copula", "linear denoiser", "network", "network, 30 axes")
N_AUGMENTED = 6  # draws of the scores of each training cell
N_STEPS, N_TRAINING_STEPS, BATCH_SIZE, LR = 32, 3000, 128, 2e-3
DIGITS = {
    **{f"auc_{name}": 3 for name in ("forest_pcs", "forest_genes", "logistic_genes")},
    **{"label_accuracy": 3, "recall": 3, "label_fold_change_slope": 3, "least_variance_ratio": 3, "seconds": 0},
}


class Denoiser(nn.Module):
    r"""Posterior mean :math:`D = f + \alpha r (u_t - \alpha f) / (\alpha^2 r + \sigma^2)` of scores ``(cells, genes)``.

    :math:`r` is the variance of a gene beside the factors, :math:`f` the factors' posterior mean given :math:`u_t`, to
    which a network adds a correction.
    """

    def __init__(
        self, split: Split, copula: GaussianCopula, *, has_network: bool, more: np.ndarray | None = None
    ) -> None:
        super().__init__()
        self.noise = torch.from_numpy(copula.noise**2).float()
        _, spread, axes = np.linalg.svd(copula.loadings, full_matrices=False)
        if more is not None:  # axes without factors
            beside = np.linalg.svd(more - more @ axes.T @ axes, full_matrices=False)[2][: len(more) - len(axes)]
            axes, spread = np.vstack([axes, beside]), np.append(spread, np.zeros(len(beside)))
        self.axes, self.variances = torch.from_numpy(axes).float(), torch.from_numpy(spread**2).float()
        self.network: nn.Module | None = None
        if has_network:
            adata = split.train.copy()
            TokenDiffusion.setup_anndata(adata, labels_key=LABEL)
            self.network = TokenDiffusion(adata, process="gaussian", preset="small").module.denoiser
            self._start_linearly(self.network.network)

    def _start_linearly(self, network: nn.Module) -> None:
        """Let the encoder read the axes of the factors, and the read-out write along them, and fix both."""
        readout, weight = network.readout, network.trunk.encoder.weight
        rows = readout.gene_weights.unflatten(0, (len(readout.heads), -1))
        with torch.no_grad():
            for wide in (rows, readout.heads, weight):
                wide.zero_()
            for k, axis in enumerate(self.axes[: len(readout.gene_weights)]):
                rows[k % len(rows), k // len(rows)] = axis * self.variances[k].clamp(min=1).sqrt()
            read = self.axes[: weight.shape[1] // 2].T
            weight[:, : 2 * read.shape[1]] = torch.cat([read, -read], dim=1)
        for fixed in (readout.gene_weights, readout.unit_weights, readout.bias, weight):
            fixed.requires_grad_(False)

    def forward(self, noisy: Tensor, level: Level, labels: Tensor, library: Tensor) -> Tensor:
        """Expected scores ``(cells, genes)`` at levels ``(cells, 1)`` or ``()``."""
        alpha, sigma = level.alpha, level.sigma
        beside = (self.axes**2 * self.noise).sum(1)
        gains = alpha * self.variances / (alpha**2 * (self.variances + beside) + sigma**2)
        expected = (noisy @ self.axes.T * gains) @ self.axes
        if self.network is not None:
            shape = torch.zeros(len(labels), 1), torch.ones(len(labels), 1, dtype=torch.bool)
            given = Condition(labels[:, None], *shape, torch.ones(len(labels), dtype=torch.bool))
            embedded = self.network.embed_conditions(Conditions({LABEL: given}, len(labels)), len(labels))
            log_level = (level.log_snr / 2).flatten().expand(len(labels))
            expected = expected + self.network.network.read(noisy, log_level, library, *embedded)[0]
        return expected + alpha * self.noise / (alpha**2 * self.noise + sigma**2) * (noisy - alpha * expected)


def train(denoiser: Denoiser, scores: Tensor, labels: Tensor, library: Tensor, n_steps: int) -> nn.Module:
    """Predict the noise in augmented scores ``(draws, cells, genes)``: averaged weights."""
    weights = [weight for weight in denoiser.parameters() if weight.requires_grad]
    optimiser = torch.optim.AdamW(weights, LR, weight_decay=0.01)
    averaged = AveragedModel(denoiser, multi_avg_fn=get_ema_multi_avg_fn(0.999))
    for step in range(n_steps):
        for group in optimiser.param_groups:
            group["lr"] = LR * min(1, (step + 1) / 100) * (1 + math.cos(math.pi * step / n_steps)) / 2
        cells = torch.randint(len(labels), (BATCH_SIZE,))
        clean, time = scores[torch.randint(len(scores), (BATCH_SIZE,)), cells], noise_times(BATCH_SIZE)
        level = cosine_schedule(time).expand_as(clean)
        noisy = level.alpha * clean + level.sigma * torch.randn_like(clean)
        error = level.alpha / level.sigma * (denoiser(noisy, level, labels[cells], library[cells]) - clean)
        optimiser.zero_grad()
        error.square().mean().backward()
        nn.utils.clip_grad_norm_(weights, 1.0)
        optimiser.step()
        averaged.update_parameters(denoiser)
    return averaged.module.eval()


@torch.no_grad()
def sample(denoiser: nn.Module, copula: GaussianCopula, labels: np.ndarray, library: np.ndarray) -> sparse.csr_matrix:
    """Counts of cells of labels and library sizes ``(cells,)``, by DPM-Solver++."""
    rows, times = [], torch.linspace(TIME_MAX, TIME_MIN, N_STEPS)
    for cells in np.array_split(np.arange(len(labels)), -(-len(labels) // 500)):
        given = torch.from_numpy(labels[cells]), torch.from_numpy(library[cells]).float()

        def denoise(noisy: Tensor, time: Tensor, given: tuple[Tensor, Tensor] = given) -> Tensor:
            return denoiser(noisy, cosine_schedule(time), *given)

        noise = torch.randn(len(cells), copula.means.shape[1])
        clean = denoise(dpm_solver(denoise, noise, times, cosine_schedule), times[-1]).numpy()
        scores = copula.means[labels[cells]] + copula.deviations[labels[cells]] * clean
        rows.append(copula.reference.to_counts(scores, library[cells]))
    return sparse.vstack(rows, format="csr")


def samplers(split: Split, n_steps: int) -> dict[str, Callable[[], sparse.csr_matrix]]:
    """What draws cells like the held-out ones, by the name of the row."""
    names, codes = np.unique(split.train.obs[LABEL].to_numpy(str), return_inverse=True)
    counts = sparse.csr_matrix(split.train.X)
    wanted, library = np.searchsorted(names, split.labels), np.asarray(split.held_out.X.sum(1)).ravel()
    copula, seconds = timed(lambda: GaussianCopula.fit(counts, codes, seed=split.seed))
    print(f"{len(copula.loadings)} factors, {seconds:.0f} s", flush=True)

    def augmented() -> Tensor:
        rng, scores = np.random.default_rng(split.seed), np.zeros(counts.shape)
        draws = [scores := copula.augment(counts, codes, scores, rng) for _ in range(N_AUGMENTED + 4)]
        return torch.from_numpy(np.array(draws[4:], dtype=np.float32))

    def diffused(*, has_network: bool, n_axes: int = 0) -> sparse.csr_matrix:
        torch.manual_seed(split.seed)
        scores = augmented() if has_network else torch.zeros(0)
        more = svds(scores[0].numpy(), n_axes, v0=np.ones(min(counts.shape), dtype=np.float32))[2] if n_axes else None
        denoiser: nn.Module = Denoiser(split, copula, has_network=has_network, more=more)
        if has_network:
            of_cells = torch.from_numpy(codes), torch.from_numpy(np.asarray(counts.sum(1)).ravel()).float()
            denoiser = train(denoiser, scores, *of_cells, n_steps)
        return sample(denoiser, copula, wanted, library)

    return {
        "thinning": lambda: scdiffgen_methods(fit_scdiffgen(split), [N_STEPS])[0].sample(split.labels, split.seed),
        "copula": lambda: copula.draw(wanted, library, np.random.default_rng(split.seed)),
        "linear denoiser": lambda: diffused(has_network=False),
        "network": lambda: diffused(has_network=True),
        "network, 30 axes": lambda: diffused(has_network=True, n_axes=30),
    }


def table(runs: Sequence[Run]) -> str:
    """A row a way to draw cells."""
    return study_table(runs, DIGITS)


def main(arguments: Sequence[str] | None = None) -> None:
    about = "benchmarks.studies.gaussian_scores", __doc__.splitlines()[0]
    options = study_options(*about, available(), ["paul15"], [0], VARIANTS).parse_args(arguments)

    def measured(name: str, seed: int) -> Iterator[tuple[str, Run]]:
        split = inner_split(load_split(name, seed))
        scorer, rows = Scorer.fit(split, n_trees=N_TREES), samplers(split, 20 if options.quick else N_TRAINING_STEPS)
        for variant in options.variants:
            counts, seconds = timed(rows[variant])
            yield variant, {"scores": {**scorer.score(counts), "seconds": seconds}}

    print(table(study_runs(options, "study-gaussian-scores.jsonl", measured)))


if __name__ == "__main__":
    main()
