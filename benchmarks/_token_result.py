"""The comparison of read-outs as a result: parts put together, and as a table."""

from collections.abc import Mapping, Sequence
from itertools import combinations
from typing import Any

from benchmarks._data import Split, described
from benchmarks._parts import TokenPart
from benchmarks._record import distinct_environments
from benchmarks._tables import Column, score_table
from benchmarks._token_methods import BASELINES, VARIANTS
from benchmarks._token_scores import stability

QUALITY = ("mmd", "label_accuracy", "c2st_auc_forest_pcs")
DEFAULT, BY_READOUT = "default", "default, by read-out"


METRICS = {
    "nll": Column("nats per molecule", 0.0, 4),
    "mmd": Column("MMD² x 1000", 0.0, 2),
    "c2st_auc_forest_pcs": Column("forest AUC, PCs", 0.5, 3),
    "label_accuracy": Column("label accuracy", None, 3),
    "n_programs": Column("programs", None, 0),
    "enriched": Column("enriched", 1.0, 2),
    "enriched_null": Column("enriched, permuted", None, 2),
    "sparsity": Column("sparsity", 1.0, 2),
    "redundancy": Column("redundancy", 0.0, 2),
    "stability": Column("stability", 1.0, 2),
}


def gather(split: Split, parts: Sequence[TokenPart]) -> dict[str, Any]:
    """Put parts together: the scores of every method over its seeds; stability over all pairs of these."""
    rows = []
    for method in (DEFAULT, BY_READOUT, *(name for name in VARIANTS if name != DEFAULT), *BASELINES):
        runs = sorted((part for part in parts if part.method == method), key=lambda part: part.seed)
        if runs:
            scores = {key: [run.scores[key] for run in runs] for key in METRICS if key in runs[0].scores}
            pairs = combinations([run.loadings for run in runs], 2)
            scores["stability"] = [stability(pair) for pair in pairs]
            rows.append({"method": method, "kind": runs[0].kind, "seeds": [run.seed for run in runs], "scores": scores})
    return {
        "benchmark": "tokens",
        "data": described(split),
        "settings": {part.kind: dict(part.settings) for part in parts},
        "environments": distinct_environments((part.environment, part.seed) for part in parts),
        "rows": rows,
    }


def token_table(result: Mapping[str, Any]) -> str:
    """A row a method, a column a score: median over seeds (pairs of seeds for stability) and range."""
    rows = {}
    for row in result["rows"]:
        scores = {key: values for key, values in row["scores"].items() if values}
        thousandfold = {"mmd": [1e3 * value for value in scores["mmd"]]} if "mmd" in scores else {}
        rows[row["method"]] = {"seeds": [len(row["seeds"])], **scores, **thousandfold}
    rivals = rows.keys() - {DEFAULT, BY_READOUT}
    return score_table("read-out", {"seeds": Column("seeds", digits=0), **METRICS}, rows, DEFAULT, rivals)
