"""Dispersions of genes before training, against simulated gamma-Poisson counts."""

from __future__ import annotations

import numpy as np
import torch
from csr import csr
from module_parts import SIZE
from parts import unconditional

from scdiffgen.module import JointThinningModule
from scdiffgen.module._label_sums import LARGEST_DISPERSION, LEAST_DISPERSION, SHARE, LabelSums
from scdiffgen.nn._overdispersion import FASTER

SIZES = (200, 100)
DISPERSIONS = np.tile([0.1, 0.5, 2.0, 0.02], 75)


def simulated(n_cells: int = 1_000) -> np.ndarray:
    """Depths of both kinds vary independently from cell to cell, which is no dispersion of a gene."""
    random = np.random.default_rng(0)
    depth = random.lognormal(0, 0.5, (n_cells, 2)) * [4, 30]
    means = np.repeat(depth, SIZES, axis=1) * random.gamma(1 / DISPERSIONS, DISPERSIONS, (n_cells, sum(SIZES)))
    return random.poisson(means)


def test_dispersions_are_a_share_of_those_of_the_truth_in_each_kind() -> None:
    module = JointThinningModule({"X": SIZES[0], "X_prot": SIZES[1]}, (), SIZE)
    counts = simulated()
    module.initialise([(csr(part), unconditional(len(part))) for part in np.array_split(counts, 4)])
    for denoiser in module.denoisers:
        found = (FASTER * denoiser.overdispersion.log_dispersions).exp().detach().numpy()
        for dispersion in np.unique(DISPERSIONS):
            for kind in (slice(None, SIZES[0]), slice(SIZES[0], None)):
                of_kind = np.median(found[kind][DISPERSIONS[kind] == dispersion])
                np.testing.assert_allclose(of_kind, SHARE * dispersion, rtol=0.3)


def test_cells_that_lack_a_kind_change_nothing_in_the_other() -> None:
    counts, lacking = simulated(), simulated()
    lacking[:, SIZES[0] :] = 0
    alone, more = (LabelSums(None, 1, SIZES) for _ in range(2))
    for sums, parts in ((alone, [counts]), (more, [counts, lacking])):
        for part in parts:
            sizes = np.stack([part[:, : SIZES[0]].sum(1), part[:, SIZES[0] :].sum(1)], axis=1)
            sums.add(csr(part), unconditional(len(part)), torch.from_numpy(sizes).float())
    torch.testing.assert_close(more.dispersions()[SIZES[0] :], alone.dispersions()[SIZES[0] :])


def test_genes_without_molecules_have_dispersions_within_bounds() -> None:
    sums = LabelSums(None, 1, SIZES)
    sums.add(csr(np.zeros((5, sum(SIZES)), int)), unconditional(5), torch.zeros(5, 2))
    found = sums.dispersions()
    assert (found >= LEAST_DISPERSION).all() and (found <= LARGEST_DISPERSION).all()
