"""Tables of generated cells: scores of every method, likelihoods, and in how many scores a program wins."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from benchmarks._tables import Column, Values, distances, markdown, score_table

OURS = "scdiffgen, 16 steps"  # the default up to 2,500 molecules per cell, which all data of the table have
PRIORS = ("scVI, Gaussian of the label", "scVI, Gaussian mixture of the label")
PRIOR_METRIC = "auc_forest_genes"  # lower is better
PROCESS_ROWS = (
    *("other real cells", OURS, "scdiffgen, gaussian, 16 steps", "scdiffgen, gaussian, 32 steps"),
    *("scdiffgen, DDPM, 1000 steps", "scdiffgen, latent, 32 steps", "linear Gaussian copula, no network"),
    *("scVI, Gaussian of the label", "CFGen, full length", "scDiffusion"),
)
PROCESS_SCORES = (
    *("auc_forest_pcs", "auc_forest_genes", "auc_logistic_genes"),
    *("label_accuracy", "label_fold_change_slope", "least_variance_ratio", "recall"),
)
Scores = dict[str, Mapping[str, Values]]  # by method and metric


def generation_table(result: Mapping[str, Any]) -> str:
    """A row a method and a column a metric, with the wins of each program; or a table for each kind of metric."""
    scores, won = best_prior(scores_by_method(result)), wins(result)
    limit = next(iter(methods_of_kind(result, "limit")), None)
    counted = {"wins": Column("wins", digits=0), "seeds": Column("seeds", digits=0)}
    tables = []
    for kind in dict.fromkeys(metric.get("table") for metric in result["metrics"].values()):
        metrics = {key: of for key, of in result["metrics"].items() if of.get("table") == kind}
        columns = {key: Column(of["title"], of["ideal"], of["n_digits"]) for key, of in metrics.items()}
        rows: Scores = {}
        for name, values in scores.items():
            n_seeds = len(values[next(iter(metrics))])
            rows[name] = {
                **values,
                "seeds": [n_seeds],
                **({"wins": [len(won[name] & {*metrics})]} if name in won else {}),
            }
        rivals = methods_of_kind(result, "other", "resampled", "null")
        tables.append(score_table("", columns | counted, rows, primary(result), rivals, limit))
    return "\n\n".join(tables)


def likelihood_table(result: Mapping[str, Any]) -> str:
    """Held-out nats per molecule."""
    names = [name for name in result["likelihood"][0] if name != "seed"]
    rows = {name: {"nats": [record[name] for record in result["likelihood"]]} for name in names}
    return score_table("", {"nats": Column("nats per molecule", 0.0, 4)}, rows, names[0])


def process_table(results: Sequence[Mapping[str, Any]]) -> str:
    """A row for each data set and process or simulator: a few scores, medians over seeds."""
    rows, metrics = [], results[0]["metrics"]
    keys = [key for key in PROCESS_SCORES if key in metrics]
    for result in results:
        scores = scores_by_method(result)
        for method in (name for name in PROCESS_ROWS if name in scores):
            found = [f"{np.nanmedian(scores[method][key]):.3f}" for key in keys]
            n_seeds = str(len(next(iter(scores[method].values()))))
            rows.append([result["data"].get("name", ""), method, *found, n_seeds])
    return markdown(["data", "", *(metrics[key]["title"] for key in keys), "seeds"], rows)


def wins(result: Mapping[str, Any]) -> dict[str, set[str]]:
    """Metrics in which no other program is nearer to the best value, medians, of each program that generates cells."""
    scores, limit = scores_by_method(result), next(iter(methods_of_kind(result, "limit")), None)
    won: dict[str, set[str]] = {name: set() for name in (primary(result), *methods_of_kind(result, "other"))}
    for key, metric in result["metrics"].items():
        real = scores[limit][key] if limit else ()
        away = {name: float(np.median(distances(scores[name][key], metric["ideal"], real))) for name in won}
        for name in won:
            if away[name] == min(away.values()) < np.inf:
                won[name].add(key)
    return won


def best_prior(scores: Scores) -> Scores:
    """Scores without the priors of scVI that do worse than another by their median, in its favour on held-out cells."""
    there = [name for name in PRIORS if name in scores and PRIOR_METRIC in scores[name]]
    best = min(there, key=lambda name: np.nanmedian(scores[name][PRIOR_METRIC]), default=None)
    return {name: values for name, values in scores.items() if name not in there or name == best}


def scores_by_method(result: Mapping[str, Any]) -> Scores:
    """Scores over seeds of every metric of every method, in the order of the result."""
    scores: dict[str, dict[str, list[float]]] = {}
    for row in result["rows"]:
        of_method = scores.setdefault(row["method"], {key: [] for key in result["metrics"]})
        for key in result["metrics"]:
            of_method[key].append(np.nan if row["scores"].get(key) is None else row["scores"][key])
    return {**scores}


def methods_of_kind(result: Mapping[str, Any], *kinds: str) -> list[str]:
    """Names of the methods of some kinds, in the order of the result."""
    return list(dict.fromkeys(row["method"] for row in result["rows"] if row["kind"] in kinds))


def primary(result: Mapping[str, Any]) -> str:
    """The method that stands for the package: its default, or what was run with the most steps."""
    ours = methods_of_kind(result, "ours")
    return OURS if OURS in ours else ours[-1]
