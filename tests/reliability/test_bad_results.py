"""Cells that cannot be judged, and tokens that cannot be drawn."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from anndata import AnnData, concat
from bad_input import Bad, at, check, ids, nothing
from fingerprint import fingerprint
from mudata import MuData

from scdiffgen import datasets, metrics, pl, tl


def judge(spoil: Callable[[AnnData], Any] = nothing, **options: Any) -> Callable[[AnnData], None]:
    """Compare with spoilt cells in place of generated ones."""

    def act(cells: AnnData) -> None:
        other = cells.copy()
        made = spoil(other)
        given = other if made is None else made
        before = fingerprint(cells), fingerprint(given)
        try:
            metrics.evaluate(cells, given, **{"n_bootstrap": 0, "metrics": ["mmd"], **options})
        finally:
            assert (fingerprint(cells), fingerprint(given)) == before

    return act


def report(**options: Any) -> Callable[[AnnData], Any]:
    given = {"perturbation_key": "guide", "control_label": "ctrl", "metrics": "pearson_delta", "n_pcs": 2, **options}
    return lambda c: metrics.perturbation_report(c, {}, c, c, **given)


def with_tokens(cells: AnnData, *, both: bool = False) -> AnnData:
    """The same cells with two tokens, of which the second is called a programme, or both are."""
    cells = cells.copy()
    cells.varm["token_loadings"] = np.eye(cells.n_vars)[:, :2]
    cells.obsm["X_token_activation"] = np.eye(cells.n_obs)[:, :2]
    cells.uns["scdiffgen"] = {"tokens": ["token_1", "token_2"]}
    tl.annotate_tokens(cells, dict.fromkeys(["token_1", "token_2"] if both else ["token_2"], "programme"))
    return cells


def measured(cells: AnnData) -> AnnData:
    """Twice the cells, each with a number of its own."""
    cells = with_tokens(concat([cells, cells], index_unique="-"))
    cells.obs["measured"] = np.linspace(0, 1, cells.n_obs)
    return cells


ONE_COLUMN = "the name of one column"
STORE = "model.write_back(adata)"
JUDGING = [
    Bad("generated genes are missing", judge(lambda c: c[:, :5].copy()), "`generated`", "gene5", "Pass the same genes"),
    Bad("generated NaN", judge(at(np.nan)), "`generated`", "1", "NaN or infinite"),
    Bad("generated scaled", judge(at(-1.0)), "`generated`", "-1", "Pass raw counts"),
    Bad("an unknown metric", judge(metrics=["mmdd"]), "metrics", "'mmdd'", "'mmd'"),
    Bad("an unknown group", judge(groupby="celltype"), "obs column", "'celltype'", "'cell_type'"),
    Bad("an unknown layer", judge(layer="raw"), "`layer`", "'raw'", "counts"),
    Bad(
        "two cells to judge by", lambda c: metrics.evaluate(c[:2].copy(), c), "`counts`", "(1, 12)", "at least 3 cells"
    ),
    Bad("components that are none", judge(n_pcs=0), "`n_pcs`", "0", "whole number of at least 1"),
    *[
        Bad(f"cells as points of {name}", act, "`real` is", "AnnData", "`metrics.evaluate`", TypeError)
        for name, act in {
            "mmd": lambda c: metrics.mmd(c, c),
            "energy_distance": lambda c: metrics.energy_distance(c, c),
            "wasserstein": lambda c: metrics.wasserstein(c, c),
            "classifier_auc": lambda c: metrics.classifier_auc(c, c),
        }.items()
    ],
    *[
        Bad(name, act, "`real`", value, way_out, TypeError)
        for name, act, value, way_out in [
            ("points in words", lambda c: metrics.energy_distance(c.X.astype(str), c.X), "<U32", "(cells, dimensions)"),
            ("cells as expression", lambda c: metrics.gene_correlation_error(c, c), "AnnData", "(cells, genes)"),
            ("cells as a change", lambda c: metrics.pearson_delta(c, c), "AnnData", "(genes,)"),
            ("a table of words", lambda c: metrics.mmd(c.to_df().astype(str), c.X), "type ", "X_pca"),
            ("labels as features", lambda c: metrics.classifier_auc(c.obs, c.X), "object", "(cells, fea"),
            ("mudata", lambda c: metrics.dirichlet_multinomial_nll(MuData({"r": c}), "", c, ""), "MuData", "AnnData"),
        ]
    ],
    Bad("labels", lambda c: metrics.evaluate(c, c, None, c.obs["batch"]), "`groupby`", "Series", ONE_COLUMN, TypeError),
    Bad("groups by two columns", judge(groupby=["cell_type", "batch"]), "`groupby`", "'batch'", ONE_COLUMN, TypeError),
    Bad("groups by a list of one", judge(groupby=["cell_type"]), "`groupby`", "['cell_type']", ONE_COLUMN, TypeError),
    *[
        Bad(f"a report by a list as {key}", report(**{key: ["batch"]}), f"`{key}`", "['batch']", ONE_COLUMN, TypeError)
        for key in ("perturbation_key", "context_key", "dose_key")
    ],
    *[
        Bad(f"{name} by a list", act, "`groupby`", "['batch']", ONE_COLUMN, TypeError)
        for name, act in {
            "an embedding": lambda c: pl.evaluation(c, c, groupby=["batch"], panels="pca"),
            "a heat map": lambda c: pl.token_heatmap(with_tokens(c), ["batch"]),
            "a loss": lambda c: tl.ablate_token(None, "token_1", c, ["batch"]),
        }.items()
    ],
    Bad(
        "a heat map by age",
        lambda c: pl.token_heatmap(measured(c), "measured"),
        *("`groupby` is 'measured'", "120 distinct", "Cut it into groups"),
    ),
    *[
        Bad(f"{name} of a token unseen", act, "`tokens`", "['token_9']", "'token_1' to 'token_2', nor of ", ValueError)
        for name, act in {
            "loadings": lambda c: pl.token_loadings(with_tokens(c), "token_9"),
            "a heat map": lambda c: pl.token_heatmap(with_tokens(c), "batch", "token_9"),
        }.items()
    ],
    Bad(
        "names beside the annotations",
        lambda c: pl.token_loadings(with_tokens(c), ["programe"]),
        "`tokens`",
        "['programe']",
        "`tl.annotate_tokens`: ['programme']",
    ),
    Bad(
        "an annotation of two tokens",
        lambda c: pl.token_loadings(with_tokens(c, both=True), "programme"),
        "`tokens`",
        "'programme'",
        "['token_1', 'token_2']",
    ),
    Bad("a model as history", lambda c: pl.training_history(c), "`history`", "AnnData", "model.history", TypeError),
    Bad("points of a line", lambda c: metrics.mmd(c.X[0], c.X[1]), "`real`", "(12,)", "(cells, dimensions)"),
    Bad(
        "points of two spaces",
        lambda c: metrics.mmd(c.X, c.X[:, :5]),
        "`generated`",
        "12 dimensions",
        "the same ExpressionSpace",
    ),
    Bad("points that are NaN", lambda c: metrics.mmd(c.X * np.nan, c.X), "`real`", "720 values", "NaN or infinite"),
    Bad(
        "labels of other cells",
        lambda c: metrics.baselines.null_poisson(c, ["a"], ["a"]),
        "`labels`",
        "(1,)",
        "each of the 60 cells",
    ),
    Bad(
        "a null of a label unseen",
        lambda c: metrics.baselines.null_poisson(c, c.obs["cell_type"], ["z"]),
        "`labels_out`",
        "z",
        "Known labels: a, b",
    ),
    Bad("cells that are none", lambda _: datasets.simulate(n_cells=0), "`n_cells`", "0", "at least 1"),
    Bad("genes that are none", lambda c: tl.rank_token_genes(c, n_genes=0), "`n_genes`", "0", "None for all"),
    Bad("no losses", lambda _: pl.training_history({}), "`history`", "[]", "model.history"),
    Bad(
        "a table of other things",
        lambda c: pl.dose_response(c.obs),
        "`frame`",
        "'gene'",
        "TokenDiffusion.dose_response",
    ),
    Bad("tokens never stored", lambda c: pl.token_loadings(c), "`adata.uns`", "'scdiffgen'", STORE),
    Bad("genes of tokens never stored", lambda c: tl.rank_token_genes(c), "`adata.varm`", "'token_loadings'", STORE),
]


@pytest.mark.parametrize("row", ids(JUDGING))
def test_cells_that_cannot_be_judged_or_drawn(row: Bad, cells: AnnData) -> None:
    before = fingerprint(cells)
    check(row, cells)
    assert fingerprint(cells) == before
