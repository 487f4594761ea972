"""Verdicts in words: of made-up intervals, and of cells of which it is known how good they are."""

import re
from xml.etree import ElementTree

import numpy as np
import pandas as pd
import pytest
from anndata import AnnData
from scipy import sparse

from scdiffgen import metrics
from scdiffgen.metrics._classifiers import CLASSIFIERS
from scdiffgen.metrics._evaluate import relative_scores, with_verdicts

SOURCES = ("generated", "other_real", "null_poisson", "null_shuffled")
HEADERS = {"wasserstein": "wasserstein, lower is better", "novelty": "novelty, best at 1"}


def made_up(
    intervals: dict[str, tuple[float, float]],
    *,
    metric: str = "wasserstein",
    ideal: float | str = "other_real",
    direction: str = "lower",
    n: int = 50,
) -> pd.DataFrame:
    """Scores of one group whose interval of each source is given."""
    index = pd.MultiIndex.from_product([["overall"], intervals], names=["group", "source"])
    low, high = np.array(list(intervals.values())).T
    columns = {metric: (low + high) / 2, f"{metric}_low": low, f"{metric}_high": high}
    scores = pd.DataFrame(columns, index).assign(n=n)
    scores.attrs = {"ideal": {metric: ideal}, "direction": {metric: direction}}
    return scores


def relative(values: list[float], width: float = 0.01, **options: object) -> float:
    """Place of the generated cells, of scores of the four sources with intervals of one width."""
    intervals = {name: (value - width / 2, value + width / 2) for name, value in zip(SOURCES, values, strict=True)}
    return float(relative_scores(made_up(intervals, **options)).loc["overall", "wasserstein"])


@pytest.mark.parametrize(
    ("generated", "ceiling", "nulls", "ideal", "direction", "expected"),
    [
        (0.3, 0.1, (0.5, 0.2), 0.0, "lower", 0.5),
        (0.05, 0.1, (0.5, 0.2), 0.0, "lower", 0.0),
        (0.7, 0.1, (0.5, 0.2), 0.0, "lower", 1.5),
        (-0.4, -0.1, (0.4, 0.2), 0.0, "lower", 0.0),
        (0.7, 0.6, (0.9, 1.0), 0.5, "closest to", 0.25),
        (0.3, 0.6, (0.9, 1.0), 0.5, "closest to", 0.25),
        (0.8, 0.9, (0.5, 0.6), "other_real", "higher", 0.25),
        (1.0, 0.9, (0.5, 0.6), "other_real", "higher", 0.0),
        (1.0, 0.9, (0.5, 0.6), "other_real", "closest to", 0.25),
        (0.8, 0.9, (0.895, 0.905), "other_real", "higher", np.nan),
        (np.nan, 0.9, (0.5, 0.6), "other_real", "higher", np.nan),
    ],
)
def test_scores_stand_between_ceiling_and_null(generated, ceiling, nulls, ideal, direction, expected) -> None:
    found = relative([generated, ceiling, *nulls], ideal=ideal, direction=direction)
    assert found == pytest.approx(expected, nan_ok=True)


def test_a_null_that_is_not_distinguished_from_real_cells_is_no_measure() -> None:
    found = [relative([0.3, 0.1, 0.5, 0.2], width, ideal=0.0) for width in (0.05, 0.3, 0.5)]
    assert found == pytest.approx([0.5, 0.5, np.nan], nan_ok=True)
    assert np.isnan(relative([0.3, 0.1, 0.5, 0.2], 0.05, ideal=0.0, n=9))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"sources": ["generated"]}, "lacks the source 'other_real'"),
        ({"sources": ["generated", "other_real"]}, "lacks the source 'null_poisson'"),
        ({"n_bootstrap": 0}, "lacks the intervals .'mmd_low'.*n_bootstrap"),
    ],
)
def test_scores_without_what_to_compare_with_are_named(options: dict[str, object], message: str) -> None:
    scores = metrics.evaluate(simulated(80, 1), simulated(40, 2), metrics="mmd", silent=True, **options).frame
    with pytest.raises(ValueError, match=message):
        relative_scores(scores)
    with pytest.raises(ValueError, match="lacks the index or `.attrs` of `metrics.evaluate`"):
        relative_scores(pd.DataFrame(scores.to_numpy()))


LIKE, UNLIKE, FEW = "like other real cells", "unlike other real cells", "undecided, too few cells"
SLIGHTLY, CLEARLY = f"slightly {UNLIKE}", f"clearly {UNLIKE}"
REAL, NULL, WORSE = (1.0, 1.4), (5.0, 6.0), (8.0, 9.0)


