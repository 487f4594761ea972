"""Figures show the numbers they are given, for few and many tokens, and are shown and saved as scanpy's."""

import inspect
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest
import scanpy as sc
from anndata import AnnData
from matplotlib.axes import Axes

import scdiffgen
from scdiffgen import pl, tl


def with_tokens(n_tokens: int) -> AnnData:
    adata = scdiffgen.datasets.pbmc68k()
    rng = np.random.default_rng(0)
    adata.varm["token_loadings"] = rng.normal(size=(adata.n_vars, n_tokens))
    adata.obsm["X_token_activation"] = rng.normal(size=(adata.n_obs, n_tokens))
    names = np.array([f"token_{i + 1}" for i in range(n_tokens)], dtype=object)
    adata.uns["scdiffgen"] = {"tokens": names, "explained": np.full(n_tokens, 1 / n_tokens)}
    tl.annotate_tokens(adata, {"token_3": "interferon response of everything"})
    adata.var_names = [f"ENSG0000000{i}-AS1-long" if i % 3 == 0 else name for i, name in enumerate(adata.var_names)]
    return adata


@pytest.fixture(params=[8, 36])
def cells(request: pytest.FixtureRequest) -> AnnData:
    return with_tokens(request.param)


def labels(axis: Axes, side: str = "y") -> list[str]:
    return [label.get_text() for label in getattr(axis, f"get_{side}ticklabels")()]


def legible(axes: list[Axes]) -> bool:
    """Whether no tick label lies over another of the same axis."""
    axes[0].figure.canvas.draw()
    boxes = [[label.get_window_extent() for label in axis.get_yticklabels() if label.get_text()] for axis in axes]
    return not any(one.y0 < other.y0 - 0.5 < one.y1 - 1.5 for drawn in boxes for one in drawn for other in drawn)


def test_bars_are_the_loadings_of_the_strongest_genes(cells: AnnData) -> None:
    axes = pl.token_loadings(cells, n_genes=6)
    assert len(axes) == cells.obsm["X_token_activation"].shape[1] and legible(axes)
    assert axes[2].get_title().replace("\n", " ") == "interferon response of everything"
    loadings = pd.Series(cells.varm["token_loadings"][:, 1], index=cells.var_names)
    strongest = loadings[loadings.abs().nlargest(6).index].sort_values()
    assert labels(axes[1]) == strongest.index.tolist()
    np.testing.assert_allclose([bar.get_width() for bar in axes[1].patches], strongest)


def test_a_token_names_the_one_that_shares_its_genes_and_no_other() -> None:
    cells = with_tokens(4)
    loadings = np.zeros((cells.n_vars, 4))
    loadings[:6, 0], loadings[2:8, 1] = 1, -1  # four genes in common, of the other sign
    loadings[10:16, 2], loadings[14:20, 3] = 1, 1  # two in common
    cells.varm["token_loadings"] = loadings
    notes = [axis.get_xlabel().split("\n")[1:] for axis in pl.token_loadings(cells, n_genes=6)]
    assert notes == [["shares 4 of 6 genes with token_2"], ["shares 4 of 6 genes with token_1"], [], []]


def test_the_heatmap_shows_means_by_group(cells: AnnData) -> None:
    axis = pl.token_heatmap(cells, "cell_type")
    assert legible([axis])
    drawn = pd.DataFrame(axis.images[0].get_array(), index=labels(axis), columns=labels(axis, "x"))
    expected = cells.obsm["X_token_activation"][cells.obs["cell_type"] == "CD56+ NK", 2].mean()
    assert drawn.loc["interferon response of everything", "CD56+ NK"] == pytest.approx(expected)
    assert axis.images[0].norm(0.0) == 0.5
    order = list(cells.obs["cell_type"].cat.categories[::-1])
    cells.obs["cell_type"] = cells.obs["cell_type"].cat.reorder_categories(order)
    assert labels(pl.token_heatmap(cells, "cell_type"), "x") == order


@pytest.mark.parametrize(
    ("groups", "shown"),
    [([0, 1, 2], ["0", "1", "2"]), ([False, True], ["False", "True"]), ([0.5, np.nan, 2.0], ["0.5", "2.0"])],
)
@pytest.mark.filterwarnings("error:factorize")
def test_numbers_and_truth_values_are_groups(groups: list, shown: list[str]) -> None:
    cells = with_tokens(4)
    cells.obs["group"] = np.resize(groups, cells.n_obs)
    assert labels(pl.token_heatmap(cells, "group"), "x") == shown


