"""Sections of the page of results on chromatin."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from benchmarks._chromatin_scores import FEWEST_CELLS, FEWEST_OPEN, imputation_shortcomings, imputed_table
from benchmarks._page import bullets, measured_with, section
from benchmarks._tables import generation_table, peaks_table
from benchmarks._verdicts import generation_shortcomings


def chromatin_section(name: str, result: Mapping[str, Any], docs: Path) -> str:
    data = result["data"]
    trained = "; ".join(
        f"{row['method']} for {row['epochs']} epochs, {row['epochs'] / row['default_epochs']:.0%} of its default, in "
        f"{row['seconds'] / 60:.1f} minutes (seed {row['seed']})"
        for row in result["training"]
    )
    return section(
        f"RNA and chromatin: {data['description']}",
        f"{data['n_train']:,} training cells with both, {data['n_without_atac']:,} of which models see the RNA alone, "
        f"{data['n_without_rna']:,} the peaks alone, {data['n_held_out']:,} held-out cells; {data['n_genes']:,} genes, "
        f"{data['n_peaks']:,} peaks; labels are given to all but the regressions. Trained: {trained}. Fewer "
        "epochs than the default show what a method does in that time, not what it can do.",
        "Peaks are compared in components 2 to 31 of TF-IDF (LSI). *Peaks of other cells of the label* is real RNA "
        "beside real peaks of another cell: what it loses is the relation of both within a label. *MULTIVI, posterior "
        "of real cells* draws new counts for given cells.",
        generation_table(result),
        "Imputed values are compared with what was measured in the same cells. The AUC over peaks ranks all pairs of a "
        f"cell and a peak by the mean imputed profile of the label; labels of {FEWEST_CELLS} cells and more, peaks "
        f"open in {FEWEST_OPEN} and more. Differences from all cells are of square roots of shares. MULTIVI and the "
        "profiles of training cells have totals that follow the depth of what is given.",
        imputed_table(result),
        bullets("Where it falls short", [*generation_shortcomings(result), *imputation_shortcomings(result)]),
        measured_with(result),
    )


def peaks_section(name: str, result: Mapping[str, Any], docs: Path) -> str:
    data = result["data"]
    return section(
        "Many peaks",
        f"{data['n_cells']:,} simulated cells, {data['batch_size']} a step, one modality, the default network; seconds "
        f"of processor time, the median of {data['n_steps']} steps; each row in a process of its own.",
        peaks_table(result),
        measured_with(result),
    )
