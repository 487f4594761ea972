"""Simulated cells of thousands of perturbations, few cells each, whose true effects are known."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd
from anndata import AnnData
from numpy.typing import NDArray
from scipy import sparse

N_FEATURES = 16
N_MOLECULES = 500
EFFECT = 0.5  # standard deviation of a logarithm of a fold change
OF_FEATURES = 0.8  # share of its variance that is linear in the features
CONTROL = "control"
PERTURBATION = "perturbation"
FEATURES = "features"


@dataclass(frozen=True)
class Screen:
    """A simulated screen."""

    # cells with :data:`N_MOLECULES` molecules in the median, a tenth of them controls; `uns` holds the features of
    # all perturbations, also of the unseen ones
    train: AnnData
    # A further cell of each seen perturbation, and as many of each unseen one as are in training of a seen one
    held_out: AnnData
    # (perturbations, genes) logarithms of the fold changes, the unseen perturbations last; those of the control, 0,
    # are left out
    effects: pd.DataFrame
    control_shares: NDArray[np.float64]  # (genes,) shares of the molecules of controls
    unseen: list[str]  # names of the perturbations without training cells

    def shares(self, names: NDArray[np.str_]) -> NDArray[np.float64]:
        """True shares of the genes under each named perturbation ``(names, genes)``."""
        effects = self.effects.reindex(names, fill_value=0.0).to_numpy()
        shares = self.control_shares * np.exp(effects)
        return shares / shares.sum(1, keepdims=True)


def simulate_screen(n_seen: int, n_unseen: int, n_genes: int, cells_each: int, seed: int = 0) -> Screen:
    """Simulate multinomial cells; effects are a linear map of normal features, and a deviation of each perturbation."""
    random = np.random.default_rng(seed)
    names = [f"P{i:05d}" for i in range(n_seen + n_unseen)]
    features = random.normal(size=(len(names), N_FEATURES))
    of_features = features @ random.normal(size=(N_FEATURES, n_genes)) * N_FEATURES**-0.5
    deviation = random.normal(size=(len(names), n_genes))
    effects = EFFECT * (OF_FEATURES**0.5 * of_features + (1 - OF_FEATURES) ** 0.5 * deviation)
    control_shares = random.dirichlet(np.full(n_genes, 2.0))
    seen, unseen = names[:n_seen], names[n_seen:]
    screen = Screen(AnnData(), AnnData(), pd.DataFrame(effects, index=names), control_shares, unseen)
    n_controls = n_seen * cells_each // 9
    train = np.array([*np.repeat(seen, cells_each), *[CONTROL] * n_controls])
    held_out = np.array([*seen, *np.repeat(unseen, cells_each)])
    cells = [_draw(screen, given, random) for given in (train, held_out)]
    for part in cells:
        part.uns[FEATURES] = pd.DataFrame(features.astype(np.float32), index=names)
    return Screen(*cells, screen.effects, control_shares, unseen)


def _draw(screen: Screen, given: NDArray[np.str_], random: np.random.Generator) -> AnnData:
    library = np.rint(random.lognormal(np.log(N_MOLECULES), 0.3, len(given))).astype(int)
    counts = sparse.csr_matrix(random.multinomial(library, screen.shares(given)), dtype=np.float32)
    obs = pd.DataFrame({PERTURBATION: given}, index=[f"cell{i}" for i in range(len(given))])
    return AnnData(counts, obs=obs, var=pd.DataFrame(index=[f"gene{i}" for i in range(counts.shape[1])]))