def test_tokens_are_chosen_by_name_or_annotation_and_one_needs_no_list() -> None:
    cells = with_tokens(4)
    title = "interferon response of everything"
    assert [axis.get_title() for axis in pl.token_loadings(cells, "token_1")] == ["token_1"]
    by_name, by_annotation = (pl.token_loadings(cells, token)[0] for token in ("token_3", [title]))
    widths = [[bar.get_width() for bar in axis.patches] for axis in (by_name, by_annotation)]
    assert widths[0] == widths[1] and by_annotation.get_title().replace("\n", " ") == title
    assert set(labels(pl.token_heatmap(cells, "cell_type", [title, "token_1"]))) == {title, "token_1"}
    (_, given) = plt.subplots()
    assert pl.token_embedding(cells, title, ax=given) == [given]
    tl.annotate_tokens(cells, {"token_1": "token_3"})  # a name is the token of that name, not one that is called so
    assert [bar.get_width() for bar in pl.token_loadings(cells, "token_3")[0].patches] == widths[0]


def test_long_names_of_genes_lose_their_middle_and_long_labels_are_wrapped() -> None:
    cells = with_tokens(4)
    tl.annotate_tokens(cells, {"token_1": "antigen presentation by MHC class II of dendritic cells"})
    cells.var_names = [f"ENSG{i:011d}-AC0{i:03d}.2-read-through" for i in range(cells.n_vars)]
    (axis,) = pl.token_loadings(cells, ["token_2"], n_genes=1)
    strongest = cells.var_names[np.abs(cells.varm["token_loadings"][:, 1]).argmax()]
    (label,) = axis.get_yticklabels()
    start, end = label.get_text().split("…")
    assert len(label.get_text()) <= 30 and strongest.startswith(start) and strongest.endswith(end)
    (axis,) = pl.token_embedding(cells, ["token_1"])
    assert max(map(len, axis.get_title().split("\n"))) <= 28
    assert axis.get_title().replace("\n", " ") == "antigen presentation by MHC class II of dendritic cells"


def test_genes_are_called_by_their_symbols() -> None:
    cells = scdiffgen.datasets.pbmc68k()
    cells.varm["token_loadings"] = np.random.default_rng(0).normal(size=(cells.n_vars, 2))
    cells.uns["scdiffgen"] = {"tokens": ["token_1", "token_2"], "stability": np.array([0.873, np.nan])}
    known = labels(pl.token_loadings(cells, "token_1")[0])
    sides = cells[::2], cells[1::2]
    of_genes = labels(pl.evaluation(*sides, panels="gene_correlation", layer="counts")["correlation_real"])
    cells.var["symbol"] = cells.var_names
    cells.var_names = [f"ENSG{i:05d}" for i in range(cells.n_vars)]
    one, other = pl.token_loadings(cells, gene_symbols="symbol")
    assert labels(one) == known
    assert (one.get_xlabel(), other.get_xlabel()) == ("loading (stability 0.87)", "loading")
    options = {"panels": "gene_correlation", "layer": "counts", "gene_symbols": "symbol"}
    assert labels(pl.evaluation(cells[::2], cells[1::2], **options)["correlation_real"]) == of_genes
    with pytest.raises(ValueError, match="`gene_symbols` is 'name', which is no column of `adata.var`"):
        pl.token_loadings(cells, gene_symbols="name")


def test_an_embedding_is_coloured_by_activation(cells: AnnData) -> None:
    (axis,) = pl.token_embedding(cells, ["token_4"])
    points = axis.collections[0]
    order = [np.flatnonzero((cells.obsm["X_umap"] == place).all(1))[0] for place in points.get_offsets()[:20].data]
    np.testing.assert_allclose(points.get_array()[:20], cells.obsm["X_token_activation"][order, 3])
    assert len(pl.token_embedding(cells, basis="pca")) == cells.obsm["X_token_activation"].shape[1]


def contributions(terms: dict[str, float], baseline: float, **stored: dict[str, str]) -> AnnData:
    """What tokens add to one gene of one cell."""
    return AnnData(
        np.array([[baseline + sum(terms.values())]]),
        obs=pd.DataFrame(index=["cell"]),
        var=pd.DataFrame({"baseline": [baseline], "symbol": ["CD3E"]}, index=["GENE"]),
        layers={name: np.array([[value]]) for name, value in terms.items()},
        uns={"terms": list(terms), "scdiffgen": {"tokens": list(terms), **stored}},
    )


