"""The published table of generators: its scores, and a run."""

from itertools import islice
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from anndata import AnnData
from benchmarks import published_generation
from benchmarks._data import FOLDER, LABEL, PBMC3K, Split
from benchmarks._record import read_result
from scipy import sparse
from scipy.spatial.distance import cdist
from sklearn.decomposition import PCA


def cells(n: int, seed: int) -> AnnData:
    counts = np.random.default_rng(seed).poisson(
        np.linspace(0.1, 2.0, published_generation.N_GENES + 1), size=(n, 2001)
    )
    return AnnData(
        sparse.csr_matrix(counts.astype(np.float32)), obs=pd.DataFrame({LABEL: ["a"] * n}, map(str, range(n)))
    )


def test_scores_are_those_of_numpy() -> None:
    train, real, generated = cells(80, 0), cells(60, 1), cells(60, 2)
    scored = published_generation.Scorer(Split("", 0, train, real, real[:0])).score(generated.X)

    def expression(adata: AnnData) -> np.ndarray:
        return np.log1p(1e4 * adata.X.toarray() / adata.X.sum(1).A1[:, None])[:, :2000]

    mean, scale = expression(train).mean(0), expression(train).std(0)
    pca = PCA(50, random_state=0).fit((expression(train) - mean) / scale)
    x, y = (pca.transform((expression(side) - mean) / scale) for side in (real, generated))
    assert scored["WD"] == pytest.approx(np.abs(np.sort(x, 0) - np.sort(y, 0)).mean(), rel=1e-3)
    kernels = [
        [np.exp(-g * cdist(a, b) ** 2).mean() for g in (2, 1, 0.5, 0.1, 0.01, 0.005)]
        for a, b in ((x, x), (y, y), (x, y))
    ]
    assert scored["MMD"] == pytest.approx(np.mean(kernels[0]) + np.mean(kernels[1]) - 2 * np.mean(kernels[2]), rel=1e-3)
    difference = pd.DataFrame(x).corr().to_numpy() - pd.DataFrame(y).corr().to_numpy()
    assert scored["CD"] == pytest.approx(np.abs(difference).mean(), rel=1e-3)


@pytest.mark.skipif(
    not all((FOLDER / name).exists() for name in (PBMC3K, published_generation.TABLE)), reason="the data are not there"
)
def test_a_short_run_has_the_published_rows_beside_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("skmisc")
    fitted = published_generation.methods
    monkeypatch.setattr(published_generation, "methods", lambda *given: islice(fitted(*given), 2))  # nothing is trained
    published_generation.main(["--quick", "--threads", "1", "--output", str(tmp_path)])
    result = read_result(tmp_path / "published-generation-pbmc3k.json")
    ceiling = result["rows"][0]
    assert ceiling["method"] == "training cells"
    assert ceiling["CD"] == pytest.approx(result["published"]["training cells against test cells"]["CD"], abs=0.01)
    assert "| MOE-FB, published | 0.405" in capsys.readouterr().out


def test_methods_draw_cells_of_the_asked_labels() -> None:
    split = Split("", 0, cells(80, 0), cells(20, 1), cells(1, 2)[:0])
    drawn = {method.name: method.sample(split.labels, 0) for method in published_generation.methods(split, 1)}
    assert list(drawn) == [
        published_generation.LIMIT,
        "as many training cells",
        "linear Gaussian copula, no network",
        published_generation.OURS,
        "scdiffgen, gaussian, 32 steps",
    ]
    for name, counts in drawn.items():
        assert counts.shape == (80 if name == published_generation.LIMIT else 20, 2001)
        assert counts.mean() == pytest.approx(split.train.X.mean(), rel=0.05), name
