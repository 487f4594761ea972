"""Write what was measured into the pages of the documentation and the README, between marks, and draw the figures.

``python -m benchmarks.render``
"""

import argparse
import json
import re
import shutil
from collections.abc import Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import Any

from benchmarks._generation_table import process_table
from benchmarks._page import figure, folded, measured_with, shown, write_between_marks
from benchmarks._record import RESULTS, ROOT, distinct_environments, read_result
from benchmarks._sections import SECTIONS, lines_of, title
from benchmarks._summary import summary_figure, summary_table
from benchmarks.studies import disclosure, interventions, power

PAGES = {  # and the benchmarks that each shows; the first ones have a summary
    "benchmarks/generation.md": ("generation", "augmentation"),
    "benchmarks/published_generators.md": ("published-generation", "published-cfgen"),
    "benchmarks/responses.md": ("perturbation",),
    "benchmarks/published_responses.md": ("published", "published-iid"),
    "benchmarks/tokens.md": ("tokens",),
    "benchmarks/physics.md": tuple(
        f"physics-{task}" for task in ("mixtures", "molecules", "depth", "batches", "tokens")
    ),
    "benchmarks/modalities.md": ("multimodal", "chromatin", "peaks"),
    "benchmarks/speed.md": ("speed", "soak"),
    "processes.md": ("processes", "networks"),
    "user_guide/large_data.md": ("shards",),
}
IN_README = re.compile(
    r"generation-(kang|paul15|pbmc3k|pbmc68k)|perturbation-kang|physics-(mixtures|molecules|depth)|published-(?!cfgen).*(?<!iid)"
)
STUDIES = {"study-disclosure": disclosure, "study-interventions": interventions, "study-power": power}
SUMMARY, NOTHING = "benchmarks.md", "Not measured yet."


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.render", description=__doc__.splitlines()[0])
    parser.add_argument("--results", type=Path, default=RESULTS)
    parser.add_argument("--docs", type=Path, default=ROOT / "docs")
    parser.add_argument("--readme", type=Path, default=ROOT / "README.md")
    options = parser.parse_args(arguments)
    pages = render(options.results, options.docs)
    write_between_marks(options.readme, {"results": readme_table(options.results)})
    print(f"Written: {', '.join(map(str, [*pages.values(), options.readme]))}")


def render(results: Path, docs: Path) -> dict[str, Path]:
    """Write every result and study into its page, figures, and the summary; the paths of the pages by name.

    Pages that are not there are copied from those of the documentation.
    """
    parts: dict[str, dict[str, str]] = {SUMMARY: {}, "studies.md": {}}
    lines, found = {}, results_of(results)
    for page, kinds in PAGES.items():
        of_page = {kind: {name: of for name, of in found.items() if of["benchmark"] == kind} for kind in kinds}
        written = {kind: "\n\n".join(section(*item, docs) for item in of.items()) for kind, of in of_page.items()}
        parts[page] = {kind: text or NOTHING for kind, text in written.items()}
        lines[page] = [line for of in of_page.values() for result in of.values() for line in lines_of(result)]
        if page.startswith("benchmarks/"):
            parts[SUMMARY][f"summary of {page}"] = summary_table(lines[page]) if lines[page] else NOTHING
    parts[SUMMARY]["figure"] = figure(summary_figure(chain(*lines.values())), "summary", docs)
    for name, study in STUDIES.items():
        path = results / f"{name}.jsonl"
        runs = [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
        made = distinct_environments((run["environment"], run["seed"]) for run in runs)
        parts["studies.md"][name] = with_source([study.table(runs)], {"environments": made}) if runs else NOTHING
    generated = [of for of in found.values() if of["benchmark"] == "generation"]
    parts["processes.md"]["generated"] = shown(process_table(generated)) if generated else NOTHING
    for page, of_page in parts.items():
        if not (docs / page).exists():
            (docs / page).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / "docs" / page, docs / page)
        write_between_marks(docs / page, of_page)
    return {page: docs / page for page in parts}


def section(name: str, result: Mapping[str, Any], docs: Path) -> str:
    """Title, sizes, summary, figure and tables of a result, and what it was measured with."""
    kind, heading, lines = result["benchmark"], title(result), lines_of(result)
    about, *tables = SECTIONS[kind].parts(result)
    up = next("../" * page.count("/") for page, kinds in PAGES.items() if kind in kinds)
    drawn = SECTIONS[kind].figure
    shows = heading and f"### {heading}", about, lines and summary_table(lines)
    figures = [figure(drawn(result), name, docs, up)] if drawn else []
    return "\n\n".join([*filter(None, shows), *figures, with_source(tables, result)])


def with_source(tables: Sequence[str], result: Mapping[str, Any]) -> str:
    """Tables, and folded below them the commits and commands that they come from."""
    source = folded("Commit, command and versions", "\n\n".join(measured_with(result)))
    return "\n\n".join([*filter(None, map(shown, "\n\n".join(tables).split("\n\n"))), source])


def readme_table(results: Path) -> str:
    """Table of the README."""
    found = [of for name, of in results_of(results).items() if IN_README.fullmatch(name)]
    return summary_table([line for result in found for line in lines_of(result)]) if found else NOTHING


def results_of(results: Path) -> dict[str, dict[str, Any]]:
    """Results of benchmarks, in the order of their names."""
    found = {path.stem: read_result(path) for path in sorted(results.glob("*.json"))}
    return {name: result for name, result in found.items() if "benchmark" in result}


if __name__ == "__main__":
    main()
