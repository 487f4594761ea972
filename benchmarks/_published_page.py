"""The section of the page on the published benchmark of responses (Wei et al. 2025)."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from benchmarks._page import bullets, measured_with, section
from benchmarks._published_table import (
    LEFT_OUT,
    SHOWN,
    context_table,
    published_shortcomings,
    ran_everywhere,
    rank_table,
    rerun_table,
    score_table,
    with_rerun,
)

TITLES = {"types": "a cell type left out", "donors": "a donor left out"}
SAME_SCORES = """\
Cells, genes and scores are those of the benchmark, and the numbers of its 14 methods are its own. {n_values} scores of
the untreated cells were computed as well: those without optimal transport differ from the published ones by at most
{largest_difference:.1g}, those with it by {relative:.1g} of their size. For common DEGs, the share of the 100 genes
that respond most which are also predicted to, the benchmark publishes no code: it is our reading. The benchmark chooses
the 5,000 genes with the left-out cells among the others, and the genes of the shorter lists by the true response. Its
scores were known before our defaults were chosen: a place here is no blind test."""
PREDICTION = """\
`scdiffgen` is `predict_perturbation` by default, from all cells but the stimulated ones of the {one}: one cell for each
of its control cells, as counts of all {n_genes:,} genes, normalised over all of them. Transferred responses need no
network, so none was trained. Published methods were trained on the 5,000 genes alone."""
OF_DONORS = """\
`scdiffgen` was given the donors and no cell types, as the published methods were. With cell types given, which the
benchmark gives to none, a donor is predicted type by type."""
RERUN = """\
`{name}` was trained and asked here as the script of the benchmark does, on its cells, seed {seeds}
(`benchmarks/external`). What came out of it, what was published, and ours:"""
PLACES = """\
With what came out in place of the published numbers, which stand in all other tables, our places are:"""
READING = """\
Numbers are medians over seeds, then means over the {one}s. The benchmark takes the highest Pearson and common DEGs for
the best, and the lowest of all others. Two samples of the same cells are the ceiling, in the row of the real halves,
which are half as large. What is below them in symmetric KL or the regularised transport cost (W) is not nearer to real
cells, but varies less than they do; a symmetric KL of 40 and more says only that some gene does not vary on one side.
Controls with a change added are no cells: they have fractions and negative values. `controls` are the untreated cells,
as `baseControl`."""


def published_section(name: str, result: Mapping[str, Any], docs: Path) -> str:
    task, proof = result["task"], result["proof"]
    one = LEFT_OUT[task]
    relative = proof["largest_relative_difference_of_wasserstein"]
    return section(
        f"A published benchmark of responses: {TITLES[task]}",
        f"{{cite:t}}`wei2025scperturbench` (scPerturBench, `{result['data']['name']}`): interferon on blood cells of "
        f"Kang et al. (2018), {result['data']['n_cells']:,} cells, each {one} left out in turn.",
        PREDICTION.format(one=one, n_genes=result["data"]["n_genes"]),
        OF_DONORS if task == "donors" else "",
        SAME_SCORES.format(**proof, relative=relative),
        READING.format(one=one),
        *(score_table(result, n_genes) for n_genes in SHOWN),
        rank_table(result),
        context_table(result),
        *_rerun(result),
        bullets("Where it falls short", published_shortcomings(result)),
        measured_with(result),
    )


def _rerun(result: Mapping[str, Any]) -> list[str]:
    """What came out of methods that were run again."""
    parts = []
    for name in result.get("rerun", {}):
        seeds = sorted({str(row["seed"]) for row in result["rows"] if row["prediction"] == name})
        said = RERUN.format(name=name, seeds=", ".join(seeds))
        parts += [said, rerun_table(result, name)]
        if ran_everywhere(result, name):
            parts += [PLACES, rank_table(with_rerun(result, name))]
    return parts
