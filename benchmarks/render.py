"""Write results into benchmarks/pages, docs/benchmarks.md and the README, between marks, and draw the figures.

``python -m benchmarks.render``
"""

import json
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import Any

import pandas as pd

from benchmarks._generation_table import process_table
from benchmarks._page import folded, measured_with, save_figure, shown, write_between_marks
from benchmarks._physics_figure import physics_figure
from benchmarks._record import RESULTS, ROOT, distinct_environments, read_result
from benchmarks._sections import SECTIONS, lines_of, title
from benchmarks._summary import summary_figure, summary_table
from benchmarks.studies import disclosure, interventions, power

PHYSICS = ("mixtures", "molecules", "depth", "batches", "integration", "tokens", "programs")
PAGES = {  # in benchmarks/pages, and the benchmarks that each shows; most have a summary in docs/benchmarks.md
    "generation.md": ("generation", "augmentation"),
    "published_generators.md": ("published-generation", "published-cfgen"),
    "responses.md": ("perturbation",),
    "published_responses.md": ("published", "published-iid"),
    "tokens.md": ("tokens",),
    "physics.md": tuple(f"physics-{task}" for task in PHYSICS),
    "modalities.md": ("multimodal", "chromatin", "peaks"),
    "speed.md": ("speed", "soak", "shards"),
    "processes.md": ("processes", "networks"),
}
STUDIES = {"study-disclosure": disclosure, "study-interventions": interventions, "study-power": power}
SUMMARY, FOLDER, NOTHING = "docs/benchmarks.md", "benchmarks/pages", "Not measured yet."


def main(results: Path = RESULTS) -> None:
    pages = render(results, ROOT)
    write_between_marks(ROOT / "README.md", {"results": readme_table(results)})
    print(f"Written: {', '.join(map(str, [*pages.values(), ROOT / 'README.md']))}")


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
    if {"physics-molecules", "physics-depth"} <= found.keys():
        drawn = physics_figure(found["physics-molecules"], found["physics-depth"])
        save_figure(drawn, figures / "physics.png")
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
    """Table of the README, with a row for each measured row of ``readme_rows.csv``: the last line with the score."""
    found, rows = results_of(results), []
    for row in pd.read_csv(ROOT / "benchmarks/readme_rows.csv").itertuples():
        if row.result in found:
            *_, line = (line for line in lines_of(found[row.result]) if line.score == row.score)
            rows.append(replace(line, data=row.task, score=row.label))
    return summary_table(rows, "task", ("ours", "other", "simple", "limit")) if rows else NOTHING


def results_of(results: Path) -> dict[str, dict[str, Any]]:
    """Results of benchmarks, in the order of their names."""
    found = {path.stem: read_result(path) for path in sorted(results.glob("*.json"))}
    return {name: result for name, result in found.items() if "benchmark" in result}


if __name__ == "__main__":
    main()
