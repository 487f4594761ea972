"""Figures of evaluation: what is drawn is what other libraries compute, legible for few and for many groups."""

import warnings
from pathlib import Path
from unittest.mock import patch

import anndata as ad
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest
import scanpy as sc
from anndata import AnnData
from matplotlib.axes import Axes
from matplotlib.colors import to_hex, to_rgb
from scipy import sparse
from sklearn.metrics import auc

from scdiffgen import metrics, pl

REAL, GENERATED = "#0072b2", "#e69f00"
N_GENES = 125


def simulate(n_cells: int, seed: int, n_groups: int = 3) -> AnnData:
    """Equally many cells of groups with long names and genes of their own, and a programme that runs through all."""
    rng = np.random.default_rng(seed)
    kind = np.arange(n_cells) % n_groups
    rates = np.random.default_rng(0).gamma(0.7, 2.0, size=(n_groups, N_GENES))
    programme = np.exp(rng.normal(size=(n_cells, 1)) * (np.arange(N_GENES) % 2))
    counts = rng.poisson(rates[kind] * programme * rng.gamma(4.0, 0.25, size=(n_cells, 1)))
    counts[:, 0] += 1
    names = np.array([f"CD4+ T cells number {i:02} of the lymph node, activated" for i in range(n_groups)])
    obs = pd.DataFrame({"kind": pd.Categorical(names[kind])}, index=[f"{seed}-{i}" for i in range(n_cells)])
    var = pd.DataFrame(index=[f"GENE{i}" for i in range(N_GENES)])
    return AnnData(sparse.csr_matrix(counts.astype(np.float32)), obs=obs, var=var)


@pytest.fixture(scope="module")
def real() -> AnnData:
    return simulate(120, 1)


@pytest.fixture(scope="module")
def generated() -> AnnData:
    """As many cells, with the genes the other way round."""
    return simulate(120, 2)[:, ::-1].copy()


@pytest.fixture(scope="module")
def evaluation(real: AnnData, generated: AnnData) -> metrics.Evaluation:
    chosen = ["mmd", "coverage", "gene_correlation", "c2st_auc_forest_pcs"]
    return metrics.evaluate(real, generated, groupby="kind", metrics=chosen, n_pcs=5, n_trees=10, silent=True)


@pytest.fixture(scope="module")
def scores(evaluation: metrics.Evaluation) -> pd.DataFrame:
    return evaluation.frame


def log_normalised(*cells: AnnData) -> AnnData:
    joint = ad.concat(cells, index_unique="-")
    sc.pp.normalize_total(joint, target_sum=1e4)
    sc.pp.log1p(joint)
    return joint


def points_of(axis: Axes, colour: str) -> np.ndarray:
    """Points of a colour, over all collections, in the order in which they were drawn."""
    found = []
    for points in axis.collections:
        places = points.get_offsets().data
        colours = np.broadcast_to(points.get_facecolors(), (len(places), 4))
        found.append(places[[to_hex(c) == colour for c in colours]])
    return np.concatenate(found)


def line(axis: Axes, label: str) -> np.ndarray:
    (found,) = (drawn for drawn in axis.lines if str(drawn.get_label()).startswith(label))
    return found.get_xydata()


def written(texts: list) -> list[str]:
    return [text.get_text().replace("\n", " ") for text in texts]


def columns_are_legible(axis: Axes) -> bool:
    """Whether parallel names of columns are further apart than their letters are high."""
    axis.figure.canvas.draw()
    places, label = axis.transData.transform([(x, 0) for x in axis.get_xticks()])[:, 0], axis.get_xticklabels()[0]
    apart = np.diff(places).min() * np.sin(np.radians(label.get_rotation()))
    return apart > label.get_fontsize() * axis.figure.dpi / 72


