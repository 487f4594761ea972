"""A stand-in for a trained model that draws independent Poisson counts of known means."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd
from anndata import AnnData
from scipy import sparse


class KnownGenerator:
    """Shares ``(labels, genes)`` that are known; cell types are drawn uniformly unless they are given."""

    registry: dict[str, Any] = {"field_registries": {}}

    def __init__(
        self,
        shares: Mapping[str, np.ndarray],
        library: float = 1000.0,
        donors: tuple[str, ...] = (),
        donor_key: str = "batch",
    ) -> None:
        self.shares, self.library, self.donors, self.donor_key = shares, library, donors, donor_key
        self.genes = [f"gene{i}" for i in range(len(next(iter(shares.values()))))]
        self.sizes: list[np.ndarray] = []

    def get_var_names(self) -> np.ndarray:
        return np.array(self.genes)

    def get_token_loadings(self, *, method: str) -> pd.DataFrame:
        assert method == "readout"
        return pd.DataFrame({"token_1": np.linspace(-2, 4, len(self.genes))}, index=self.genes)

    def draw_conditions(
        self, conditions: Any, n_cells: int | None = None, *, library_size: Any = None, seed: int = 0
    ) -> pd.DataFrame:
        rng = np.random.default_rng([seed, 0])
        table = conditions if isinstance(conditions, pd.DataFrame) else pd.DataFrame(conditions, index=[0])
        table = table.loc[table.index.repeat(table.get("n_cells", n_cells))].drop(columns="n_cells", errors="ignore")
        known = {"cell_type": [*self.shares], **({self.donor_key: [*self.donors]} if self.donors else {})}
        unknown = set(table) - set(known)
        assert not unknown, unknown
        for name, values in known.items():
            if name not in table:
                table[name] = rng.choice(values, len(table))
        table.index = [f"generated_{i}" for i in range(len(table))]
        size = self.library if library_size is None else library_size
        return table.assign(library_size=size(table, rng) if callable(size) else size)

    def generate(self, conditions: Any, *, library_size: Any, n_steps: int, seed: int, silent: bool) -> AnnData:
        obs = self.draw_conditions(conditions, seed=seed).drop(columns="library_size")
        self.sizes.append(np.asarray(library_size))
        means = np.stack([self.shares[label] for label in obs["cell_type"]]) * self.sizes[-1][:, None]
        means = self.bent(means)
        counts = np.random.default_rng([seed, 1]).poisson(means).astype(np.int32)
        return AnnData(sparse.csr_matrix(counts), obs=obs, var=pd.DataFrame(index=self.genes))

    def bent(self, means: np.ndarray) -> np.ndarray:
        """Mean counts ``(cells, genes)``, here proportional to the library sizes."""
        return means