def test_a_waterfall_runs_from_the_average_to_the_cell() -> None:
    terms = dict(zip([f"token_{i + 1}" for i in range(5)], [0.5, -2.0, 0.1, 1.0, -0.2], strict=True))
    added = contributions(terms, 3.0, annotation={"token_2": "IFN"})
    axis = pl.token_contributions(added, "cell", "GENE", n_terms=3)
    assert labels(axis) == ["average cell", "IFN", "token_4", "token_1", "2 others", "this cell"]
    np.testing.assert_allclose([bar.get_width() for bar in axis.patches], [3.0, -2.0, 1.0, 0.5, -0.1, 2.4])
    ends = [bar.get_x() + bar.get_width() for bar in axis.patches]
    np.testing.assert_allclose(ends, [3.0, 1.0, 2.0, 2.5, 2.4, 2.4])
    axis = pl.token_contributions(added, "cell", "CD3E", gene_symbols="symbol")
    assert axis.get_title() == "CD3E in cell"
    axis = pl.token_contributions(contributions({"token_1": 2.0, "token_2": -0.5}, 1.0), "cell", "GENE")
    assert axis.get_xlim()[1] > 3.05  # the largest bar ends at 1 + 2


def test_history_marks_the_lowest_validation_loss() -> None:
    history = {
        "train_loss": pd.DataFrame({"train_loss": [3.0, 2.0, 1.0, 0.5]}),
        "validation_loss": pd.DataFrame({"validation_loss": [2.5, 1.5, 1.8]}, index=[0, 2, 3]),
    }
    axis = pl.training_history(history)
    assert axis.lines[-1].get_xydata().tolist() == [[2.0, 1.5]]
    assert axis.lines[-1].get_label() == "lowest"  # not "kept": the weights at the end generate
    np.testing.assert_allclose(axis.lines[0].get_ydata(), history["train_loss"]["train_loss"])


@pytest.mark.filterwarnings("ignore:Argument `save` is deprecated:FutureWarning")  # of scanpy 1.12, which ours outlives
def test_files_have_the_names_that_scanpy_gives_to_its_own(tmp_path: Path, settings: type) -> None:
    settings.figdir, settings.plot_suffix = tmp_path / "figures", "_draft"
    cells = with_tokens(4)
    for save in ("_one.pdf", "_two", True):
        pl.token_heatmap(cells, "cell_type", show=False, save=save)
        sc.pl.embedding(cells, "umap", show=False, save=save)
    settings.autosave = True
    settings.plot_suffix = "_auto"
    pl.token_heatmap(cells, "cell_type")
    sc.pl.embedding(cells, "umap")
    names = {path.name for path in settings.figdir.iterdir()}
    ours = {name.removeprefix("token_heatmap") for name in names if name.startswith("token_heatmap")}
    assert ours == {name.removeprefix("umap") for name in names if name.startswith("umap")} and len(ours) == 4
    pl.token_loadings(cells, save=tmp_path / "exactly.pdf")
    assert (tmp_path / "exactly.pdf").read_bytes().startswith(b"%PDF")
    assert not plt.get_fignums()  # what was saved is closed


def test_figures_are_shown_as_scanpy_shows(monkeypatch: pytest.MonkeyPatch, settings: type) -> None:
    shown = []
    monkeypatch.setattr(plt, "show", lambda: shown.append(True))
    cells = with_tokens(4)
    for show, autoshow, expected in [(True, False, 1), (False, True, 0), (None, True, 1), (None, False, 0)]:
        settings.autoshow = autoshow
        pl.token_heatmap(cells, "cell_type", show=show)
        assert len(shown) == expected
        shown.clear()


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda cells: pl.token_loadings(cells, ["token_9"]), r"`tokens` names \['token_9'\]"),
        (lambda cells: pl.token_loadings(cells, ax=plt.gca()), "`ax` is one panel, but there are 4"),
        (lambda cells: pl.token_loadings(cells, ncols=0), "`ncols` is 0"),
        (lambda cells: pl.token_embedding(cells, basis="phate"), "`basis` is 'phate'"),
        (lambda cells: pl.token_heatmap(cells, "donor"), "no column 'donor'"),
        (lambda cells: pl.token_contributions(cells, "nobody", "LYZ"), "`cell` is 'nobody'"),
        (lambda cells: pl.training_history({"elbo": pd.DataFrame()}), "no loss"),
        (lambda cells: pl.token_loadings(scdiffgen.datasets.pbmc68k()), "call `model.write_back"),
    ],
)
def test_errors_say_what_to_do(call, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        call(with_tokens(4))


@pytest.mark.parametrize("name", pl.__all__)
def test_figures_end_in_the_same_arguments(name: str) -> None:
    parameters = list(inspect.signature(getattr(pl, name)).parameters.values())
    ending = [each.name for each in parameters if each.name in ("ax", "show", "save")]
    assert ending in (["ax", "show", "save"], ["show", "save"])
    assert [each.name for each in parameters[-len(ending) :]] == ending
    assert all(each.kind is each.KEYWORD_ONLY and each.default is None for each in parameters[-len(ending) :])