def test_cells_of_both_sides_stand_at_the_components_of_scanpy(real, generated) -> None:
    axis = pl.evaluation(real, generated, panels="pca")["pca"]
    joint = log_normalised(real, generated[:, real.var_names])
    sc.pp.pca(joint, n_comps=2, svd_solver="arpack")
    expected = np.split(joint.obsm["X_pca"], 2)
    drawn = [points_of(axis, colour) for colour in (REAL, GENERATED)]
    for places, found in zip(expected, drawn, strict=True):
        for one, other in zip(places.T, found.T, strict=True):
            np.testing.assert_allclose(np.sort(np.abs(one)), np.sort(np.abs(other)), atol=1e-3)
    shares = joint.uns["pca"]["variance_ratio"]
    assert axis.get_xlabel() == f"PC1 ({shares[0]:.0%} of variance)"
    order = np.concatenate([points.get_facecolors()[:, 2] for points in axis.collections])
    assert 0.3 < np.mean(order[:60] > 0.5) < 0.7  # blue and orange in turn, neither on top


@pytest.mark.parametrize("n_groups", [2, 3, 10, 30])
def test_groups_have_a_colour_each_and_the_same_place_in_both_panels(n_groups: int) -> None:
    real, generated = simulate(8 * n_groups, 1, n_groups), simulate(8 * n_groups, 2, n_groups)
    both, *panels = pl.evaluation(real, generated, groupby="kind", panels="pca").values()
    assert [axis.get_title() for axis in (both, *panels)] == ["real and generated", "real", "generated"]
    (legend,) = both.get_figure().legends
    names = sorted(real.obs["kind"].unique())
    numbers = [f"{i + 1}  " if n_groups > 8 else "" for i in range(n_groups)]
    assert written(legend.get_texts()) == [f"{n}{name}" for n, name in zip(numbers, names, strict=True)]
    for axis, source in zip(panels, (REAL, GENERATED), strict=True):
        assert axis.get_xlim() == both.get_xlim() and axis.get_ylim() == both.get_ylim()
        places, numbered = axis.collections[0].get_offsets().data, written(axis.texts)
        assert sorted(map(tuple, places)) == sorted(map(tuple, points_of(both, source)))
        assert sorted(numbered) == sorted(number.strip() for number in numbers if number)
        medians = np.array([text.get_position() for text in axis.texts]).reshape(-1, 2)
        assert (places.min(0) <= medians).all() and (medians <= places.max(0)).all()
    colours = [to_hex(handle.get_color()) for handle in legend.legend_handles]
    assert len(set(colours)) == min(n_groups, 24) and not set(colours[:6]) & {REAL, GENERATED}
    for name, colour in list(zip(names, colours, strict=True))[: min(n_groups, 6)]:
        same = [other for other, c in zip(names, colours, strict=True) if c == colour]
        n_cells = real.obs["kind"].isin(same).sum()
        assert len(points_of(panels[0], colour)) == n_cells, name


@pytest.mark.parametrize(
    ("panel", "column", "poisson"),
    [("mean_variance", "variance", lambda mean: mean), ("mean_dropout", "dropout", lambda mean: np.exp(-mean))],
)
def test_genes_stand_where_scanpy_and_numpy_put_them(real, generated, panel: str, column: str, poisson) -> None:
    axis = pl.evaluation(real, generated, panels=panel)[panel]
    for cells, colour in ((real, REAL), (generated[:, real.var_names], GENERATED)):
        qc = sc.pp.calculate_qc_metrics(cells, percent_top=None)[1]
        variance = cells.X.toarray().var(0)
        expected = {"variance": variance, "dropout": qc["pct_dropout_by_counts"].to_numpy() / 100}[column]
        drawn = points_of(axis, colour)
        np.testing.assert_allclose(drawn[:, 0], qc["mean_counts"], rtol=1e-5)
        np.testing.assert_allclose(drawn[:, 1], expected, rtol=1e-4, atol=1e-6)
    reference = line(axis, "Poisson")
    np.testing.assert_allclose(reference[:, 1], poisson(reference[:, 0]))
    assert axis.get_xscale() == "log"


