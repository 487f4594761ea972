"""The page of the documentation with the tables of the studies whose runs are kept in the folder of results."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

from benchmarks._page import figure, measured_with, section
from benchmarks._variants import Run
from benchmarks.studies import (
    expression_embeddings,
    full_length,
    hierarchy,
    linear_start,
    own_counts,
    rare_labels,
    readout_units,
    regrown,
    score_by_time,
    sizes,
    text_conditions,
)

INTRODUCTION = """\
# Studies

This page is written by `python -m benchmarks.render` from the runs of `benchmarks/studies`. Each study trains forms of
the model on training cells of the [benchmarks](benchmarks.md), and scores them on cells that these do not report.
Numbers are medians over seeds, with the range. [Forms of the network](processes.md) are compared on another page.
"""


@dataclass(frozen=True)
class Study:
    """A title, what was done, the table of its runs, and perhaps a figure."""

    title: str
    about: str
    table: Callable[[Sequence[Run]], str]
    figure: Callable[[Sequence[Run]], Figure] | None = None


STUDIES = {
    "study-sizes": Study(
        "Sizes and numbers of cells",
        "How large a network do so many cells need? Each size is trained for the same number of steps, by "
        "default or fewer, and scored on other real cells, in 16 steps of generation.",
        sizes.table,
    ),
    "study-readout-units": Study(
        "Hidden units of the read-out",
        "Tokens contribute in proportion alone (0 units), also through hidden units of each, or by a perceptron on all "
        "of them, which has no loadings. Trained on three quarters of the training cells, scored on the rest.",
        readout_units.table,
    ),
    "study-own-counts": Study(
        "Own molecules of a gene",
        "How should the rate of a gene depend on how many of its molecules are there? By one weight (`urn`, the form "
        "of the package), by a dispersion of each gene as in a gamma-Poisson model, or also by how far they are beyond "
        "what is expected. Trained on three quarters of the training cells, scored on the rest.",
        own_counts.table,
    ),
    "study-full-length": Study(
        "Reads in place of molecules",
        "Full-length protocols count reads: here every molecule of real cells is amplified into 30 on average. Trained "
        "on three quarters of the training cells, scored on the rest; *limited* says whether priors are, as of deep "
        "modalities. *Divided*: reads over the median of their cell, rounded up.",
        full_length.table,
    ),
    "study-regrown": Study(
        "Cells drawn again around a part of them",
        "Where on the way do generated cells go wrong? Half of the cells held out from training keep a share of their "
        "molecules, the model draws the others, and a forest tells them from the other half. *Generated* cells lose "
        "all but a share, and have it drawn again, once or three times.",
        regrown.table,
    ),
    "study-score-by-time": Study(
        "Scores by time of training",
        "How good are generated cells after so much training? Every point is a training of its own length, with its "
        "own schedule, scored on the held-out cells: 16 steps of generation here, a mixture for each label in scVI.",
        score_by_time.table,
        score_by_time.curves,
    ),
    "study-expression-embeddings": Study(
        "Embeddings of the counts of genes",
        "The encoder reads the logarithm of counts (`log1p`), or learned functions of an embedding of them. *All but "
        "3, 6, 7*: genes with so many molecules were hidden from the encoder in training, and are seen when it is "
        "scored; *counts hidden* is its likelihood with them hidden again.",
        expression_embeddings.table,
    ),
    "study-hierarchy": Study(
        "Hierarchies of labels",
        "Types and their clusters as one path, as plain labels or as two categories, trained on all cells, or with "
        "some leaves cut to ten cells, whose cut cells are the judge of what is generated. *Leaf* and *parent* say at "
        "which level cells are asked for; of plain labels, the parent is a mixture of its leaves.",
        hierarchy.table,
    ),
    "study-text-conditions": Study(
        "Descriptions in words",
        "Labels are given as descriptions in training, one or three a label, and cells are generated from the words "
        "of training, a paraphrase, or markers. *Recognised* is the share of generated cells that a logistic "
        "regression of real cells takes for their label. Descriptions are embedded by the sentence encoder of the "
        "package, or by hashed words or parts of words.",
        text_conditions.table,
    ),
    "study-rare-labels": Study(
        "Labels of few cells",
        "Do they come out as themselves? Shares of cells that a logistic regression of other cells takes for their "
        "label, by the number of training cells of the label, of 700 in all; without the offsets of rare labels, "
        "with weight decay on embeddings, and with neither of the two.",
        rare_labels.table,
    ),
    "study-linear-start": Study(
        "What start, weight decay and restored weights contribute",
        "Trained on three quarters of the training cells without each of them, scored on the rest.",
        linear_start.tables,
    ),
}


def render_studies(results: Path, docs: Path) -> Path:
    """Write the page."""
    parts = []
    for name, study in STUDIES.items():
        path = results / f"{name}.jsonl"
        if path.exists():
            runs = [json.loads(line) for line in path.read_text().splitlines()]
            drawn = [figure(study.figure(runs), name, docs)] if study.figure else []
            parts.append(section(study.title, study.about, *drawn, study.table(runs), *made_with(runs)))
    page = docs / "studies.md"
    page.write_text(INTRODUCTION + "".join(parts))
    return page


def made_with(runs: Sequence[Mapping[str, Any]]) -> list[str]:
    """A line for each command and commit, with its seeds."""
    found: dict[tuple[str, str], dict[str, Any]] = {}
    for run in runs:
        of_run = run["environment"]
        kept = found.setdefault((of_run["commit"], of_run["command"]), {**of_run, "seeds": []})
        kept["seeds"] = sorted({*kept["seeds"], run["seed"]})
    return [measured_with({"environment": environment}) for environment in found.values()]
