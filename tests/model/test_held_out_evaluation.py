"""What a model says of itself: likelihood and scores by held-out cells, and remarks in words."""

import re
import warnings
from pathlib import Path
from unittest.mock import patch

import numpy as np
import pandas as pd
import pytest
from anndata import AnnData

from scdiffgen.metrics import Evaluation, FewCellsWarning
from scdiffgen.metrics._comparison import wrong_by_label
from scdiffgen.model import TokenDiffusion
from scdiffgen.model._held_out_evaluation import remarks_on

MANY = {"a": 300, "b": 20}
LIKE, CLEARLY = "like other real cells", "clearly unlike other real cells"


def tables(
    *,
    nats: float = 0.9,
    dispersed: float = 0.95,
    aucs: tuple[float, float, float] = (0.55, 0.5, 0.6),
    novelty: float = 1.0,
    ratios: tuple[float, float, float] = (0.9, 0.9, 0.9),
    share: float = 0.1,
    narrow: int = 0,
    means: tuple[float, float] = (3.0, -0.5),
    right: float = 0.9,
    wrong: int = 0,
) -> tuple[pd.DataFrame, Evaluation]:
    """Likelihood and scores of a model, over all and of the labels a and b; the forest on genes sees least."""
    groups = ["overall", "a", "b"]
    likelihood = pd.DataFrame({"model": nats, "multinomial": 1.0, "dirichlet_multinomial": dispersed}, index=groups)
    low = np.minimum(aucs, 0.5)
    scores = pd.DataFrame({"c2st_auc_forest_genes": low, "c2st_auc_forest_pcs": aucs, "novelty": novelty}, index=groups)
    real = pd.DataFrame({"c2st_auc_forest_genes": 0.5, "c2st_auc_forest_pcs": [0.51, 0.52, 0.53]}, index=groups)
    headers = {name: f"{name}, best at 0.5" for name in scores if name != "novelty"}
    scores = scores.assign(mean_distance=means[0], mean_distance_low=means[1])
    real = real.assign(mean_distance=0.2, mean_distance_high=1.0)
    words = np.select([np.isnan(aucs), np.array(aucs) > 0.7], ["undecided, too few cells", CLEARLY], LIKE)
    scores = scores.assign(**dict.fromkeys(headers.values(), words))
    headers["label_accuracy"] = "label_accuracy, best at that of other real cells"
    right_words = [LIKE, "unlike other real cells" if right < 0.9 else LIKE, LIKE]
    scores = scores.assign(label_accuracy=[0.9, right, 0.9], **{headers["label_accuracy"]: right_words})
    real = real.assign(label_accuracy=0.9)
    for name in set(headers) - {"label_accuracy"}:
        scores[f"{name}_low"], scores[f"{name}_high"] = scores[name] - 0.05, scores[name] + 0.05
    index = pd.MultiIndex.from_product([groups, ["PC1"]], names=["group", "component"])
    axes = pd.DataFrame({"ratio": ratios, "other_real": 1.0, "genes": "G1, G2, G3", "n": [320, 300, 20]}, index)
    axes = axes.assign(share=share, apart=axes["ratio"] < 0.8)
    rest = axes.rename(index={"PC1": "PC2"}).assign(ratio=1.0, share=0.9, apart=False)
    scores = pd.concat({"generated": scores, "other_real": real}, names=["source", "group"]).swaplevel()
    scores.attrs["verdict"] = headers
    more = [axes.rename(index={"PC1": f"PC{i + 3}"}).assign(share=0, apart=i < narrow) for i in range(18)]
    dispersion = pd.concat([axes, rest, *more])
    judged = {n: (np.repeat(["a", "b"], [300, 20]), np.arange(320) < k) for n, k in (("new", wrong), ("real", 3))}
    wrong_cells = wrong_by_label(judged["new"], judged["real"])
    return likelihood, Evaluation(scores, dispersion.assign(low=dispersion["ratio"]), wrong_cells=wrong_cells)


FOREST = r"{}: forest AUC .{} \(.{} to .{}; other real cells .{}\) on components, clearly unlike other real cells. "
LONGER, MORE = "Train longer, or with more cells.", "pass more as `adata`, or train with a larger `validation_size`."


