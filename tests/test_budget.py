"""The budget of the package: small files, each name once, a flat facade, few public names, long docstrings."""

import ast
import importlib
import inspect
import tomllib
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from textwrap import dedent

import pytest
import scvi
from scripts import count_lines

from scdiffgen import metrics
from scdiffgen.model import TokenDiffusion

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src/scdiffgen"
FILES = sorted(SOURCE.rglob("*.py"))
LINES = {path: len(path.read_text().splitlines()) for path in FILES}
PUBLIC = ("model", "responses", "metrics", "metrics.baselines", "tl", "pl", "datasets")
BESIDE = {("scdiffgen.train._plan", "TrainingPlanConfig")}  # what `train(plan_config=...)` takes

MOST_LINES_OF_A_FILE = 600
MOST_BASES, MOST_ARGUMENTS, MOST_METRICS, MOST_NAMES = 9, 10, 18, 75


def short(path: Path) -> str:
    return str(path.relative_to(SOURCE))


def test_no_file_is_long() -> None:
    long = {short(path): n for path, n in LINES.items() if n > MOST_LINES_OF_A_FILE}
    assert long == {}, "split these by what they are about"


def test_no_name_of_a_file_is_there_twice() -> None:
    names = Counter(path.name for path in FILES if path.name != "__init__.py")
    assert [name for name, n in names.items() if n > 1] == []


@pytest.mark.parametrize("kind", ["lines", "constants"])
def test_each_folder_keeps_to_its_budget(kind: str) -> None:
    budget = tomllib.loads((ROOT / "scripts/budget.toml").read_text())[kind]
    folders = count_lines.by_folder(ROOT)
    found = {name: counts[count_lines.COLUMNS.index(kind)] for name, counts in folders.items()}
    found["all"] = sum(found.values())
    if kind == "lines":
        found |= {name: count_lines.lines_of(ROOT / name) for name in ("tests", "benchmarks")}
    assert found.keys() == budget.keys()
    above = {name: n for name, n in found.items() if n > budget[name]}
    assert above == {}, "make room first, or raise the budget by a decision"


def test_constants_are_numbers_that_a_module_names() -> None:
    text = 'A, B = 1, "b"\nC: int = -2 * 3\nD = [1]\nE = True\nF: float\ndef g():\n    H = 1\n'
    assert count_lines.constants(ast.parse(text)) == 2


def test_the_model_has_few_bases() -> None:
    assert len(TokenDiffusion.__mro__) <= MOST_BASES, TokenDiffusion.__mro__


def test_the_model_has_few_arguments() -> None:
    arguments = [*inspect.signature(TokenDiffusion).parameters]
    assert len(arguments) <= MOST_ARGUMENTS, arguments


def test_there_are_few_metrics() -> None:
    assert len(metrics.__all__) <= MOST_METRICS, sorted(metrics.__all__)


def test_users_learn_few_names() -> None:
    packages = {name: importlib.import_module(f"scdiffgen.{name}") for name in PUBLIC}
    exported = [f"{name}.{each}" for name, package in packages.items() for each in package.__all__]
    names = [name for name in exported if name not in packages]  # `metrics.baselines` is a package
    of_scvi_tools = {*dir(scvi.model.SCVI), *dir(scvi.model.TOTALVI)}
    methods = [name for name in dir(TokenDiffusion) if name[0] != "_" and callable(getattr(TokenDiffusion, name))]
    names += [name for name in methods if name not in of_scvi_tools]
    assert len(names) <= MOST_NAMES, sorted(names)


# A mixin of the model calls no private method of another mixin.


def own_bases() -> list[type]:
    """Classes of the package that the model is made of."""
    return [base for base in TokenDiffusion.__mro__[1:] if base.__module__.startswith("scdiffgen.")]


def shared(bases: list[type]) -> set[str]:
    """What every class of the model may call: names of the base that all of them have, and of scvi-tools."""
    foreign = [base for base in TokenDiffusion.__mro__ if not base.__module__.startswith("scdiffgen.")]
    common = [base for base in bases if all(base in other.__mro__ for other in bases)]
    return {name for base in [*foreign, *common] for name in dir(base)}


def private_calls(class_: type) -> set[str]:
    """Names ``_name`` of all calls ``self._name(...)`` and ``cls._name(...)`` in the body of a class."""
    (tree,) = ast.parse(dedent(inspect.getsource(class_))).body
    called = [node.func for node in ast.walk(tree) if isinstance(node, ast.Call)]
    return {
        function.attr
        for function in called
        if isinstance(function, ast.Attribute)
        and isinstance(function.value, ast.Name)
        and function.value.id in ("self", "cls")
        and function.attr.startswith("_")
        and not function.attr.startswith("__")
    }


@pytest.mark.parametrize("class_", own_bases(), ids=lambda class_: class_.__name__)
def test_no_chapter_of_the_model_calls_a_private_method_of_another(class_: type) -> None:
    assert private_calls(class_) - set(vars(class_)) - shared(own_bases()) == set()


# Sections of parameters are for users.


def reachable() -> set[tuple[str, str]]:
    """Module and qualified name of all functions, classes and methods that users reach."""
    found = set()
    for name in PUBLIC:
        package = importlib.import_module(f"scdiffgen.{name}")
        for public in (getattr(package, name) for name in package.__all__):
            classes = inspect.getmro(public) if inspect.isclass(public) else ()
            found |= {
                (each.__module__, each.__qualname__) for each in (public, *classes) if hasattr(each, "__qualname__")
            }
            for each in classes:
                found |= {
                    (each.__module__, f"{each.__qualname__}.{member}") for member in vars(each) if member[0] != "_"
                }
    return BESIDE | {(module, name) for module, name in found if module.startswith("scdiffgen.")}


def documented(tree: ast.AST, inside: str = "") -> Iterator[str]:
    """Qualified names of what has a section Parameters in its docstring."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            name = f"{inside}{node.name}"
            if "Parameters\n------" in (ast.get_docstring(node) or ""):
                yield name
            yield from documented(node, f"{name}.")


def test_only_what_users_reach_has_a_section_of_parameters() -> None:
    public, found = reachable(), []
    for path in FILES:
        module = ".".join(["scdiffgen", *path.relative_to(SOURCE).with_suffix("").parts]).removesuffix(".__init__")
        found += [
            f"{short(path)}: {name}" for name in documented(ast.parse(path.read_text())) if (module, name) not in public
        ]
    assert found == [], f"{len(found)} docstrings: one line is enough for what users do not reach"
