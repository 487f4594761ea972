"""Simulated cells of a screen with known responses: counts, labels, and the true change of mean log expression."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

N_GENES, LIBRARY = 60, 6000
DRUG_GENE = N_GENES - 1


def log_mean(counts: np.ndarray) -> np.ndarray:
    """Mean of log(1 + counts per 10,000) ``(genes,)``."""
    return np.log1p(1e4 * counts / np.maximum(counts.sum(1, keepdims=True), 1)).mean(0)


def draw(rng: np.random.Generator, shares: np.ndarray, n_cells: int, library: float = LIBRARY) -> np.ndarray:
    """Overdispersed counts ``(cells, genes)``."""
    rates = shares * rng.gamma(100, 1 / 100, (n_cells, len(shares)))
    return rng.poisson(library * rates / rates.sum(1, keepdims=True))


@dataclass(frozen=True)
class Screen:
    """Batch ``i`` multiplies gene ``i`` by ``batch_effect``, a treatment multiplies genes by its factors."""

    factors: Mapping[str, np.ndarray]  # (genes,) of each treatment but the control
    base: Mapping[str, np.ndarray]  # relative expression (genes,) of each context
    batch_effect: float = 4.0

    def cells(
        self, rng: np.random.Generator, groups: Sequence[tuple[str, int, str, int]]
    ) -> tuple[np.ndarray, pd.DataFrame]:
        """Counts and labels of groups of a context, a batch, a treatment and a number of cells, in random order."""
        counts, labels = [], []
        for context, batch, treatment, n_cells in groups:
            shares = self.base[context] * self.factors.get(treatment, 1.0)
            if batch >= 0:
                shares = shares * np.where(np.arange(len(shares)) == batch, self.batch_effect, 1.0)
            counts.append(draw(rng, shares, n_cells))
            labels += [(context, f"b{batch}", treatment)] * n_cells
        order = rng.permutation(len(labels))
        obs = pd.DataFrame(labels, columns=["type", "batch", "drug"]).iloc[order]
        return np.vstack(counts)[order], obs.set_axis([f"cell{i}" for i in order])

    def change(self, context: str, treatment: str) -> np.ndarray:
        """True change of mean log expression ``(genes,)``, of many cells without batch effects."""
        arms = (self.cells(np.random.default_rng(0), [(context, -1, arm, 4000)])[0] for arm in (treatment, "control"))
        after, before = map(log_mean, arms)
        return after - before


def drug_screen(n_contexts: int, factor: float = 3.0) -> Screen:
    """A drug that triples the last gene, in contexts whose expression differs in the other genes."""
    rng = np.random.default_rng(1)
    base = rng.uniform(0.7, 1.4, N_GENES) * rng.uniform(0.8, 1.25, (n_contexts, N_GENES))
    base[:, DRUG_GENE] = 1
    factors = np.where(np.arange(N_GENES) == DRUG_GENE, factor, 1.0)
    return Screen({"x": factors}, dict(zip("abcdefgh", base, strict=False)))