@pytest.mark.parametrize(
    ("changes", "n_cells", "expected"),
    [
        ({}, MANY, ["Nothing stands out"]),
        ({"nats": 0.97}, MANY, [r"under the model \(0.970 .* under a dirichlet-multinomial .* \(0.950\)"]),
        ({"nats": 1.01, "dispersed": 1.1}, MANY, [r"under the model \(1.010 .* under a multinomial .* \(1.000\)"]),
        ({"aucs": (0.8, 0.5, 0.6)}, MANY, [f"{FOREST.format('overall', 80, 75, 85, 51)}{LONGER}$"]),
        ({"aucs": (0.6, 0.5, 0.9)}, MANY, [f"{FOREST.format('b', 90, 85, 95, 53)}Only 20 real cells: {MORE}"]),
        (
            {"ratios": (0.7, 0.5, 0.1)},
            MANY,
            [
                "^2 of 40 rows of `dispersion` differ from other real cells; a PC1 has 0.50 times the variance "
                r"\(G1, G2, G3\); overall PC1 has 0.70 times .*Do not interpret"
            ],
        ),
        (
            {"right": 0.8},
            MANY,
            ["another label more often .*: 20% of a. Try `process='gaussian'`, or .* as one label"],
        ),
        (
            {"right": 0.8, "wrong": 30},
            MANY,
            ["^Generated cells are clearly of another label more than 1.5 times as often as real cells: 10% of a. Try"],
        ),
        ({"wrong": 6}, MANY, ["Nothing stands out"]),
        ({"ratios": (0.7, 0.9, 0.1)}, MANY, ["Nothing stands out"]),  # of b there are 20 cells
        (
            {"aucs": (0.6, 0.5, np.nan)},
            MANY,
            ["Nothing stands out", "Undecided, because too few cells were held out: b. To decide, pass more"],
        ),
        ({"novelty": 0.5}, MANY, ["the model copies.*membership_inference"]),
        ({"means": (4.0, 2.0)}, MANY, [r"squared distance 4.0\) than means of other real cells \(0.2\)"]),
        (
            {"narrow": 8},
            MANY,
            [f"^{who}: .* less varied .*8 of 20 components vary too little" for who in ("overall", "a", "b")],
        ),
        ({}, {"a": 30, "b": 12}, ["Only 42 cells were held out, too few to .*: pass more as `adata`"]),
    ],
)
def test_what_stands_out_is_said(changes: dict, n_cells: dict[str, int], expected: list[str]) -> None:
    remarks = remarks_on(*tables(**changes), n_cells)
    assert len(remarks) == len(expected)
    for remark, message in zip(remarks, expected, strict=True):
        assert re.search(message, remark)


@pytest.mark.parametrize(
    ("given", "advice"),
    [
        ({}, "Train longer"),
        ({"n_steps": 8}, "Generate with more steps .`n_steps=32`"),
    ],
)
def test_advice_is_by_steps(given: dict[str, int], advice: str) -> None:
    (remark,) = remarks_on(*tables(aucs=(0.8, 0.5, 0.6)), MANY, **given)
    assert re.search(f"on components, {CLEARLY}. {advice}", remark)


def test_few_held_out_cells_are_a_remark_and_no_warning(small: TokenDiffusion, other_cells: AnnData) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error", FewCellsWarning)
        likelihood, scores, axes, remarks, _ = small.evaluate_held_out(other_cells, n_steps=4, silent=True)
    assert remarks[0].startswith("Only 40 cells were held out")
    nll = small.get_nll_bound(other_cells, seed=0, silent=True)["nll"]
    assert likelihood.loc["overall", "model"] == pytest.approx(nll.sum() / other_cells.X.sum())
    assert set(axes.index.unique("group")) == {"overall", "within", *other_cells.obs["cell_type"]}
    assert list(likelihood) == ["model", "multinomial", "dirichlet_multinomial"]
    assert set(scores.frame.index.unique("source")) == {"generated", "other_real"}
    assert scores.verdict.index.tolist() == ["overall", *sorted(set(other_cells.obs["cell_type"]))]
    assert scores.dispersion is axes and " AUC " in repr(scores)


@pytest.mark.parametrize("rows", [slice(None, None, -1), slice(0, 60)], ids=["another order", "fewer"])
def test_a_model_beside_other_cells_does_not_know_which_were_held_out(
    rows: slice, small: TokenDiffusion, other_cells: AnnData, tmp_path: Path
) -> None:
    small.save(tmp_path / "model")
    loaded = TokenDiffusion.load(tmp_path / "model", small.adata[rows].copy(), accelerator="cpu")
    for adata in (None, other_cells):
        with pytest.raises(ValueError, match="not its training cells in their order"):
            loaded.evaluate_held_out(adata)


def test_programs_are_scored_in_the_cells_that_everything_else_is(small: TokenDiffusion, other_cells: AnnData) -> None:
    names = small.adata.var_names
    programs = {"one": list(names[:4]), "other": list(names[3:9])}
    found = small.evaluate_held_out(other_cells, programs=programs, n_steps=4, silent=True)
    without = small.evaluate_held_out(other_cells, n_steps=4, silent=True)
    assert without.programs is None and "programs" not in repr(without)
    pd.testing.assert_frame_equal(found.scores.frame, without.scores.frame)
    assert set(found.programs.index.unique("program")) == {"one", "other", "one, other"}
    assert found.programs.index.unique("group").tolist() == found.dispersion.index.unique("group").tolist()
    assert "`programs`" in repr(found)
    with pytest.raises(ValueError, match=r"`programs\['one'\]` has no gene of the data: 'nothing'"):
        small.evaluate_held_out(other_cells, programs={"one": ["nothing"]}, silent=True)


def test_genes_are_named_by_a_column_of_the_model_s_cells(small: TokenDiffusion, other_cells: AnnData) -> None:
    symbols = [f"symbol of {name}" for name in small.adata.var_names]
    small.adata.var["symbol"] = symbols
    with patch("scdiffgen.metrics._comparison.HEADLINES", ["novelty", "mean_distance"]):
        found = small.evaluate_held_out(
            other_cells, programs={"one": symbols[:4]}, gene_symbols="symbol", n_steps=2, silent=True
        )
        plain = small.evaluate_held_out(other_cells, n_steps=2, silent=True)
    del small.adata.var["symbol"]
    expected = plain.dispersion["genes"].str.split(", ").map(lambda genes: [f"symbol of {gene}" for gene in genes])
    assert found.dispersion["genes"].str.split(", ").tolist() == expected.tolist()
    assert set(found.programs.index.unique("program")) == {"one"}
    with pytest.raises(ValueError, match="`gene_symbols` is 'names', which is no column of `adata.var`"):
        small.evaluate_held_out(other_cells, gene_symbols="names", silent=True)
