"""Results of `benchmarks.physics` as tables and as lines of the summary."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import pandas as pd

from benchmarks._physics_data import LINES
from benchmarks._physics_depth import COPULA, OTHER
from benchmarks._physics_methods import SMOOTHING
from benchmarks._summary import Line
from benchmarks._tables import Column, markdown, score_table, summary
from benchmarks.physics import EXPECTED, OURS, PLANTED_ACTIVITY, PUBLISHED, WITH_LABELS

Result = Mapping[str, Any]
Values = dict[str, dict[str, list[float]]]  # by method and column, over seeds
SILHOUETTE = {
    "silhouette_mean": Column("silhouette", 1.0),
    "wanted_variation_corr": Column("wanted", 1.0),
    "unwanted_variation_corr": Column("unwanted", 0.0),
}
DEPTH = {
    "auc_pcs": Column("forest AUC, PCs"),
    "auc_genes": Column("forest AUC, genes"),
    "zeros": Column("share of zeros"),
    "detection": Column("detection gap", None, 4),
    "dispersion": Column("dispersion"),
}
QUESTIONS = {
    "dilution": "**Is dilution binomial thinning?** Wells of 30 pg thinned to the depth of wells of 3.75 pg.",
    "deepened": "**Wells of 3.75 pg deepened to the depth of measured wells of 30 pg.**",
    "thinned": "**Thinned wells of 30 pg deepened to their own depth.**",
    "spikes": "**Spike-ins by concentration**, in thirds, in all wells of 30 pg and of 3.75 pg.",
}
SPIKE_INS = {
    "molecules": Column("molecules", None, 2),
    "zeros": Column("share of zeros"),
    "poisson": Column("share of zeros, Poisson"),
}
NULL = {
    "changed": Column("molecules changed", None, ".1%"),
    "neighbours": Column("neighbours kept", None, ".1%"),
    "rank": Column("rank of the former self", None, 0),
    "ari": Column("ARI of clusters"),
    "de_genes": Column("false DE genes", None, 0),
    "left": Column("planted log2 change", None, 2),
}
INTEGRATED = {
    "silhouette_dr": Column("silhouette of mixtures", 1.0),
    "silhouette_dr_batch": Column("silhouette of protocols", 0.0),
}
BLIND_INTEGRATIONS = ("Seurat", "MNN", "Scanorama", "scMerge", "ZINB-WaVE")  # published, without the mixtures
RECOVERY = {"activity": "Spearman correlation with the activity", "genes": "AUC of the program's genes"}
KINDS = {
    **dict.fromkeys((OURS, EXPECTED), "ours"),
    **dict.fromkeys(("SAVER", "DrImpute", "ALRA", "MAGIC", "scVI"), "other"),
    **dict.fromkeys((*BLIND_INTEGRATIONS, "Harmony", "scVI, expected expression"), "other"),
    **{f"{name} after {of}": "other" for name in BLIND_INTEGRATIONS for of in ("SAVER", "DrImpute", "kNN-smoothing")},
    **dict.fromkeys(("kNN-smoothing", SMOOTHING, COPULA, "mean of the label"), "simple"),
    **dict.fromkeys(("no imputation", "no integration", "mean of all cells", "scaled up"), "null"),
    **dict.fromkeys(("own shares", "mean of all wells"), "simple"),
    **dict.fromkeys(("cNMF", "LDVAE", "DRVI"), "other"),
    **dict.fromkeys(("PCA", "NMF"), "simple"),
    **dict.fromkeys((OTHER, PLANTED_ACTIVITY), "limit"),
}


def seeds_of(result: Result) -> str:
    """Seeds of the rows of each data set; other methods than ours may have fewer."""
    seeds = pd.DataFrame(result["rows"]).groupby("data", sort=False)["seed"].unique()
    shown = {data: listed(sorted(found)) for data, found in seeds.items()}
    if len({*shown.values()}) == 1:
        return f"Seeds: {next(iter(shown.values()))}."
    return f"Seeds by data: {'; '.join(f'{data} {found}' for data, found in shown.items())}."


def listed(numbers: Sequence[int]) -> str:
    """Write ascending numbers out, or as a range if they are many in a row."""
    if len(numbers) > 5 and numbers[-1] - numbers[0] == len(numbers) - 1:
        return f"{numbers[0]} to {numbers[-1]}"
    return ", ".join(map(str, numbers))


def mixtures_values(result: Result) -> Values:
    """Scores by method, normalisation and protocol, and the seconds of the CEL-seq2 wells."""
    values: Values = {}
    for row in result["rows"]:
        is_published = row["part"] == PUBLISHED
        name = f"{row['imputation']}, best (published)" if is_published else f"{row['part']}, {row['normalisation']}"
        of = values.setdefault(name, {})
        for key in SILHOUETTE:
            of.setdefault(f"{key} {row['data']}", []).append(row[key])
        seconds = row["published_seconds"] if is_published else row["seconds"]
        if row["data"] == "CEL-seq2" and seconds:
            of.setdefault("seconds", []).append(seconds)
    return values


def mixtures(result: Result) -> Iterator[str]:
    yield seeds_of(result)
    columns = {
        f"{key} {protocol}": Column(f"{protocol}: {column.title}", column.ideal)
        for protocol in dict.fromkeys(row["data"] for row in result["rows"])
        for key, column in SILHOUETTE.items()
    }
    values = mixtures_values(result)
    rivals = [name for name in values if not name.startswith(OURS)]
    yield score_table("method", columns | {"seconds": Column("seconds", None, 0)}, values, f"{OURS}, DESeq2", rivals)


def mixtures_lines(result: Result) -> Iterator[Line]:
    """One line: the silhouette with the best normalisation of each method, mean over protocols."""
    best = best_silhouettes(mixtures_values(result))
    sets = " and ".join(dict.fromkeys(row["data"] for row in result["rows"]))
    yield mean_line(f"mixed RNA, {sets}", "silhouette of mixtures", 1.0, best)


def best_silhouettes(values: Values) -> dict[tuple[str, str], float]:
    """Medians by method and silhouette, of the best normalisation, which is the end of a name."""
    best: dict[tuple[str, str], float] = {}
    for name, of in values.items():
        for key in (key for key in of if key.startswith("silhouette")):
            method = name.rpartition(",")[0], key
            best[method] = max(pd.Series(of[key]).median(), best.get(method, -1.0))
    return best


def mean_line(data: str, score: str, ideal: float, medians: Mapping[tuple[str, str], float]) -> Line:
    """Means over sets of data, from values by method and set; of the methods that have all sets."""
    table = pd.Series(medians).unstack()
    return Line(data, score, ideal, {name: [of.mean()] for name, of in table.dropna().iterrows()}, KINDS)


def by_method(result: Result, score: str) -> pd.DataFrame:
    """Values of a score by set and seed, a column a method."""
    table = pd.DataFrame(result["rows"]).pivot_table(score, ["data", "seed"], "part", sort=False)
    return table[[name for name in dict.fromkeys((OURS, WITH_LABELS, *KINDS)) if name in table]]


def wide_table(title: str, table: pd.DataFrame, best: Callable[[list[str]], str]) -> str:
    """Table of a score with a row a set and a column a method; the best is bold, unless it is the ceiling."""
    rows = []
    for data, of in table.groupby("data", sort=False):
        cells = {name: summary(of[name], 3) for name in table}
        top = best([cell for name, cell in cells.items() if cell != "-" and KINDS.get(name) != "limit"])
        rows.append([data, *(f"**{cell}**" if cell == top else cell for cell in cells.values())])
    return markdown([title, *table], rows)


def molecules(result: Result) -> Iterator[str]:
    yield seeds_of(result)
    yield wide_table("nats per unseen molecule", by_method(result, "nats"), min)


def molecules_lines(result: Result) -> Iterator[Line]:
    """One line: the mean over sets."""
    medians = by_method(result, "nats").groupby("data").median()
    title = f"unseen molecules, {len(medians)} sets"
    yield mean_line(title, "nats per unseen molecule", 0.0, medians.T.stack().to_dict())


def depth_values(result: Result, question: str, data: str) -> Values:
    """Scores by method."""
    rows = pd.DataFrame(result["rows"])
    table = rows[(rows["question"] == question) & (rows["data"] == data)].groupby("method", sort=False)
    return {name: scores_of(of, [*DEPTH, *SPIKE_INS]) for name, of in table}


def scores_of(rows: pd.DataFrame, keys: Iterable[str]) -> dict[str, list[float]]:
    """Values of the scores that the rows have."""
    return {key: rows[key].dropna().tolist() for key in keys if key in rows and rows[key].notna().any()}


def depth(result: Result) -> Iterator[str]:
    yield seeds_of(result)
    protocols = list(dict.fromkeys(row["data"] for row in result["rows"]))
    for question, text in QUESTIONS.items():
        rows = {
            f"{protocol}: {name}": of
            for protocol in protocols
            for name, of in depth_values(result, question, protocol).items()
        }
        yield text
        yield score_table("wells", SPIKE_INS if question == "spikes" else DEPTH, rows)


def depth_lines(result: Result) -> Iterator[Line]:
    """Forest AUCs of thinned wells that are deepened, means over protocols."""
    rows = pd.DataFrame(result["rows"]).query("question == 'thinned'")
    for key in ("auc_pcs", "auc_genes") if len(rows) else ():
        medians = (0.5 + (rows.groupby(["method", "data"])[key].median() - 0.5).abs()).dropna().to_dict()
        title = f"thinned wells deepened, {' and '.join(rows['data'].unique())}"
        yield mean_line(title, DEPTH[key].title, 0.5, medians)


def batches(result: Result) -> Iterator[str]:
    yield seeds_of(result)
    table = pd.DataFrame(result["rows"]).groupby("method", sort=False)
    yield score_table("cells of one pseudo-batch", NULL, {name: scores_of(of, NULL) for name, of in table})


def integration_values(result: Result) -> Values:
    """Scores by method and normalisation; published ones have the best normalisation."""
    values: Values = {}
    for row in result["rows"]:
        of = "best (published)" if row["part"] == PUBLISHED else row["normalisation"]
        of = values.setdefault(f"{row['method']}, {of}".removesuffix(", "), {})
        for key in INTEGRATED:
            of.setdefault(key, []).append(row[key])
    return values


def integration(result: Result) -> Iterator[str]:
    yield seeds_of(result)
    values = integration_values(result)
    rivals = [name for name in values if not name.startswith(OURS)]
    yield score_table("method", INTEGRATED, values, f"{EXPECTED}, logCPM", rivals)


def integration_lines(result: Result) -> Iterator[Line]:
    """One line: the silhouette of mixtures with the best normalisation of each method."""
    best = {key: of for key, of in best_silhouettes(integration_values(result)).items() if key[1] == "silhouette_dr"}
    yield mean_line("mixed RNA, two protocols in one", "silhouette of mixtures", 1.0, best)


def tokens(result: Result) -> Iterator[str]:
    yield seeds_of(result)
    rows: Values = {}
    for row in result["rows"]:
        of = rows.setdefault(f"{row['data']}: {'tokens' if row['part'] == OURS else row['part']}", {})
        for key in LINES:
            of.setdefault(key, []).append(row[key])
        of.setdefault("stability", []).extend(row["stability"])
    rows = {name: {key: values for key, values in of.items() if values} for name, of in rows.items()}
    yield score_table("programs", {key: Column(key, 1.0, 2) for key in (*LINES, "stability")}, rows)


def programs(result: Result) -> Iterator[str]:
    yield seeds_of(result)
    for score, title in RECOVERY.items():
        yield wide_table(title, by_method(result, score), max)


def programs_lines(result: Result) -> Iterator[Line]:
    """Recovery of activity and genes, means over sets."""
    for score, title in RECOVERY.items():
        medians = by_method(result, score).groupby("data").median()
        sets = f"programs, {len(medians)} sets" if len(medians) > 1 else medians.index[0]
        yield mean_line(f"planted {sets}", title, 1.0, medians.T.stack().to_dict())