@pytest.mark.parametrize(
    ("generated", "verdict"),
    [
        ((1.3, 1.7), "like other real cells"),
        ((0.2, 0.5), "like other real cells"),  # better
        ((2.0, 3.0), "unlike other real cells"),
        ((7.5, 8.5), "unlike other real cells"),  # like the worse control
        ((1.2, 8.2), "undecided, too few cells"),
        ((np.nan, np.nan), "undecided, too few cells"),
    ],
)
def test_verdicts_compare_intervals(generated: tuple[float, float], verdict: str) -> None:
    sides = dict(zip(SOURCES, (generated, REAL, NULL, WORSE), strict=True))
    table = with_verdicts(made_up(sides))
    assert table[HEADERS["wasserstein"]].tolist() == [verdict, "", "", ""]
    few = with_verdicts(made_up(sides, n=9))
    assert few.loc[("overall", "generated"), HEADERS["wasserstein"]] == "undecided, too few cells"


@pytest.mark.parametrize(
    ("generated", "verdict"),
    [((1.3, 1.7), "undecided, control like real cells"), ((2.0, 3.0), "unlike other real cells")],
)
def test_a_control_like_real_cells_is_no_excuse(generated: tuple[float, float], verdict: str) -> None:
    sides = dict(zip(SOURCES, (generated, REAL, (1.2, 1.6), (1.3, 1.9)), strict=True))
    assert with_verdicts(made_up(sides))[HEADERS["wasserstein"]].iloc[0] == verdict


@pytest.mark.parametrize(("generated", "verdict"), [((0.5, 0.7), "unlike"), ((0.9, 1.05), "like")])
def test_without_controls_and_of_novelty_cells_are_like_real_ones_or_unlike(generated, verdict) -> None:
    sides = dict(zip(SOURCES, (generated, (0.95, 1.1), (1.0, 1.2), (3.0, 4.0)), strict=True))
    best = {"novelty": {"ideal": 1.0, "direction": "closest to"}, "wasserstein": {}}
    for metric, chosen in (("novelty", SOURCES), ("wasserstein", SOURCES[:2])):
        given = {source: sides[source] for source in chosen}
        if metric == "wasserstein" and verdict == "unlike":
            given["generated"] = (1.5, 1.8)
        assert (
            with_verdicts(made_up(given, metric=metric, **best[metric]))[HEADERS[metric]].iloc[0]
            == f"{verdict} other real cells"
        )


@pytest.mark.parametrize(
    ("n", "auc", "verdict"),
    [
        (10, 0.5, FEW),
        (21, 0.65, FEW),
        (21, 0.85, FEW),
        (50, 0.55, LIKE),
        (50, 0.75, CLEARLY),
        (500, 0.58, SLIGHTLY),
        (500, 0.64, SLIGHTLY),
        (500, 0.65, CLEARLY),
        (500, 0.35, CLEARLY),
    ],
)
def test_classifiers_are_graded_by_the_auc_whatever_the_control(n: int, auc: float, verdict: str) -> None:
    margin = 1.96 * np.sqrt((2 * n + 1) / (12 * n**2))  # Mann-Whitney
    sides = {name: (x - margin, x + margin) for name, x in (("generated", auc), ("other_real", 0.5))}
    for control in ({}, {"null_poisson": (0.97, 1.0)}, {"null_poisson": (0.45, 0.55)}, {"null_poisson": (0.55, 0.6)}):
        scores = made_up(sides | control, metric="c2st_auc_forest_pcs", ideal=0.5, direction="closest to", n=n)
        assert with_verdicts(scores)["c2st_auc_forest_pcs, best at 0.5"].iloc[0] == verdict


def simulated(n_cells: int, seed: int) -> np.ndarray:
    """Counts with a programme in half of the genes."""
    rng = np.random.default_rng(seed)
    programme = np.exp(rng.normal(size=(n_cells, 1)) * (np.arange(40) < 20))
    return rng.poisson(3 * np.random.default_rng(0).gamma(2.0, size=40) * programme)