def test_lines_follow_the_genes(real) -> None:
    """In counts that are 0 or twice the mean of the gene, the variance is the square of the mean."""
    means = np.arange(1, N_GENES + 1)
    on_off = AnnData(np.outer([0, 2] * 10, means).astype(np.float32), var=real.var)
    drawn = line(pl.evaluation(on_off, on_off, panels="mean_variance")["mean_variance"], "real")
    assert len(drawn) == 25
    np.testing.assert_allclose(drawn[:, 1], drawn[:, 0] ** 2, rtol=1e-5)


def test_genes_that_a_side_lacks_are_left_out(real, generated) -> None:
    empty = generated.copy()
    empty.X = empty.X * 0
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        axis = pl.evaluation(real, empty, panels=["mean_variance", "library_size"])["mean_variance"]
        pl.evaluation(empty, empty, panels="mean_variance")
    assert len(points_of(axis, REAL)) == N_GENES
    assert len(points_of(axis, GENERATED)) == 0


def test_library_sizes_are_drawn_quantile_by_quantile(real, generated) -> None:
    axis = pl.evaluation(real, generated, panels="library_size")["library_size"]
    drawn = line(axis, "generated cells")
    shares = (np.arange(len(drawn)) + 0.5) / len(drawn)
    for column, cells in zip(drawn.T, (real, generated), strict=True):
        np.testing.assert_allclose(column, np.quantile(cells.X.sum(1).A1, shares))
    band = axis.collections[0].get_paths()[0]
    inside = [band.contains_point(point) for point in drawn[5:-5]]
    assert np.mean(inside) > 0.8


def test_the_curves_have_the_areas_that_the_legend_says(real, generated) -> None:
    worse, options = shuffled(generated), {"n_trees": 20, "seed": 2}
    names = {"forest, genes": "c2st_auc_forest_genes", "forest, components": "c2st_auc_forest_pcs"}
    scored = metrics.evaluate(real, worse, metrics=list(names.values()), sources=["generated"], **options)
    scores = scored.frame.loc[("overall", "generated")]
    axis = pl.evaluation(scores=scored, panels="roc")["roc"]
    for label, name in names.items():
        curve = line(axis, label)
        (text,) = (drawn.get_label() for drawn in axis.lines if str(drawn.get_label()).startswith(label))
        assert text == f"{label}: {scores[name]:.2f}"
        assert auc(*curve.T) == pytest.approx(scores[name], abs=0.02)
        assert curve[0].tolist() == [0, 0] and curve[-1].tolist() == [1, 1]
        assert (np.diff(curve, axis=0) >= 0).all()
    np.testing.assert_array_equal(axis.lines[0].get_xydata(), [[0, 0], [1, 1]])


def test_correlations_stand_side_by_side_in_one_order(real, generated) -> None:
    axes = list(pl.evaluation(real, generated, panels="gene_correlation").values())
    genes = written(axes[0].get_yticklabels())
    assert len(set(genes)) == 40 and not axes[1].get_yticklabels()
    assert all(written(axis.get_xticklabels()) == genes and columns_are_legible(axis) for axis in axes)
    images = [axis.images[0] for axis in axes]
    for image, cells in zip(images, (real, generated), strict=True):
        expected = np.corrcoef(log_normalised(cells)[:, genes].X.toarray(), rowvar=False)
        np.testing.assert_allclose(image.get_array(), expected, atol=1e-5)
    assert images[0].get_clim() == images[1].get_clim()
    assert sum(images[0].get_clim()) == 0
    drawn = images[0].get_array()
    shuffled = np.random.default_rng(0).permutation(40)
    assert np.diag(drawn, 1).mean() > np.diag(drawn[np.ix_(shuffled, shuffled)], 1).mean() + 0.1
    beside = pl.evaluation(real, generated, panels=["gene_correlation", "mean_dropout"])["correlation_real"]
    assert not beside.get_yticklabels() and beside.images[0].get_array().shape == (100, 100)


