"""Results of the perturbation benchmark as a table: median over seeds, then mean over what was held out."""

from __future__ import annotations

import pandas as pd

TITLES = {
    "rmse": "RMSE",
    "rmse_responding": "RMSE, responding genes",
    "pearson_delta": "Pearson of changes",
    "weighted_mse": "weighted MSE",
    "discrimination": "discrimination",
    "de_overlap": "DE overlap",
    "fold_change_spearman": "Spearman of fold changes",
    "fold_change_slope": "slope of fold changes",
    "energy_distance": "energy distance",
    "wasserstein": "W2",
    "c2st_auc": "forest AUC",
}
HELD_OUT = ("fold", "context", "perturbation", "dose")


def summary_of(rows: pd.DataFrame) -> pd.DataFrame:
    """Summarise scores: a row a prediction, and of doses one for each span of them.

    Parameters
    ----------
    rows
        A row a seed, prediction and held-out response.
    """
    metrics = [name for name in TITLES if name in rows and rows[name].notna().any()]
    by = [name for name in ("span", "prediction") if name in rows]
    held_out = [name for name in HELD_OUT if name in rows]
    of_seeds = rows.groupby([*by, *held_out], sort=False, dropna=False)[metrics].median()
    return of_seeds.groupby(by, sort=False).mean()


def markdown(table: pd.DataFrame) -> str:
    """Write a summary as a table that GitHub and Sphinx draw."""
    rows = [[*table.index.names, *(TITLES[name] for name in table)]]
    rows.append(["---"] * table.index.nlevels + ["---:"] * table.shape[1])
    for index, values in zip(table.index, table.to_numpy(), strict=True):
        names = index if isinstance(index, tuple) else (index,)
        rows.append([*map(str, names), *("" if pd.isna(value) else f"{value:.3g}" for value in values)])
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)
