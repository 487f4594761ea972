"""Recipes for knock-downs, and with other packages where these are installed, run as they are written."""

import re
from pathlib import Path
from typing import Any

import pytest

PAGE = Path(__file__).parents[1] / "docs/user_guide/recipes.md"
OTHERS = "Score and analyse with other packages"
RESULTS = {"pydeseq2": "agreement", "pertpy": "genes", "cell_eval": "by_perturbation", "scperteval": "score"}


def blocks(heading: str) -> list[str]:
    """Code of a section, with the imports of the page, on fewer cells and with a short training."""
    code, text = re.compile(r"```python\n(.*?)```", flags=re.DOTALL), PAGE.read_text()
    first, *others = code.findall(text.partition(f"## {heading}\n")[2].partition("\n## ")[0])
    imports = code.search(text).group(1)
    first = first.replace("n_cells=3000", "n_cells=1000").replace("model.train()", "model.train(max_epochs=1)")
    return [imports + first, *others]


def test_a_recipe_predicts_partial_knock_downs() -> None:
    exec(blocks("Register CRISPRi, CRISPRa and partial knock-downs")[0], made := dict[str, Any]())
    assert made["change"].notna().all(axis=None)  # of an efficiency that was not measured


@pytest.fixture(scope="module")
def names() -> dict[str, Any]:
    """Real and generated cells of the recipes with other packages."""
    exec(blocks(OTHERS)[0], made := dict[str, Any]())
    return made


@pytest.mark.filterwarnings("ignore")  # of the other package
@pytest.mark.parametrize("package", RESULTS)
def test_a_recipe_runs_with_the_package(
    package: str, names: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip(package, reason=f"the recipe needs `pip install {package.replace('_', '-')}`")
    monkeypatch.chdir(tmp_path)  # where reports are written
    (code,) = (text for text in blocks(OTHERS)[1:] if re.search(rf"^(from|import) {package}\b", text, re.MULTILINE))
    exec(code, made := dict(names))
    assert made[RESULTS[package]] is not None
