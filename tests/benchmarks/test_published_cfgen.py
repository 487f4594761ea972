"""CFGen's table of generators: cells for its scorer, and what is read of its scores."""

from pathlib import Path

import anndata
import numpy as np
import pandas as pd
import pytest
from anndata import AnnData
from benchmarks import published_cfgen
from benchmarks._data import FOLDER, LABEL, PBMC3K
from benchmarks._record import read_result
from benchmarks.published_cfgen import SCORES, TEST_CELLS, labelled_cells, main, split_of, write_cells


@pytest.fixture
def cells() -> AnnData:
    labels = np.repeat([*TEST_CELLS], [2 * n + 1 for n in TEST_CELLS.values()])
    counts = np.random.default_rng(0).poisson(2.0, size=(len(labels), 12)).astype(np.float32)
    return AnnData(counts, obs=pd.DataFrame({LABEL: pd.Categorical(labels)}, map(str, range(len(labels)))))


def test_a_split_holds_out_as_many_cells_of_each_label_as_cfgen(cells: AnnData) -> None:
    split = split_of(cells, seed=0)
    assert split.held_out.obs[LABEL].value_counts().to_dict() == TEST_CELLS
    assert {*split.train.obs_names, *split.held_out.obs_names} == {*cells.obs_names}
    assert split.train.n_obs + split.held_out.n_obs == cells.n_obs
    assert set(split_of(cells, seed=1).held_out.obs_names) != set(split.held_out.obs_names)


@pytest.mark.skipif(not (FOLDER / PBMC3K).exists(), reason="the data are not there")
def test_cells_genes_and_labels_are_as_many_as_cfgen_reports() -> None:
    split = split_of(labelled_cells(), seed=0)
    assert split.train.shape == (2110, 8573)
    assert split.held_out.n_obs == 528
    assert split.train.obs[LABEL].value_counts()["CD4 T"] == 697 + 483 - 217


def test_cells_are_written_with_the_labels_of_the_test_cells(
    cells: AnnData, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(published_cfgen, "fit_scdiffgen", lambda split, max_epochs: None)
    monkeypatch.setattr(published_cfgen, "scdiffgen_methods", lambda model, steps: [])
    split = split_of(cells, seed=3)
    write_cells(split, tmp_path, max_epochs=1)
    written = {path.stem: anndata.read_h5ad(path) for path in (tmp_path / "generated").iterdir()}
    assert "linear Gaussian copula, no network" in written
    assert all((found.obs[LABEL] == split.held_out.obs[LABEL]).all() for found in written.values())
    copies = {*map(tuple, written["training cells"].X.toarray())}
    assert copies <= {*map(tuple, split.train.X)}
    assert pd.read_csv(tmp_path / "labels.csv", index_col=0)["n_cells"].to_dict() == TEST_CELLS


def test_scores_are_means_over_labels_with_two_test_cells(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for commit, shift in {"e347d1a": 0.0, "dbedd23": 20.0}.items():
        rows = [
            {"method": method, "seed": seed, "ct": label, **dict.fromkeys(SCORES.values(), seed + shift + n)}
            for method in ("training cells", published_cfgen.OURS)
            for seed in (0, 1)
            for label, n in {"B": 3.0, "NK": 5.0, "Platelet": 1000.0}.items()
        ]
        pd.DataFrame(rows).to_csv(tmp_path / f"scores-{commit}.csv", index=False)
    main(["--cells", str(tmp_path), "--scores", "--seeds", "0", "1", "--output", str(tmp_path)])
    rows = read_result(tmp_path / "published-cfgen-pbmc3k.json")["rows"]
    assert {row["label"] for row in rows} == {"B", "NK"}
    printed = capsys.readouterr().out
    assert "| training cells | 4.500 (4.000 to 5.000) | 4.50 (4.00 to 5.00) | 24.500 (24.000 to 25.000) |" in printed
    assert "| CFGen, published | 0.450" in printed
    assert f"| {published_cfgen.OURS} | 3.50 | 5.50 |" in printed
