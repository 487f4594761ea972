"""How should the rate of a gene depend on its own molecules? Forms compared on parts of the training cells.

``python -m benchmarks.studies.own_counts --data kang700 pbmc3k --seeds 0 1 2``

Tokens expect ``m`` molecules of a gene among those of the cell by now, and there are ``x``. ``urn`` is the form of the
package: rates ``A m + w x`` with one weight for each gene and one concentration for each cell. ``dispersion``: the
posterior mean of a gamma-Poisson model, ``(1 - s) m + s x`` with ``logit s = log(phi m) + c``, where ``phi`` is the
dispersion of the gene, beginning with its moments in the training cells of each label, and ``c`` depends on the noise
level; a small share of ``x`` is added whatever is expected. ``dispersion, outliers``: ``logit s`` also rises by
``b max(z - z0, 0)`` with ``z = (x - m) / sqrt(m + 1)``, so that a gene of which a cell has far more than expected goes
on as it is. ``urn, outliers``: such genes alone leave the urn, ``exp(-b max(z - z0, 0))`` of what was expected
remaining and the rest being ``x``. Of the training cells of a benchmark alone, a quarter of each label is held out, at
most 1,500 cells in all. Runs are lines of a file; the table shows the last of each.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from scipy import sparse
from torch import Tensor, nn

from benchmarks._data import DATASETS, LABEL, load_split
from benchmarks._variants import DIGITS, Run, fit_variant, study_options, study_runs, study_table, variant_scores
from benchmarks.studies.linear_start import inner_split
from scdiffgen.model import TokenDiffusion
from scdiffgen.nn import GeneScores

VARIANTS = ("urn", "urn, outliers", "dispersion", "dispersion, outliers")
FASTER = 10.0  # of its own parameters: they learn so many times faster than weights
SHARE_OF_MOMENTS, PRIOR, RANGE = 0.3, 0.3, (0.003, 1.0)  # of dispersions; tokens explain the rest of the moments
LEAST_SHARE = {"dispersion": 0.02, "dispersion, outliers": 0.005}
SLOPE, THRESHOLD = 1.0, 3.0  # of outliers, before training


class SeesCounts(nn.Module):
    """Knows the molecules that its network is asked about: the rate of a gene depends on its own."""

    def watch(self, network: nn.Module) -> None:
        """Keep the molecules that are there, CSR or dense, whenever the network is asked."""
        network.register_forward_pre_hook(lambda _, inputs: self.read(inputs[0]))

    def read(self, counts: Tensor) -> None:
        """Keep the molecules for the rates that are asked for next."""
        self.counts = counts if counts.layout == torch.strided else counts.to_dense()


class OwnCounts(SeesCounts):
    """Both the urn of a network, which keeps what was expected, and what turns that into rates and weights."""

    def __init__(self, concentration: nn.Module, dispersions: NDArray[np.float64], least: float, outliers: bool):
        super().__init__()
        self.concentration = concentration  # starts at zero
        self.log_dispersions = nn.Parameter(torch.from_numpy(dispersions).float().log() / FASTER)
        self.least = nn.Parameter(torch.full((len(dispersions),), np.log(least / (1 - least))))
        self.outliers = nn.Parameter(torch.tensor([SLOPE, THRESHOLD]) / FASTER) if outliers else None

    def forward(self, logits: Tensor, conditioning: Tensor, n_molecules: Tensor) -> GeneScores:
        """Scores of the genes, whose first term is how many molecules are expected by now."""
        self.shift = self.concentration(conditioning)
        return GeneScores(logits, torch.log1p(n_molecules).reshape(self.shift.shape), self.least.sigmoid())

    def rates(self, log_expected: Tensor, least: Tensor) -> tuple[Tensor, Tensor]:
        """Logarithm of the rates without own molecules, and weights of these, ``(cells, genes)``."""
        logits = log_expected + FASTER * self.log_dispersions + self.shift
        if self.outliers is not None:
            expected, (slope, threshold) = log_expected.exp(), (FASTER * self.outliers).unbind()
            surprise = (self.counts - expected) / (expected + 1).sqrt()
            logits = logits + F.softplus(slope) * F.softplus(surprise - threshold, beta=2)
        weights = least + (1 - least) * logits.sigmoid()
        return log_expected - F.softplus(logits) + torch.log1p(-least), weights


class Limit(nn.Module):
    """Stands where the prior of the tokens is limited, and asks the urn, whose weights it shares."""

    def __init__(self, urn: OwnCounts):
        super().__init__()
        self.urn, self.sizes, self.which = urn, (len(urn.log_dispersions),), (True,)
        self.depth = torch.ones(1)

    def forward(self, log_expected: Tensor, weights: Tensor) -> tuple[Tensor, Tensor]:
        """Logarithm of the rates without own molecules, and weights of these."""
        return self.urn.rates(log_expected, weights)

    def limit(self, limited: Tensor) -> None:
        """Nothing else is limited."""


class Outliers(SeesCounts):
    """Stands where the prior of the tokens is limited: beside the urn, genes far beyond what is expected go on."""

    def __init__(self, n_genes: int):
        super().__init__()
        self.sizes, self.which, self.depth = (n_genes,), (True,), torch.ones(1)
        self.outliers = nn.Parameter(torch.tensor([SLOPE, THRESHOLD]) / FASTER)

    def forward(self, log_expected: Tensor, weights: Tensor) -> tuple[Tensor, Tensor]:
        """Logarithm of the rates without own molecules, and weights of these."""
        expected, (slope, threshold) = log_expected.exp(), (FASTER * self.outliers).unbind()
        surprise = (self.counts - expected) / (expected + 1).sqrt()
        excess = F.softplus(slope) * F.relu(surprise - threshold)
        return log_expected - excess, weights - (1 - weights) * torch.expm1(-excess)

    def limit(self, limited: Tensor) -> None:
        """Nothing else is limited."""


def dispersions(model: TokenDiffusion) -> NDArray[np.float64]:
    """A share of the dispersion of each gene within labels, by moments, shrunk where little is expected."""
    counts = sparse.csr_matrix(model.adata.X).toarray().astype(np.float64)
    labels, library = model.adata.obs[LABEL].astype(str).to_numpy(), counts.sum(1, keepdims=True)
    excess, squares = np.zeros(counts.shape[1]), np.zeros(counts.shape[1])
    pooled = counts.sum(0) / counts.sum()
    for label in np.unique(labels):
        rows = labels == label
        if (n := rows.sum()) < 5:
            continue
        shares = (counts[rows].sum(0) + 2000 * pooled) / (library[rows].sum() + 2000)
        expected = library[rows] * shares
        excess += ((counts[rows] - expected) ** 2 - expected).sum(0) * n / (n - 1)
        squares += (expected**2).sum(0)
    return ((SHARE_OF_MOMENTS * excess).clip(0) + PRIOR) / (squares + 1)


@contextmanager
def own_counts(model: TokenDiffusion, variant: str) -> Iterator[None]:
    """Give a new model another form, for as long as it lives."""
    if variant == "urn, outliers":
        for denoiser in model.module.denoisers:
            denoiser.limit = Outliers(model.module.n_vars)
            denoiser.limit.watch(denoiser.network)
    elif variant != "urn":
        start = dispersions(model).clip(*RANGE)
        for denoiser in model.module.denoisers:
            network = denoiser.network
            network.urn = OwnCounts(network.urn.concentration, start, LEAST_SHARE[variant], "outliers" in variant)
            denoiser.limit = Limit(network.urn)
            network.urn.watch(network)
    yield


def table(runs: Sequence[Run]) -> str:
    """A row a form."""
    return study_table(runs, DIGITS)


def main(arguments: Sequence[str] | None = None) -> None:
    about = "benchmarks.studies.own_counts", __doc__.splitlines()[0]
    parser = study_options(*about, [*DATASETS], ["paul15"], [0, 1, 2], VARIANTS)
    parser.add_argument("--max-epochs", type=int, help="length of training (the default)")
    options = parser.parse_args(arguments)

    def measured(name: str, seed: int) -> Iterator[tuple[str, Run]]:
        split = inner_split(load_split(name, seed))
        for variant in options.variants:
            n_epochs = 2 if options.quick else options.max_epochs
            model, seconds = fit_variant(split, {}, n_epochs, partial(own_counts, variant=variant))
            yield (
                variant,
                {"epochs": model.trainer.max_epochs, "scores": variant_scores(model, split) | {"seconds": seconds}},
            )

    print(table(study_runs(options, "study-own-counts.jsonl", measured)))


if __name__ == "__main__":
    main()
