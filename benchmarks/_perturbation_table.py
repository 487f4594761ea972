"""Results of the perturbation benchmark as a table: median over seeds, then mean over what was held out."""

from collections.abc import Mapping
from typing import Any, Literal

import pandas as pd

from benchmarks._tables import Column, score_table

SCORES = {
    "rmse": Column("RMSE", 0.0, ".3g"),
    "rmse_responding": Column("RMSE, responding genes", 0.0, ".3g"),
    "pearson_delta": Column("Pearson of changes", 1.0, ".3g"),
    "weighted_mse": Column("weighted MSE", 0.0, ".3g"),
    "discrimination": Column("discrimination", 1.0, ".3g"),
    "de_overlap": Column("DE overlap", 1.0, ".3g"),
    "fold_change_spearman": Column("Spearman of fold changes", 1.0, ".3g"),
    "fold_change_slope": Column("slope of fold changes", 1.0, ".3g"),
    "response_spread": Column("spread of responses", 1.0, ".3g"),
    "non_responders_error": Column("error of non-responders", 0.0, ".3g"),
    "energy_distance": Column("energy distance", 0.0, ".3g"),
    "wasserstein": Column("W2", "limit", ".3g"),
    "c2st_auc": Column("forest AUC", 0.5, ".3g"),
}
TASK_TITLES = {
    "kang": "Interferon in a new cell type (Kang et al. 2018)",
    "kang-donors": "Interferon in a new donor (Kang et al. 2018)",
    "zhao": "Panobinostat in the tumour of a new donor (Zhao et al. 2021)",
    "mcfaline": "Knock-downs nearly without effect in a new cell line (McFaline-Figueroa et al. 2024)",
    "norman": "A new pair of activated genes (Norman et al. 2019)",
    "papalexi": "A new knock-out, by features of genes (Papalexi et al. 2021)",
    "papalexi-guides": "A new guide of a known knock-out (Papalexi et al. 2021)",
    "kang-programs": "Other programs: interferon in a new cell type (Kang et al. 2018), changes as measured",
    "zhao-programs": "Other programs: panobinostat in a new tumour (Zhao et al. 2021), changes as measured",
    "packer": "A window of time in an embryo (Packer et al. 2019)",
    "dose": "Doses of simulated perturbations",
}
HELD_OUT = ("fold", "context", "perturbation", "dose")
LIMITS = ("real_half", "real cells")
DEFAULTS = ("scdiffgen: coupled", "sinusoidal: generate", "sinusoidal: transferred")  # of the package, by task
TRAINED = ("latent_scvi",)  # models of others
Kind = Literal["ours", "limit", "other", "null"]


def summary_of(rows: pd.DataFrame) -> pd.DataFrame:
    """Summarise scores, a row a seed, prediction and held-out response: a row a prediction, and a span of doses."""
    metrics = [name for name in SCORES if name in rows and rows[name].notna().any()]
    by = [name for name in ("span", "prediction") if name in rows]
    held_out = [name for name in HELD_OUT if name in rows]
    of_seeds = rows.groupby([*by, *held_out], sort=False, dropna=False)[metrics].median()
    table = of_seeds.groupby(by, sort=False).mean()
    if "span" not in by:
        return table
    return pd.concat([table.xs(span, level="span", drop_level=False) for span in table.index.unique("span")])


def response_table(table: pd.DataFrame, result: Mapping[str, Any] | None = None) -> str:
    """Write a summary, a table for each span of doses; marks compare with the default of the package in a result."""
    if "span" in table.index.names:
        spans = table.index.unique("span")
        return "\n\n".join(_score_table(span, table.xs(span, level="span"), result) for span in spans)
    return _score_table("prediction", table, result)


def _score_table(heading: str, table: pd.DataFrame, result: Mapping[str, Any] | None) -> str:
    rows = {name: {score: [values[score]] for score in table} for name, values in table.iterrows()}
    columns = {name: SCORES[name] for name in table}
    if result is None:
        return score_table(heading, columns, rows)
    kinds = kinds_of(result)
    rivals = [name for name, kind in kinds.items() if kind in ("other", "null")]
    limit = next((name for name in LIMITS if name in rows), None)
    return score_table(heading, columns, rows, primary(result), rivals, limit)


def kinds_of(result: Mapping[str, Any]) -> dict[str, Kind]:
    """Kind of every prediction: the package, real cells, other programs, or what needs none."""
    settings, kinds = result["settings"], dict[str, Kind]()
    others = {*TRAINED, *settings.get("external", [])}
    for name in dict.fromkeys(row["prediction"] for row in result["rows"]):
        ours = name.partition(":")[0] in {DEFAULTS[0].partition(":")[0], *settings["models"]}
        kinds[name] = "ours" if ours else "limit" if name in LIMITS else "other" if name in others else "null"
    return kinds


def primary(result: Mapping[str, Any]) -> str:
    """The prediction that stands for the package: its default, or the first of it that was run."""
    ours = [name for name, kind in kinds_of(result).items() if kind == "ours"]
    return next((name for name in DEFAULTS if name in ours), ours[0])
