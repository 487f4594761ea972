"""Write what was measured into the pages of the documentation and the README, between marks, and draw the figures.

``python -m benchmarks.render``
"""

import argparse
import json
import shutil
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks._generation_table import process_table
from benchmarks._page import figure, measured_with, write_between_marks
from benchmarks._readme import results_table
from benchmarks._record import RESULTS, ROOT, distinct_environments, read_result
from benchmarks._sections import FIGURES, SECTIONS
from benchmarks._variants import Run
from benchmarks.studies import disclosure, gene_means, power, size

OTHER_PAGES = {  # than the one of benchmarks
    **{"processes": "processes.md", "networks": "processes.md"},
    "shards": "user_guide/large_data.md",
}
STUDIES: dict[str, Callable[[Sequence[Run]], str]] = {
    "study-gene-means": gene_means.table,
    "study-size": size.table,
    "study-disclosure": disclosure.table,
    "study-power": power.table,
}
NOTHING = "Not measured yet."


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.render", description=__doc__.splitlines()[0])
    parser.add_argument("--results", type=Path, default=RESULTS)
    parser.add_argument("--docs", type=Path, default=ROOT / "docs")
    parser.add_argument("--readme", type=Path, default=ROOT / "README.md")
    options = parser.parse_args(arguments)
    pages = render(options.results, options.docs)
    write_between_marks(options.readme, summaries(options.results))
    print(f"Written: {', '.join(map(str, [*pages, options.readme]))}")


def render(results: Path, docs: Path) -> list[Path]:
    """Write every result and study into its page, and a figure for each that has one.

    Pages that are not there are copied from those of the documentation.
    """
    parts: dict[str, dict[str, str]] = {page: {} for page in ("benchmarks.md", *OTHER_PAGES.values(), "studies.md")}
    found = {path.stem: read_result(path) for path in sorted(results.glob("*.json"))}
    for kind in SECTIONS:
        of_kind = {name: result for name, result in found.items() if result.get("benchmark") == kind}
        written = "\n\n".join(section(name, result, docs) for name, result in of_kind.items())
        parts[OTHER_PAGES.get(kind, "benchmarks.md")][kind] = written or NOTHING
    for name, table in STUDIES.items():
        path = results / f"{name}.jsonl"
        runs = [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
        made = distinct_environments((run["environment"], run["seed"]) for run in runs)
        written = [table(runs), *measured_with({"environments": made})] if runs else [NOTHING]
        parts["studies.md"][name] = "\n\n".join(written)
    generated = results_of(results, "generation")
    parts["processes.md"]["generated"] = process_table(generated) if generated else NOTHING
    (docs / "user_guide").mkdir(parents=True, exist_ok=True)
    for page, of_page in parts.items():
        if not (docs / page).exists():
            shutil.copy(ROOT / "docs" / page, docs / page)
        write_between_marks(docs / page, of_page)
    return [docs / page for page in parts]


def section(name: str, result: Mapping[str, Any], docs: Path) -> str:
    """Title, sizes, figure and tables of a result, and what it was measured with."""
    title, about, *tables = SECTIONS[result["benchmark"]](result)
    drawn = FIGURES.get(result["benchmark"])
    shown = [figure(drawn(result), name, docs)] if drawn else []
    return "\n\n".join([*([f"### {title}"] if title else []), about, *shown, *tables, *measured_with(result)])


def summaries(results: Path) -> dict[str, str]:
    """Table of the README by the name of its mark."""
    generation, published = (results_of(results, name) for name in ("generation", "published"))
    responses = [result for result in results_of(results, "perturbation") if result["task"] == "kang"]
    cells = results_of(results, "published-generation")
    if not (generation and published and responses and cells):
        return {"results": NOTHING}
    return {"results": results_table(generation, responses[0], published[::-1], cells[0])}


def results_of(results: Path, benchmark: str) -> list[dict[str, Any]]:
    """Results of a benchmark, in the order of their names."""
    found = [read_result(path) for path in sorted(results.glob("*.json"))]
    return [result for result in found if result.get("benchmark") == benchmark]


if __name__ == "__main__":
    main()
