"""Check that pages, notebooks and lists agree with one another and with the package: part of ``make lint``.

``python scripts/check_docs.py`` prints every fault with the way out, and fails if there is one.
"""

from __future__ import annotations

import ast
import json
import re
import runpy
import sys
import tomllib
from collections.abc import Callable, Iterator
from itertools import chain
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import yaml

ROOT = Path(__file__).parents[1]
LINK = re.compile(r"\[[^\]]*\]\(([^)#\s]+)[^)]*\)")
CITATION = re.compile(r":cite:\w+:`([^`]+)`")
NEEDED_IN_ENTRY = (
    "name description project_home documentation_home install primary_category tags license language contact category"
).split()


def pages(root: Path, *folders: str) -> list[Path]:
    """Pages at the top and in folders, without what Sphinx built of them."""
    found = [*root.glob("*.md"), *chain(*((root / folder).rglob("*.md") for folder in folders))]
    return [page for page in found if root / "docs/_build" not in page.parents]


def links(root: Path) -> Iterator[str]:
    """Files that a page points to are there; notebooks are copied to docs/tutorials when the pages are built."""
    for page in pages(root, "docs", "benchmarks"):
        text = re.sub(r"```.*?```|`[^`\n]*`", "", page.read_text(), flags=re.DOTALL)
        for target in LINK.findall(text):
            path = (page.parent / target).resolve()
            copied = root / "tutorials" / path.name if path.parent == root / "docs/tutorials" else path
            if not re.match(r"\w+:", target) and not path.exists() and not copied.exists():
                yield f"{page.relative_to(root)} points to {target}, which is not there. Give the path from the page."


def files_of_the_house(root: Path) -> Iterator[str]:
    """Files of the package that the developer guide names are there."""
    for page in (root / "docs/developer_guide").glob("*.md"):
        for name in dict.fromkeys(re.findall(r"`(?:src/scdiffgen/)?(\w+/\w+\.py)`", page.read_text())):
            if not (root / "src/scdiffgen" / name).exists() and not (root / name).exists():
                yield f"{page.relative_to(root)} names {name}, which is not there. Name the file as it is called now."


def names_of_the_house(root: Path) -> Iterator[str]:
    """Names that the developer guide gives with a file, "`name` in `folder/file.py`", are defined in that file."""
    for page in (root / "docs/developer_guide").glob("*.md"):
        for names, file in re.findall(r"((?:`\w+`(?:, | and )?)+) in `(\w+/\w+\.py)`", page.read_text()):
            path = root / "src/scdiffgen" / file
            text = path.read_text() if path.exists() else ""
            for name in re.findall(r"\w+", names.replace(" and ", " ")):
                if not re.search(rf"^ *(?:(?:class|def) {name}\b|(?:self\.)?{name}\b.*=)", text, flags=re.MULTILINE):
                    yield f"{page.relative_to(root)} says that {name} is in {file}, which lacks it. Correct it."


def citations(root: Path) -> Iterator[str]:
    """What a docstring cites is in the bibliography; building the pages does not see private modules."""
    known = set(re.findall(r"@\w+\{([^,\s]+),", (root / "docs/references.bib").read_text()))
    for path in sorted((root / "src").rglob("*.py")):
        cited = {key.strip() for keys in CITATION.findall(path.read_text()) for key in keys.split(",")}
        for key in sorted(cited - known):
            yield f"{path.relative_to(root)} cites {key}. Add it to docs/references.bib."


def pictures(root: Path) -> Iterator[str]:
    """Every function that draws has a picture in the API, and its call is the last line of what makes the picture."""
    calls = runpy.run_path(str(root / "docs/pictures/calls.py"))["CALLS"]
    public = set(public_names(root / "src/scdiffgen/pl/__init__.py"))
    for name in sorted(public - set(calls)):
        yield f"scdiffgen.pl.{name} has no picture. Add its call to docs/pictures/calls.py."
    for name in sorted(set(calls) - public):
        yield f"docs/pictures/calls.py draws {name}, which scdiffgen.pl does not have. Take it away or rename it."
    for name, call in calls.items():
        if not call.strip().splitlines()[-1].strip().startswith(f"scdiffgen.pl.{name}("):
            yield f"docs/pictures/calls.py: the last line of {name} has to call scdiffgen.pl.{name}."


def public_names(path: Path) -> list[str]:
    """The list ``__all__`` of a file that is not imported."""
    for statement in ast.parse(path.read_text()).body:
        if isinstance(statement, ast.Assign) and ast.unparse(statement.targets[0]) == "__all__":
            return ast.literal_eval(statement.value)
    raise ValueError(f"{path} has no list __all__.")


def api_page(root: Path) -> Iterator[str]:
    """The API page lists every public name under the name of its module."""
    sections = (root / "docs/api/index.md").read_text().split(".. automodule:: ")[1:]
    for section in sections:
        module, listed = section.split()[0], set(re.findall(r"^   (\w+)$", section, flags=re.MULTILINE))
        path = root / "src" / module.replace(".", "/")
        public = set(public_names(path / "__init__.py" if path.is_dir() else path.with_suffix(".py"))) - {"baselines"}
        for name in sorted(public - listed):
            yield f"docs/api/index.md does not list {module}.{name}. Add it to the section of {module}."