def test_each_default_score_has_a_verdict_that_is_right() -> None:
    real, train, new = simulated(600, 1), simulated(400, 2), simulated(300, 3)
    labels = np.zeros(300)
    shuffled = metrics.baselines.null_shuffled(sparse.csr_matrix(new), labels, labels)
    halfway = np.vstack([shuffled.toarray()[:150], new[150:]])
    options = {"n_pcs": 5, "n_trees": 30, "n_bootstrap": 50, "silent": True}
    found, verdicts = {}, {}
    for name, cells in {"real": new, "control": shuffled, "half": halfway}.items():
        judged = metrics.evaluate(real, cells, train, sources=["generated", "other_real", "null_shuffled"], **options)
        scores, headers = judged.frame, judged.frame.attrs["verdict"]
        assert list(scores.columns[:17]) == ["n", *np.ravel(list(headers.items()))]
        found[name], verdicts[name] = scores.loc[("overall", "generated"), list(headers.values())], judged.verdict
    assert list(headers) == ["mmd", *CLASSIFIERS, "recall", "mean_distance", "gene_correlation", "novelty"]
    assert headers["c2st_auc_forest_genes"] == "c2st_auc_forest_genes, best at 0.5"
    assert headers["recall"] == "recall, higher is better"
    means = found["real"].pop(headers["mean_distance"])
    assert found["real"].eq("like other real cells").all()
    assert means == "undecided, control like real cells"  # the control has the right means, too
    clear = [headers[name] for name in ("mmd", "c2st_auc_forest_genes", "gene_correlation")]
    for name in ("control", "half"):
        assert found[name][clear].isin([UNLIKE, SLIGHTLY, CLEARLY]).all()
    words = {name: table["verdict"].tolist() for name, table in verdicts.items()}
    assert words == {"real": [LIKE], "control": [CLEARLY], "half": [CLEARLY]}


def labelled(n_cells: int, seed: int, *, swapped: float = 0.0, scale: float = 0.5, odd: float = 0.0) -> AnnData:
    """Poisson counts with a programme; a share of label B is like the second label, and odd cells have a marker."""
    rng = np.random.default_rng(seed)
    means, labels = np.random.default_rng(0).gamma(2.0, size=(3, 40)), np.repeat([0, 1, 2], n_cells)
    drawn = np.where((labels == 0) & (rng.random(3 * n_cells) < swapped), 1, labels)
    programme = np.exp(scale * rng.normal(size=(3 * n_cells, 1)) * (np.arange(40) < 20))
    names = ["B", "naive T cells of the blood", "NK"]
    counts = rng.poisson(means[drawn] * programme)
    counts[rng.random(3 * n_cells) < odd, -1] += 40
    return AnnData(
        counts, obs=pd.DataFrame({"label": np.take(names, labels)}, index=np.arange(3 * n_cells).astype(str))
    )


@pytest.mark.parametrize(
    ("planted", "overall", "of_label"),
    [
        ({}, r"^overall: [a-z]+ AUC .5\d .* on [a-z]+, like other real cells$", "like other real cells$"),
        ({"odd": 0.22}, "AUC .(59|6[0-3]) .*, slightly unlike other real cells$", ""),  # about .61
        ({"odd": 0.6}, "AUC .(7[7-9]|8[0-3]) .*, clearly unlike other real cells$", "clearly unlike"),  # about .8
        ({"scale": 0.9}, r"1 of 5 components vary too much \(PC\d\)$", "too much"),
        (
            {"swapped": 0.3},
            r"(9|1.)% of the cells are clearly of another label \(real cells [01]%\)$",
            "(2[89]|3.)% of the cells are clearly of another label .real cells [01]%.$",
        ),
        ({"scale": 0.1}, r"unlike .* 2 of 5 components vary too little \(PC\d, PC\d\)$", "too little"),
    ],
)
def test_planted_faults_are_said(planted: dict[str, float], overall: str, of_label: str) -> None:
    cells = labelled(320, 1), labelled(160, 2, **planted), labelled(160, 3), "label"
    options = {"n_pcs": 5, "n_trees": 10, "n_bootstrap": 30, "silent": True}
    found = metrics.evaluate(*cells, sources=SOURCES[:2], **options)
    for sentence, pattern in zip(found.sentences(), (overall, of_label), strict=False):
        assert re.search(pattern, sentence), sentence
    for column in ("mixed_up", "has_wrong"):
        assert found.verdict[column].tolist() == [bool(planted.get("swapped"))] * 2 + [False] * 2
    if "swapped" in planted:
        pd.testing.assert_frame_equal(metrics.evaluate(*cells, sources=SOURCES[:3], **options).verdict, found.verdict)
    lines = str(found).splitlines()
    assert max(map(len, lines)) <= 100 and lines[1].endswith(" gene_correlation")
    assert lines[1].split()[:4] == ["forest,", "components", "forest,", "genes"]
    starts = ["overall (480)  ", "B (160)  ", "NK (160)  ", "naive T cells... (160)  ", "- overall: "]
    assert [line[: len(start)] for line, start in zip(lines[2:], starts, strict=False)] == starts