def scored_as(scores: pd.DataFrame, source: str) -> pd.DataFrame:
    """Scores in which the generated cells score as another source does, and there is one null."""
    changed = scores.drop(index="null_shuffled", level="source")
    changed.loc[(slice(None), "generated"), :] = scores.xs(source, level="source").to_numpy()
    changed.attrs = scores.attrs
    return changed


@pytest.mark.parametrize(("source", "place"), [("other_real", 0.0), ("null_poisson", 1.0)])
def test_numbers_are_scores_and_colours_where_they_stand(scores, source: str, place: float) -> None:
    changed = scored_as(scores, source)
    axis = pl.evaluation(scores=metrics.Evaluation(changed), panels="scores")["scores"]
    assert columns_are_legible(axis)
    drawn = np.ma.masked_invalid(axis.images[0].get_array()).compressed()
    assert len(drawn) >= 2
    np.testing.assert_allclose(drawn, place)
    texts = {text.get_position(): text.get_text() for text in axis.texts}
    assert float(texts[(2, 0)]) == pytest.approx(changed.loc[("overall", "generated"), "coverage"], abs=0.006)
    assert written(axis.get_xticklabels()) == ["mmd ↓", "c2st_auc_forest_pcs → 0.5", "coverage ↑", "gene_correlation ↓"]
    (legend,) = (found for other in axis.figure.axes if (found := other.get_legend()))
    assert to_hex(legend.legend_handles[0].get_facecolor()) == to_hex(axis.images[0].cmap.get_bad())
    n_cells = scores["n"].xs("generated", level="source")
    assert written(axis.get_yticklabels()) == [f"{group} ({n})" for group, n in n_cells.items()]
    image = axis.images[0]
    for text in axis.texts:  # which can be read on every colour
        column, row = map(int, text.get_position())
        under = image.cmap(image.norm(image.get_array()[row : row + 1, column]))[0, :3]
        light = [luminance(rgb) for rgb in (under, to_rgb(text.get_color()))]
        assert (max(light) + 0.05) / (min(light) + 0.05) > 4.5


def luminance(rgb: tuple[float, ...]) -> float:
    """Relative luminance, of which the accessibility guidelines of the web ask for a ratio of 4.5."""
    return float(np.dot(((np.array(rgb) + 0.055) / 1.055) ** 2.4, [0.2126, 0.7152, 0.0722]))


def test_scores_that_are_missing_are_dashes(scores) -> None:
    lacking = scores.copy()
    lacking.loc[("overall", "generated"), "mmd"] = np.nan
    axis = pl.evaluation(scores=metrics.Evaluation(lacking), panels="scores")["scores"]
    assert axis.texts[0].get_text() == "–"
    assert np.isnan(np.ma.filled(axis.images[0].get_array().astype(float), np.nan)[0, 0])


def test_a_page_has_every_panel_in_one_figure(real, generated, evaluation, scores, tmp_path: Path) -> None:
    with patch("scdiffgen.metrics._classifiers.fit_classifier", side_effect=AssertionError("fitted again")):
        axes = pl.evaluation(real, generated, groupby="kind", scores=evaluation, save=tmp_path / "page.png")
    assert axes["scores"].get_title().startswith("overall: ")
    auc = scores.loc[("overall", "generated"), "c2st_auc_forest_pcs"]
    assert written(axes["roc"].get_legend().get_texts()) == [f"forest, components: {auc:.2f}"]
    sides = ["", "_real", "_generated"]
    panels = ["mean_variance", "mean_dropout", "library_size", "roc", "correlation_real", "correlation_generated"]
    panels += ["dispersion", "dispersion_groups"]
    assert set(axes) == {f"{b}{s}" for b in ("umap", "pca") for s in sides} | {*panels, "scores"}
    assert len({axis.get_figure().figure for axis in axes.values()}) == 1
    assert (tmp_path / "page.png").read_bytes().startswith(b"\x89PNG")
    assert all(axis.has_data() for axis in axes.values())
    alone = axes["umap_real"].collections[0].get_offsets().data
    np.testing.assert_allclose(points_of(axes["umap"], REAL).mean(0), alone.mean(0))
    assert axes["scores"].get_yticklabels()[0].get_text() == f"overall ({scores['n'].iloc[0]})"