def tutorials(root: Path) -> Iterator[str]:
    """Tutorials are committed without outputs, and the documentation shows every one."""
    notebooks = sorted((root / "tutorials").glob("*.ipynb"))
    for notebook in notebooks:
        cells = [cell for cell in json.loads(notebook.read_text())["cells"] if cell["cell_type"] == "code"]
        if ran := [cell["id"] for cell in cells if cell["outputs"] or cell["execution_count"]]:
            yield f"tutorials/{notebook.name}: cells {ran} hold outputs. Clear them before you commit."
    index = (root / "docs/tutorials/index.md").read_text()
    shown = set(index.split("```{toctree}")[1].split("```")[0].split()[2:])
    for name in sorted(shown ^ {notebook.stem for notebook in notebooks}):
        missing = "docs/tutorials/index.md" if name not in shown else "tutorials/"
        yield f"The tutorial {name} is not in {missing}. Notebooks and the list in index.md have to be the same."


def extras(root: Path) -> Iterator[str]:
    """The installation page explains every extra, and no other."""
    explained = set(re.findall(r"^\| `(\w+)` \|", (root / "docs/installation.md").read_text(), flags=re.MULTILINE))
    for name in sorted(explained ^ set(project(root)["optional-dependencies"])):
        lacks = "pyproject.toml" if name in explained else "the table in docs/installation.md"
        yield f"The extra {name} is not in {lacks}. Page and pyproject.toml have to name the same."


def oldest_versions(root: Path) -> Iterator[str]:
    """The oldest versions that are tested name every dependency, and none is older than is allowed."""
    lines = (root / "constraints-oldest.txt").read_text().splitlines()
    oldest = dict(line.lower().split("==") for line in lines if "==" in line)
    required, optional = project(root)["dependencies"], project(root)["optional-dependencies"].values()
    for name in sorted({re.split(r"[>=\[]", line)[0].lower() for line in required} - set(oldest)):
        yield f"constraints-oldest.txt lacks {name}. Add the oldest version that pyproject.toml allows."
    for line in (line for line in chain(required, *optional) if ";" not in line):  # which is of a later Python
        name, _, least = line.lower().partition(">=")
        if name in oldest and version_parts(oldest[name]) < version_parts(least):
            yield f"constraints-oldest.txt has {name} {oldest[name]}, but pyproject.toml asks for {least}. Raise it."


def commands(root: Path) -> Iterator[str]:
    """Commands of make that a page tells of are in the Makefile."""
    targets = set(re.findall(r"^([a-z-]+):", (root / "Makefile").read_text(), flags=re.MULTILINE))
    for page in pages(root, "docs"):
        for name in re.findall(r"(?:`|^)make ([a-z-]+)", page.read_text(), flags=re.MULTILINE):
            if name not in targets:
                yield f"{page.relative_to(root)} tells of `make {name}`, which the Makefile does not have. Correct it."


def registry_entry(root: Path) -> Iterator[str]:
    """meta.yaml has what scverse's registry of packages asks for, and says what pyproject.toml says."""
    entry, declared = yaml.safe_load((root / "meta.yaml").read_text()), project(root)
    for key in NEEDED_IN_ENTRY:
        if not entry.get(key):
            yield f"meta.yaml has no {key}, which the registry asks for. Fill it in."
    if len(set(entry["tags"])) < len(entry["tags"]) or not all(isinstance(tag, str) for tag in entry["tags"]):
        yield f"meta.yaml: tags {entry['tags']} have to be distinct texts."
    for key in [*(key for key in entry if key.endswith("_home")), "inventory"]:
        address = urlsplit(entry.get(key) or "")
        if address.scheme != "https" or not address.netloc:
            yield f"meta.yaml: {key} is {entry.get(key)!r}. Give an address that begins with https://."
    said = {"name": entry["name"], "license": entry["license"]}
    for key, value in {**said, "install: pypi": entry["install"]["pypi"]}.items():
        if value != declared[key.replace("install: pypi", "name")]:
            yield f"meta.yaml: {key} is {value!r}, not what pyproject.toml says. Copy it from there."
    if entry["category"] != "ecosystem" or '".[test]"' not in entry["test_command"]:
        yield "meta.yaml: category has to be ecosystem, and test_command has to install the extra `.[test]`."


def citation(root: Path) -> Iterator[str]:
    """CITATION.cff and the README cite this version under one title and licence."""
    cited, declared = yaml.safe_load((root / "CITATION.cff").read_text()), project(root)
    readme = (root / "README.md").read_text()
    for key in ("version", "license"):
        if cited[key] != declared[key]:
            yield f"CITATION.cff: {key} is {cited[key]!r}; pyproject.toml says {declared[key]!r}. Make them the same."
    for key, value in (("version", declared["version"]), ("title", cited["title"])):
        if not re.search(rf"^ *{key} *= {{{re.escape(value)}}}", readme, flags=re.MULTILINE):
            yield f"README.md: the entry to cite has another {key} than {value!r}. Correct it there."


def measured_tables(root: Path) -> Iterator[str]:
    """The table of the README holds what was measured."""
    sys.path.insert(0, str(ROOT))
    from benchmarks.render import readme_table

    if readme_table(root / "benchmarks/results") not in (root / "README.md").read_text():
        yield "README.md: the table of results is not what was measured. Run `python -m benchmarks.render`."


def project(root: Path) -> dict[str, Any]:
    """What pyproject.toml says of the package."""
    return tomllib.loads((root / "pyproject.toml").read_text())["project"]


def version_parts(version: str) -> list[int]:
    return [int(part) for part in version.split(".")]


CHECKS: tuple[Callable[[Path], Iterator[str]], ...] = (
    files_of_the_house,
    names_of_the_house,
    links,
    citations,
    pictures,
    api_page,
    tutorials,
    extras,
    oldest_versions,
    commands,
    registry_entry,
    citation,
    measured_tables,
)


def main(root: Path = ROOT) -> None:
    faults = [fault for check in CHECKS for fault in check(root)]
    if faults:
        sys.exit("\n".join(faults))
    print(f"Documents: {len(CHECKS)} checks passed.")


if __name__ == "__main__":
    main()
