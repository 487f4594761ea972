"""Results of the perturbation benchmark as a table: median over seeds, then mean over what was held out."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import pandas as pd


@dataclass(frozen=True)
class Score:
    """A column of the table. ``ideal`` is the best value; ``"limit"`` is what real cells score."""

    title: str
    ideal: float | Literal["limit"]


SCORES = {
    "rmse": Score("RMSE", 0.0),
    "rmse_responding": Score("RMSE, responding genes", 0.0),
    "pearson_delta": Score("Pearson of changes", 1.0),
    "weighted_mse": Score("weighted MSE", 0.0),
    "discrimination": Score("discrimination", 1.0),
    "de_overlap": Score("DE overlap", 1.0),
    "fold_change_spearman": Score("Spearman of fold changes", 1.0),
    "fold_change_slope": Score("slope of fold changes", 1.0),
    "response_spread": Score("spread of responses", 1.0),
    "non_responders_error": Score("error of non-responders", 0.0),
    "energy_distance": Score("energy distance", 0.0),
    "wasserstein": Score("W2", "limit"),
    "c2st_auc": Score("forest AUC", 0.5),
}
TASK_TITLES = {
    "kang": "interferon in a cell type that was never treated (Kang et al. 2018)",
    "kang-donors": "interferon in a donor whose treated cells were never seen (Kang et al. 2018)",
    "zhao": "panobinostat in the tumour of a donor that was never treated (Zhao et al. 2021)",
    "mcfaline": "knock-downs in a cell line, nearly without effect (McFaline-Figueroa et al. 2024)",
    "norman": "two genes activated at once (Norman et al. 2019)",
    "papalexi": "knock-outs of genes never knocked out, by features (Papalexi et al. 2021)",
    "papalexi-random": "knock-outs of genes never knocked out, by random features (Papalexi et al. 2021)",
    "papalexi-guides": "guides never used, of genes that others knock out (Papalexi et al. 2021)",
    "packer": "a window of time in an embryo (Packer et al. 2019)",
    "dose": "doses of simulated perturbations",
}
HELD_OUT = ("fold", "context", "perturbation", "dose")


def summary_of(rows: pd.DataFrame) -> pd.DataFrame:
    """Summarise scores: a row a prediction, and of doses one for each span of them.

    Parameters
    ----------
    rows
        A row a seed, prediction and held-out response.
    """
    metrics = [name for name in SCORES if name in rows and rows[name].notna().any()]
    by = [name for name in ("span", "prediction") if name in rows]
    held_out = [name for name in HELD_OUT if name in rows]
    of_seeds = rows.groupby([*by, *held_out], sort=False, dropna=False)[metrics].median()
    table = of_seeds.groupby(by, sort=False).mean()
    if "span" not in by:
        return table
    return pd.concat([table.xs(span, level="span", drop_level=False) for span in table.index.unique("span")])


def markdown(table: pd.DataFrame) -> str:
    """Write a summary as a table that GitHub and Sphinx draw."""
    rows = [[*table.index.names, *(SCORES[name].title for name in table)]]
    rows.append(["---"] * table.index.nlevels + ["---:"] * table.shape[1])
    for index, values in zip(table.index, table.to_numpy(), strict=True):
        names = index if isinstance(index, tuple) else (index,)
        rows.append([*map(str, names), *("" if pd.isna(value) else f"{value:.3g}" for value in values)])
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)