def shuffled(cells: AnnData) -> AnnData:
    """Cells without correlations between genes."""
    labels = ["all"] * cells.n_obs
    changed = cells.copy()
    changed.X = sparse.csr_matrix(metrics.baselines.null_shuffled(cells, labels, labels))
    return changed


def test_figure_without_groups_computes_scores_and_uses_gene_symbols(real, generated) -> None:
    named, other = real.copy(), shuffled(generated)
    named.var["symbol"] = [f"symbol of {name}" for name in named.var_names]
    with warnings.catch_warnings():
        warnings.simplefilter("error", metrics.FewCellsWarning)
        axes = pl.evaluation(named, other, gene_symbols="symbol")
    assert {"umap", "pca", "scores"} < set(axes) and "umap_real" not in axes
    classifiers = [f"c2st_auc_{name} → 0.5" for name in ("forest_pcs", "forest_genes", "logistic_genes")]
    columns = ["mmd ↓", *classifiers, "recall ↑", "mean_distance ↓", "gene_correlation ↓"]
    assert written(axes["scores"].get_xticklabels()) == columns
    texts = [text.get_text() for text in axes["dispersion"].texts]
    assert texts and all(name.startswith("symbol of GENE") for text in texts for name in text.split(", "))
    with pytest.raises(ValueError, match="`gene_symbols` is 'names', which is no column of `real.var`"):
        pl.evaluation(named, other, gene_symbols="names")


@pytest.fixture(scope="module")
def dispersion(real: AnnData) -> pd.DataFrame:
    """Ratios of cells without the programme of every other gene."""
    without = simulate(360, 3)
    without.X = sparse.csr_matrix(metrics.baselines.null_poisson(without, without.obs["kind"], without.obs["kind"]))
    how = {"metrics": "mean_distance", "n_pcs": 6, "n_bootstrap": 200, "silent": True}
    return metrics.evaluate(simulate(360, 4), without, simulate(360, 5), "kind", **how).dispersion


def draw(dispersion: pd.DataFrame) -> list[Axes]:
    return list(pl.evaluation(scores=metrics.Evaluation(pd.DataFrame(), dispersion), panels="dispersion").values())


def test_variances_are_drawn_with_intervals_and_the_worst_named(dispersion) -> None:
    axis, below = draw(dispersion)
    rows = dispersion.loc["within"]
    assert rows["apart"].any()
    drawn = np.concatenate([found.get_xydata() for found in axis.lines if found.get_marker() == "o"])
    np.testing.assert_allclose(drawn[np.argsort(drawn[:, 0])][:, 1], rows["ratio"])
    bars = [path.vertices[:, 1] for lines in axis.collections[1:] for path in lines.get_paths()]
    np.testing.assert_allclose(bars, rows[["low", "high"]])
    off = np.log(rows["ratio"] / rows["other_real"])[rows["apart"]].abs().sort_values(ascending=False)
    assert [text.get_text() for text in axis.texts] == rows["genes"].loc[off.index[:4]].tolist()
    names = ["overall", *dispersion.index.unique("group")[2:]]
    labels = written(below.get_yticklabels())
    assert [label.split(" (")[0][:10] for label in labels] == [name[:10] for name in names]
    (image,) = below.images
    shades, rows = image.cmap(image.norm(image.get_array())), dispersion.loc[names].unstack("component")
    assert ((shades[..., 0] > shades[..., 2]) == (rows["ratio"] > 1)).all(axis=None)  # redder
    assert ((image.get_alpha() < 1) == ((rows["low"] < 1) & (rows["high"] > 1))).all(axis=None)


