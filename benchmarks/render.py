"""Write results into benchmarks/pages, docs/benchmarks.md and the README, between marks, and draw the figures.

``python -m benchmarks.render``
"""

import argparse
import json
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import Any

from benchmarks._generation_table import process_table
from benchmarks._page import folded, measured_with, save_figure, shown, write_between_marks
from benchmarks._record import RESULTS, ROOT, distinct_environments, read_result
from benchmarks._sections import SECTIONS, lines_of, title
from benchmarks._summary import summary_figure, summary_table
from benchmarks.studies import disclosure, interventions, power

PAGES = {  # in benchmarks/pages, and the benchmarks that each shows; most have a summary in docs/benchmarks.md
    "generation.md": ("generation", "augmentation"),
    "published_generators.md": ("published-generation", "published-cfgen"),
    "responses.md": ("perturbation",),
    "published_responses.md": ("published", "published-iid"),
    "tokens.md": ("tokens",),
    "physics.md": tuple(f"physics-{task}" for task in ("mixtures", "molecules", "depth", "batches", "tokens")),
    "modalities.md": ("multimodal", "chromatin", "peaks"),
    "speed.md": ("speed", "soak", "shards"),
    "processes.md": ("processes", "networks"),
}
IN_README = (  # task, name of the score, result, and score in its summary; a row appears once it is measured
    ("Generate cells (Kang 2018)", "AUC of a random forest", "generation-kang", "forest AUC, PCs"),
    ("Deepen cells (RNA mixtures)", "AUC of a random forest", "physics-depth", "3.75 pg deepened: forest AUC, PCs"),
    ("Predict treated cells of half-measured donors", "energy score", "published-kang-donors-iid", "energy score"),
    ("Predict the response of a new cell type", "energy distance", "published-kang-types", "energy distance"),
    ("Denoise", "nats per unseen molecule", "physics-molecules", "nats per unseen molecule"),
    ("Impute proteins from RNA", "Pearson correlation", "multimodal-pbmc10k", "Pearson of imputed protein"),
    ("Find gene programs (Paul 2015)", "correlation between trainings", "tokens-paul15", "stability"),
    ("Generate on one CPU thread", "cells per second", "speed-kang", "cells/s"),
)
STUDIES = {"study-disclosure": disclosure, "study-interventions": interventions, "study-power": power}
SUMMARY, FOLDER, NOTHING = "docs/benchmarks.md", "benchmarks/pages", "Not measured yet."


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.render", description=__doc__.splitlines()[0])
    parser.add_argument("--results", type=Path, default=RESULTS)
    parser.add_argument("--root", type=Path, default=ROOT, help="folder of README.md, docs and benchmarks")
    options = parser.parse_args(arguments)
    pages = render(options.results, options.root)
    write_between_marks(options.root / "README.md", {"results": readme_table(options.results)})
    print(f"Written: {', '.join(map(str, [*pages.values(), options.root / 'README.md']))}")


def render(results: Path, root: Path) -> dict[str, Path]:
    """Write every result and study into its page, figures, and the summary; the paths of the pages by file name.

    Pages that are not there are copied from this repository.
    """
    parts: dict[str, dict[str, str]] = {SUMMARY: {}, f"{FOLDER}/studies.md": {}}
    lines, found, figures = {}, results_of(results), root / FOLDER / "figures"
    for page, kinds in PAGES.items():
        of_page = {kind: {name: of for name, of in found.items() if of["benchmark"] == kind} for kind in kinds}
        written = {kind: "\n\n".join(section(*item, figures) for item in of.items()) for kind, of in of_page.items()}
        parts[f"{FOLDER}/{page}"] = {kind: text or NOTHING for kind, text in written.items()}
        lines[page] = [line for of in of_page.values() for result in of.values() for line in lines_of(result)]
        if f"<!-- summary of {page}," in (ROOT / SUMMARY).read_text():
            parts[SUMMARY][f"summary of {page}"] = summary_table(lines[page]) if lines[page] else NOTHING
    save_figure(summary_figure(chain(*lines.values())), figures / "summary.png")
    for name, study in STUDIES.items():
        path = results / f"{name}.jsonl"
        runs = [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
        made = distinct_environments((run["environment"], run["seed"]) for run in runs)
        text = with_source([study.table(runs)], {"environments": made}) if runs else NOTHING
        parts[f"{FOLDER}/studies.md"][name] = text
    generated = [of for of in found.values() if of["benchmark"] == "generation"]
    parts[f"{FOLDER}/processes.md"]["generated"] = shown(process_table(generated)) if generated else NOTHING
    for page, of_page in parts.items():
        if not (root / page).exists():
            (root / page).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / page, root / page)
        write_between_marks(root / page, of_page)
    return {Path(page).name: root / page for page in parts}


def section(name: str, result: Mapping[str, Any], figures: Path) -> str:
    """Title, sizes, summary, figure and tables of a result, and what it was measured with."""
    heading, lines = title(result), lines_of(result)
    about, *tables = SECTIONS[result["benchmark"]].parts(result)
    drawn = SECTIONS[result["benchmark"]].figure
    shows = heading and f"### {heading}", about, lines and summary_table(lines)
    image = drawn and f"![{name}](figures/{save_figure(drawn(result), figures / f'{name}.png').name})"
    return "\n\n".join([*filter(None, (*shows, image)), with_source(tables, result)])


def with_source(tables: Sequence[str], result: Mapping[str, Any]) -> str:
    """Tables, and folded below them the commits and commands that they come from."""
    source = folded("Commit, command and versions", "\n\n".join(measured_with(result)))
    return "\n\n".join([*filter(None, map(shown, "\n\n".join(tables).split("\n\n"))), source])


def readme_table(results: Path) -> str:
    """Table of the README: one row a task; the last score of a result that has the title."""
    found, rows = results_of(results), []
    for task, score, name, of_line in IN_README:
        if name in found:
            *_, line = (line for line in lines_of(found[name]) if line.score == of_line)
            rows.append(replace(line, data=task, score=score))
    return summary_table(rows, "task", ("ours", "other", "simple", "limit")) if rows else NOTHING


def results_of(results: Path) -> dict[str, dict[str, Any]]:
    """Results of benchmarks, in the order of their names."""
    found = {path.stem: read_result(path) for path in sorted(results.glob("*.json"))}
    return {name: result for name, result in found.items() if "benchmark" in result}


if __name__ == "__main__":
    main()