def judged(
    aucs: dict[str, tuple[float, str]], ratios: list[float], within: list[float] | None = None
) -> metrics.Evaluation:
    """A made-up evaluation: AUC and verdict of each classifier, and variance ratios, apart below .8."""
    headers = {name: f"{name}, best at 0.5" for name in aucs}
    index = pd.MultiIndex.from_product([["overall"], SOURCES[:2]], names=["group", "source"])
    frame = pd.DataFrame({"n": 50}, index=index)
    for name, (auc, word) in aucs.items():
        frame[name], frame[headers[name]] = [auc, 0.5], [word, ""]
        frame[f"{name}_low"], frame[f"{name}_high"] = frame[name] - 0.05, frame[name] + 0.05
    frame.attrs["verdict"] = headers
    tables = {"overall": ratios} | ({} if within is None else {"within": within})
    axes = {name: pd.DataFrame({"ratio": values, "low": values}) for name, values in tables.items()}
    table = pd.concat(axes, names=["group", "component"])
    return metrics.Evaluation(frame, table.assign(apart=(table["ratio"] < 0.8) | (table["ratio"] > 1.25)))


def test_the_least_favourable_classifier_is_the_verdict_and_is_named() -> None:
    aucs = dict(zip(CLASSIFIERS, [(0.88, CLEARLY), (0.55, LIKE), (0.52, LIKE)], strict=True))
    found = judged(aucs, [1.0] * 30)
    row = found.verdict.loc["overall"]
    assert row[["verdict", "classifier", "auc"]].tolist() == [CLEARLY, "forest, components", 0.88]
    sentence = (
        "overall: forest AUC .88 (.83 to .93; other real cells .50) on components, clearly unlike other real cells"
    )
    assert found.sentences() == [sentence]
    assert judged(dict.fromkeys(CLASSIFIERS, (0.5, LIKE)), [1.0] * 30).verdict.loc["overall", "verdict"] == LIKE


def test_a_wide_interval_does_not_hide_a_classifier_that_is_certain() -> None:
    aucs = dict(zip(CLASSIFIERS, [(0.7, FEW), (0.62, SLIGHTLY), (0.66, LIKE)], strict=True))
    row = judged(aucs, [1.0] * 30).verdict.loc["overall"]
    assert row[["verdict", "classifier"]].tolist() == [SLIGHTLY, "forest, genes"]
    unsure = judged(aucs | {"c2st_auc_forest_genes": (0.5, LIKE)}, [1.0] * 30).verdict.loc["overall"]
    assert unsure[["verdict", "auc"]].tolist() == [FEW, 0.7]


NARROW, WIDE = "less varied than real cells", "more varied than real cells"


@pytest.mark.parametrize(
    ("n_narrow", "n_wide", "verdict"),
    [(0, 2, LIKE), (3, 3, LIKE), (4, 2, NARROW), (18, 3, NARROW), (0, 4, WIDE), (3, 5, WIDE), (10, 5, WIDE)],
)
def test_components_with_another_variance_count_though_no_classifier_sees_them(
    n_narrow: int, n_wide: int, verdict: str
) -> None:
    aucs = dict.fromkeys(CLASSIFIERS, (0.5, LIKE))
    ratios = [0.5] * n_narrow + [1.5] * n_wide + [1.0] * (30 - n_narrow - n_wide)
    for found in (judged(aucs, ratios), judged(aucs, [1.0] * 30, within=ratios)):
        columns = ["verdict", "n_narrow", "n_wide", "n_components"]
        assert found.verdict.loc["overall", columns].tolist() == [verdict, n_narrow, n_wide, 30]
        named = " (0, 1, 2" + ", ..." * (n_narrow > 3) + ")"
        assert (f"; {n_narrow} of 30 components vary too little{named}" in found.sentences()[0]) == (n_narrow > 0)
        assert f"; {n_wide} of 30 components vary too much (" in found.sentences()[0]


def test_html_has_a_row_a_group_with_colours_and_is_short() -> None:
    aucs = dict(zip(CLASSIFIERS, [(0.88, CLEARLY), (0.55, LIKE), (0.52, LIKE)], strict=True))
    shown = judged(aucs, [1.0] * 30)._repr_html_()
    root = ElementTree.fromstring(shown.replace("<br>", "<br/>"))
    rows = root.findall(".//tr")
    assert len(rows) == 2 and len(rows[1].findall("td")) == 3 and len(shown) < 2000
    text = "".join(rows[1].itertext())
    assert text.startswith("overall (50).88 [.83, .93]real .50")