def test_small_groups_are_left_out_and_a_table_without_intervals_is_refused(dispersion) -> None:
    few = dispersion.copy()
    few.loc[few.index.unique("group")[2], ["ratio", "low", "high"]] = np.nan
    _, below = draw(few)
    assert len(below.get_yticklabels()) == 3
    assert len(draw(dispersion.loc[["overall"]])) == 1
    for table in (None, dispersion.assign(low=np.nan)):
        with pytest.raises(ValueError, match="has no intervals"):
            draw(table)


@pytest.mark.parametrize("panel", ["umap", "mean_variance", "mean_dropout", "library_size", "roc"])
def test_panels_are_drawn_into_given_axes_saved_and_shown(
    panel: str, real, generated, settings, tmp_path, monkeypatch
) -> None:
    shown: list[bool] = []
    monkeypatch.setattr(plt, "show", lambda: shown.append(True))
    settings.figdir = tmp_path
    part = plt.figure(layout="constrained").subfigures(1, 2)[0]
    axis = part.subplots()
    chosen = {"n_trees": 5, "metrics": "c2st_auc_forest_pcs", "sources": "generated", "n_bootstrap": 0}
    scores = metrics.evaluate(real, generated, silent=True, **chosen)
    how = {"scores": scores, "panels": panel, "max_cells": 40, "ax": axis, "save": "_here.png", "show": True}
    assert pl.evaluation(real, generated, **how) == {panel: axis}
    assert (tmp_path / f"evaluation_{panel}_here.png").stat().st_size > 1000
    assert shown == [True]


@pytest.mark.parametrize("groupby", [None, "kind"])
def test_no_row_tears_a_panel_apart(real, generated, groupby: str | None) -> None:
    chosen = ["library_size", "pca", "mean_variance", "mean_dropout", "gene_correlation"]
    axes = pl.evaluation(real, generated, groupby=groupby, panels=[*chosen, "pca"])
    axes["pca"].get_figure().figure.canvas.draw()
    one, other = (axes[f"correlation_{side}"].get_window_extent() for side in ("real", "generated"))
    assert one.y0 == pytest.approx(other.y0) and ("pca_real" in axes) == (groupby is not None)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda x, y: pl.evaluation(x, y, groupby="kind", ax=plt.gca(), panels="pca"), "`ax` is one panel, but there"),
        (lambda x, y: pl.evaluation(x, y, groupby="donor", panels="pca"), "`real` has no obs column 'donor'"),
        (lambda x, y: pl.evaluation(x, y, panels="tsne"), "`panels` is 'tsne': choose one of .'umap', 'pca'"),
        (lambda x, y: pl.evaluation(x, panels=["roc", "pca"]), "`panels` has .'roc', 'pca'., which need cells"),
        (lambda x, y: pl.evaluation(x, log_normalised(y), panels="mean_dropout"), "`generated` holds .* not whole"),
        (lambda x, y: pl.evaluation(x, y[:, :3], panels="library_size"), "`generated` lacks 122 of 125 genes"),
        (lambda x, y: pl.evaluation(scores=metrics.evaluate(x, y, metrics="mmd"), panels="roc"), "no classifier"),
        (lambda x, y: pl.evaluation(scores=metrics.Evaluation(x.obs), panels="scores"), "lacks the index or `.attrs`"),
        (lambda x, y: pl.evaluation(x, y, scores=pd.DataFrame({"mmd": [0.1]})), "is not an `Evaluation`"),
    ],
)
def test_errors_say_what_to_do(real, generated, call, message: str) -> None:
    with pytest.raises((ValueError, TypeError), match=message):
        call(real, generated)
    assert not plt.get_fignums() or "ax" in message  # nothing is left half drawn
