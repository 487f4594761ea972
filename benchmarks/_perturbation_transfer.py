"""How much of the response of other contexts a prediction transfers: 1 is all of it, 0 nothing."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd
import scanpy as sc
from anndata import AnnData
from numpy.typing import NDArray
from scipy.stats import t

from benchmarks._external import LOGGED
from benchmarks._perturbation_data import CONTEXT, CONTROL, RESPONSE, Fold
from benchmarks._perturbation_models import start_cells
from benchmarks._perturbation_table import primary

TRANSFERRED = "transferred"


def transferred_shares(
    fold: Fold, predictions: Mapping[str, AnnData | None], max_cells: int, seed: int
) -> pd.DataFrame:
    """Slope, through 0, of the predicted change on the mean change in the other contexts, of each target.

    The predicted change is that from the very cells that predictions start from, so that a cell that is left as it was
    adds no noise.
    """
    means, obs, rows = _Means(fold.train), fold.train.obs, []
    for target in fold.targets:
        elsewhere = obs.loc[(obs[RESPONSE] == target.response), CONTEXT].unique()
        if not len(elsewhere):
            continue
        before = means.of(start_cells(fold, target, max_cells, seed))
        known = np.mean([means.change(target.response, context) for context in elsewhere], axis=0)
        for name, cells in predictions.items():
            if cells is not None and LOGGED not in cells.uns:
                own = (cells.obs[RESPONSE] == target.response) & (cells.obs[CONTEXT] == target.context)
                change = _Means(cells).of(np.flatnonzero(own)) - before
                key = {"context": target.context, "perturbation": target.response, "prediction": name}
                rows.append({**key, TRANSFERRED: float(change @ known / (known @ known))})
    return pd.DataFrame(rows, columns=["context", "perturbation", "prediction", TRANSFERRED])


def transferred_by_default(result: Mapping[str, Any]) -> str:
    """Mean share that the default transfers, with a 95 % interval over what was held out; empty if not measured."""
    rows = pd.DataFrame(result["rows"])
    if TRANSFERRED not in rows or rows[TRANSFERRED].isna().all():
        return ""
    ours = rows[rows["prediction"] == primary(result)]
    shares = ours.groupby(["context", "perturbation"])[TRANSFERRED].median().dropna()
    half = t.ppf(0.975, len(shares) - 1) * shares.sem()
    low, high = shares.mean() - half, shares.mean() + half
    return f"Transferred: {shares.mean():.2f} ({low:.2f} to {high:.2f}, {len(shares)} held-out responses)."


class _Means:
    """Mean log expression of cells."""

    def __init__(self, cells: AnnData) -> None:
        expression = AnnData(cells.X.astype(np.float32), obs=cells.obs[[RESPONSE, CONTEXT]])
        sc.pp.normalize_total(expression, target_sum=1e4)
        sc.pp.log1p(expression)
        self.obs, self.expression = expression.obs, expression.X

    def of(self, rows: NDArray[np.intp]) -> NDArray[np.float64]:
        return np.asarray(self.expression[rows].mean(0), dtype=np.float64).ravel()

    def change(self, response: str, context: str) -> NDArray[np.float64]:
        """Change of the mean of a context."""
        here = self.obs[CONTEXT] == context
        treated, control = (np.flatnonzero(here & (self.obs[RESPONSE] == name)) for name in (response, CONTROL))
        return self.of(treated) - self.of(control)
