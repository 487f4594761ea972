"""Evaluation of generated against held-out real cells: scores, verdicts in words, and their display."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from html import escape
from re import sub
from textwrap import fill

import numpy as np
import pandas as pd
from rich.console import Console
from rich.progress import track

from scdiffgen._names import as_names
from scdiffgen._shared_docs import shared_docs

from ._classifiers import CLASSIFIERS, FoldScores, LabelClassifier
from ._comparison import (
    HEADLINES,
    METRICS,
    OF_LABELS,
    OF_TRAIN,
    OVERALL,
    SOURCES,
    WITHIN,
    Comparison,
    Key,
    Pair,
    Sample,
    SampleSource,
    Settings,
    choose,
    compare,
    wrong_by_label,
)
from ._distances import compare_novelty, nearest_distances
from ._input import FEWEST_CELLS, CountsLike
from ._response import label_contrasts
from ._spread import disperse

ALIKE, OTHER = "like other real cells", "unlike other real cells"
SLIGHTLY, CLEARLY = f"slightly {OTHER}", f"clearly {OTHER}"
CLEAR = 0.65  # AUC of a clear difference
TOO_FEW, POWERLESS = "undecided, too few cells", "undecided, control like real cells"
NARROW, WIDE = "less varied than real cells", "more varied than real cells"
WORSE = (NARROW, WIDE, SLIGHTLY, OTHER, CLEARLY)  # than other real cells; from most to least favourable
WORST = (POWERLESS, ALIKE, TOO_FEW, *WORSE)
FEW_OFF = 0.1  # accepted share of components with too little, or too much, variance
COLOURS = dict(zip(WORST, ("#EEEEEE", "#DCEFE6", "#EEEEEE", *["#FBE3C0"] * 3, *["#F4B183"] * 2), strict=True))
STYLE = "background:{};color:#222222;text-align:center"
SHOWN = (
    "c2st_auc_forest_pcs",
    "c2st_auc_forest_genes",
    "recall",
    "gene_correlation",
    "mean_distance",
    "label_accuracy",
)


@shared_docs
def evaluate(
    real: CountsLike,
    generated: CountsLike,
    train: CountsLike | None = None,
    groupby: str | None = None,
    *,
    other_real: CountsLike | None = None,
    layer: str | None = None,
    gene_symbols: str | None = None,
    metrics: Sequence[str] | str | None = None,
    sources: Sequence[SampleSource] | SampleSource = SOURCES,
    n_pcs: int = 30,
    max_cells: int = 2000,
    n_bootstrap: int = 100,
    n_trees: int = 100,
    n_jobs: int = 1,
    seed: int = 0,
    silent: bool = False,
) -> Evaluation:
    """Score generated cells against held-out real cells, with a real-versus-real ceiling and negative controls.

    Each source is compared with the same half of the real cells, the *reference*, at equal numbers of cells:
    ``"generated"``; ``"other_real"``, the other half of the real cells (the real-versus-real ceiling); and the negative
    controls `baselines.null_poisson` and `baselines.null_shuffled` of the other half, with the groups of the reference.

    Expression space and label classifier are fitted on ``train``. Without ``train``, they are fitted on half of the
    real cells, the other half is split into reference and ceiling, and novelty is not computed. Generate cells for the
    groups of the real cells: another composition counts as an error in the overall row.

    Parameters
    ----------
    groupby
        Column of ``obs`` of all cells: one row per group, and the label of `label_accuracy`; by default no groups.
    metrics
        Metric or metrics, or ``"all"`` (``"wasserstein"`` only if POT is installed); the user guide lists them and
        describes what each detects. The default is three classifiers (``c2st_auc_...``), ``"mmd"``, ``"recall"``,
        ``"mean_distance"``, ``"gene_correlation"``, ``"label_accuracy"`` by ``groupby``, ``"novelty"`` by ``train``.
    sources
        Source or sources to compute.
    n_bootstrap
        Number of bootstrap resamples of cells for the intervals; 0 computes none. Intervals exclude the uncertainty of
        fits: classifiers are not refitted, and transport is linearised.
    {forests}
    {draws}

    Returns
    -------
    An `Evaluation`, which shows scores and verdicts by group. ``.frame`` has the index ``(group, source)``; the first
    group is ``"overall"``. Columns: ``n``, the number of compared cells per side; each metric, followed by the verdict
    on generated cells in a column that states the best value (``"mmd, lower is better"``); and 95 % intervals
    ``<metric>_low``, ``<metric>_high``. ``.attrs`` holds ``direction`` and ``ideal`` of each metric
    (``"other_real"``: the value in that row), the ``verdict`` columns, ``n_cells`` and ``settings``.

    Verdicts compare intervals of generated and other real cells. ``"like other real cells"``: the intervals overlap, or
    the score is better. Otherwise ``"unlike other real cells"``; for classifiers ``"slightly unlike other real cells"``
    if the AUC is below 0.65, else ``"clearly unlike other real cells"``. ``"undecided, too few cells"``: fewer than
    ten, or the intervals overlap, but that of generated cells extends to halfway between other real cells and the worst
    possible score (an AUC of 1), or, except for classifiers, to the worse negative control. ``"undecided, control like
    real cells"``: the metric, no classifier, does not distinguish them. Verdicts need intervals and ``"other_real"``.

    ``.wrong_cells`` holds the shares of cells that are clearly of another label, computed with ``"label_accuracy"``.

    Raises
    ------
    ValueError
        If a metric, source or column is unknown, or a label is called ``"overall"`` or ``"within"``.
    {raises_pot}

    Warns
    -----
    {warns}
    CopyWarning
        If generated cells copy training cells.

    Examples
    --------
    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> programme = np.exp(rng.normal(size=(2, 400, 1)) * (np.arange(20) < 10))
    >>> real, generated = rng.poisson(3 * programme)
    >>> scores = evaluate(real, generated, metrics="mmd", n_pcs=5, silent=True)
    >>> scores.frame.loc[("overall", "generated"), "mmd, lower is better"]
    'like other real cells'
    """
    sources = as_names(sources)
    chosen = choose(HEADLINES if metrics is None else metrics, METRICS, sources, SOURCES, "sources")
    absent = (set() if train is not None else OF_TRAIN) | (set() if groupby is not None else OF_LABELS)
    settings = Settings(layer, n_pcs, max_cells, n_bootstrap, n_trees, n_jobs, seed, gene_symbols=gene_symbols)
    comparison = Comparison.of(real, generated, train, groupby, settings, other_real=other_real, sources=sources)
    return evaluated(comparison, [name for name in chosen if name not in absent], sources, silent=silent)


def evaluated(comparison: Comparison, metrics: Sequence[str], sources: Sequence[str], *, silent: bool) -> Evaluation:
    """Compute scores, variances along components if there are verdicts, and classifiers over all cells."""
    settings, fitted, cells, wrong = comparison.settings, comparison.fitted, comparison.cells, None
    if "label_accuracy" in metrics:
        cells, wrong = _by_label_classifier(comparison)
    if OF_TRAIN & set(metrics):
        cells = {name: side._replace(to_train=nearest_distances(fitted.pcs, side.pcs)) for name, side in cells.items()}
        if "generated" in sources and len(cells["generated"].pcs) and len(cells["reference"].pcs):
            compare_novelty(cells["generated"].to_train, cells["reference"].to_train)
    if "label_fold_change_slope" in metrics:
        settings = settings._replace(contrasts=label_contrasts(fitted.expression, fitted.labels))
    settings = settings._replace(genes=comparison.space.most_variable_genes(200))
    scored = replace(comparison, cells=cells, settings=settings)
    asked = [source for source in SOURCES if source in sources]
    chosen, folds = {name: METRICS[name] for name in metrics}, {}

    def pairs() -> Iterator[tuple[Key, Pair]]:
        n_pairs, console = len(asked) * len(scored.groups), Console(stderr=True)
        every = scored.pairs(asked)
        for key, pair in every if silent else track(every, "Scoring", n_pairs, console=console):
            yield key, pair
            if (key["group"], key["source"]) == (OVERALL, "generated"):
                folds.update(pair.fitted)

    def in_words(key: Key) -> tuple[str, str]:
        return key["source"], f"{key['group']}, {key['n']} cells"

    scores = compare(pairs(), chosen, ["group", "source", "n"], comparison.space, settings, in_words)
    scores = scores.set_index(["group", "source"])
    scores.attrs["settings"] |= {"fitted_on": comparison.fitted_on, "n_bootstrap": settings.n_bootstrap}
    scores.attrs["n_cells"] = {name: len(side.labels) for name, side in {"fitted": fitted, **cells}.items()}
    frame = with_verdicts(scores)
    return Evaluation(frame, disperse(comparison) if "verdict" in frame.attrs else None, folds, wrong)


def _by_label_classifier(comparison: Comparison) -> tuple[dict[str, Sample], pd.DataFrame | None]:
    """Add whether each cell is classified as its label, NaN with one label; also tabulate wrong cells, if several."""
    fitted, cells = comparison.fitted, comparison.cells
    hits, wrong = {name: np.full(len(side.pcs), np.nan) for name, side in cells.items()}, None
    if len(np.unique(fitted.labels)) > 1:
        classifier = LabelClassifier.of(fitted.pcs, fitted.labels, seed=comparison.settings.seed)
        samples = {name: (side.pcs, side.labels, name) for name, side in cells.items() if len(side.pcs)}
        hits |= {name: classifier.hits(*sample) for name, sample in samples.items()}
        judged = {
            name: (cells[name].labels, classifier.wrong(*samples[name]) if name in samples else hits[name])
            for name in ("generated", "reference", "other_real")
        }
        labels, real = (np.concatenate(both) for both in zip(judged["reference"], judged["other_real"], strict=True))
        wrong = wrong_by_label(judged["generated"], (labels, real))
    return {name: side._replace(hits=hits[name]) for name, side in cells.items()}, wrong


@dataclass(frozen=True, eq=False, repr=False)
class Evaluation:
    """Hold scores of generated cells, with a verdict for each group.

    Parameters
    ----------
    frame
        Scores, one row per group and source.
    dispersion
        Variances along the principal components of log expression in ``train``; ``None`` without intervals. One row per
        group and component: groups ``"overall"``, ``"within"`` (pooled variance of deviations from the label means,
        such as the variation by cell cycle) and each label. Columns: ``ratio``, the variance of generated over that of
        real cells, and its 95 % interval ``low``, ``high``; ``other_real``, ``other_real_low``, ``other_real_high``,
        those of other real cells; ``apart``, whether the interval lies on one side of 1 and of the interval of other
        real cells; ``share`` of the variance of all genes on the component, in real cells of the group; ``genes``, the
        three genes with the largest weights; ``n``, the number of compared cells per side. Ratios are NaN in groups of
        fewer than ten cells.
    folds
        Out-of-fold scores of the classifiers over all cells, by the name of the metric; `pl.evaluation` draws them.
    wrong_cells
        Cells that are clearly of another label: the classifier of `label_accuracy` assigns them to another label, with
        more confidence than 99 % of the training cells of their label reach in cross-validation. One row per group;
        ``None`` without `label_accuracy`. Columns: ``share`` among all ``n`` generated cells, ``real`` among all
        ``n_real`` held-out cells (about 1 %); ``p_value`` of an exact test that the share is at most 1.5 times the real
        one; ``apart``, whether it is below 0.05 and the group has at least 20 generated and 20 held-out cells.

    Examples
    --------
    >>> import numpy as np
    >>> from scdiffgen.metrics import evaluate
    >>> real, generated = np.random.default_rng(0).poisson(3.0, size=(2, 200, 20))
    >>> evaluate(real, generated, n_trees=10, n_bootstrap=20, silent=True).verdict["n_components"].tolist()
    [19]
    """

    frame: pd.DataFrame
    dispersion: pd.DataFrame | None = None
    folds: Mapping[str, list[FoldScores]] = field(default_factory=dict)
    wrong_cells: pd.DataFrame | None = None

    @cached_property
    def verdict(self) -> pd.DataFrame:
        """Return the verdict of each group: its least favourable classifier, components, and labels.

        Columns: ``verdict``, in words; ``classifier`` with its ``auc``; ``auc_other_real``, the AUC of other real
        cells; ``n_narrow`` and ``n_wide`` of ``n_components`` that vary less or more than in real cells;
        ``mislabelled``, the share of cells classified as another label; ``mixed_up``, whether it is clearly above that
        of other real cells; ``wrong``, the share of wrong cells; ``has_wrong``, whether it is significantly above 1.5
        times that of real cells. If more than a tenth of the components vary less, or more, and no classifier is less
        favourable, the verdict is ``"less varied than real cells"``, or ``"more varied ..."``. Empty without intervals.
        """
        headers = self.frame.attrs.get("verdict", {})
        groups = self.frame.index.unique("group") if headers else []
        rows = [self._judge(str(group), headers) for group in groups]
        columns = "group verdict classifier auc auc_other_real n_narrow n_wide n_components mislabelled mixed_up"
        return pd.DataFrame(rows, columns=[*columns.split(), "wrong", "has_wrong"]).set_index("group")

    def _judge(self, group: str, headers: Mapping[str, str]) -> tuple[str | float | bool, ...]:
        """Return the row of one group: the classifier with the highest AUC that distinguishes the cells."""
        scores, real = (self.frame.loc[(group, source)] for source in ("generated", "other_real"))
        worst = max(
            (name for name in CLASSIFIERS if name in headers and not np.isnan(scores[name])),
            key=lambda name: (WORST.index(scores[headers[name]]), scores[name]),
            default=None,
        )
        narrow, wide, n_components = self._components(group)
        word = TOO_FEW if worst is None else str(scores[headers[worst]])
        for names, how in ((narrow, NARROW), (wide, WIDE)):
            word = max(word, how, key=WORST.index) if len(names) > FEW_OFF * n_components else word
        aucs = ("", np.nan, np.nan) if worst is None else (CLASSIFIERS[worst][2], scores[worst], real[worst])
        right, real_right = (side.get("label_accuracy", np.nan) for side in (scores, real))
        mixed_up = right < real_right and scores[headers["label_accuracy"]] == OTHER
        wrong, _, has_wrong = self._wrong(group)
        return group, word, *aucs, len(narrow), len(wide), n_components, 1 - right, mixed_up, wrong, has_wrong

    def _wrong(self, group: str) -> tuple[float, float, bool]:
        """Return the shares of wrong cells, generated and real, and whether the first is clearly larger."""
        table = pd.DataFrame() if self.wrong_cells is None else self.wrong_cells
        return tuple(table.loc[group, ["share", "real", "apart"]]) if group in table.index else (np.nan, np.nan, False)

    def _components(self, group: str) -> tuple[list[str], list[str], int]:
        """Name components with too little and too much variance, over all cells or within labels, and count all."""
        axes = pd.DataFrame() if self.dispersion is None else self.dispersion
        names = [OVERALL, WITHIN] if group == OVERALL else [group]
        tables = [axes.loc[name] for name in names if name in axes.index.get_level_values(0)]
        off = [[list(t.index[t["apart"] & (sign * t["ratio"] > sign)]) for t in tables] for sign in (-1, 1)]
        narrow, wide = (max(names, key=len, default=[]) for names in off)
        return narrow, wide, max((int(t["low"].notna().sum()) for t in tables), default=0)

    def sentences(self) -> list[str]:
        """Write the verdict of each group as a sentence, all cells first."""
        return [self._sentence(str(group), row) for group, row in self.verdict.iterrows()]

    def _sentence(self, group: str, row: pd.Series) -> str:
        """Write AUC and verdict of a group, components with another variance, and cells that look like other labels."""
        auc, (narrow, wide, n_components) = "", self._components(group)
        if row["classifier"]:
            kind, features = row["classifier"].split(", ")
            name = next(name for name, (_, _, title) in CLASSIFIERS.items() if title == row["classifier"])
            value, low, high, real = self._scores(group, name)
            auc = f"{kind} AUC {value} ({low} to {high}; other real cells {real}) on {features}, "
        parts = [f"{group}: {auc}{row['verdict']}"]
        for names, how in ((narrow, "little"), (wide, "much")):
            some = ", ".join([*map(str, names[:3]), *["..."] * (len(names) > 3)])
            parts += [f"{len(names)} of {n_components} components vary too {how} ({some})"] * bool(names)
        if row["has_wrong"]:
            parts.append(
                "{:.0%} of the cells are clearly of another label (real cells {:.0%})".format(*self._wrong(group))
            )
        elif row["mixed_up"]:
            shares = row["mislabelled"], 1 - self.frame.loc[(group, "other_real"), "label_accuracy"]
            text = "{:.0%} of the cells are classified as another label (other real cells {:.0%})"
            parts.append(text.format(*shares))
        return "; ".join(parts)

    def _scores(self, group: str, name: str) -> list[str]:
        """Write the score of generated cells, the ends of its interval, and the score of other real cells."""
        own, real = (self.frame.loc[(group, source)] for source in ("generated", "other_real"))
        scores = own[name], own[f"{name}_low"], own[f"{name}_high"], real[name]
        texts = (f"{x:.2f}" if abs(x) >= 0.01 else f"{x:.2g}" for x in scores)
        return [sub(r"^(-?)0\.", r"\1.", text) for text in texts]

    def _shown(self) -> list[tuple[str, str]]:
        """List metrics with verdicts and their titles, in order of importance."""
        headers = self.frame.attrs["verdict"]
        names = (n for n in dict.fromkeys((*SHOWN, *headers)) if n in headers and self.frame[n].notna().any())
        return [(name, CLASSIFIERS[name][2] if name in CLASSIFIERS else name) for name in names]

    def __repr__(self) -> str:
        if self.verdict.empty:
            return f"Evaluation, with the scores in `.frame`\n{self.frame.to_string(max_rows=20, line_width=100)}"
        groups, n_cells = self.verdict.index, self.frame.xs("generated", level="source")["n"]
        lines = ["", *(f"{group if len(group) < 17 else group[:13] + '...'} ({n_cells[group]})" for group in groups)]
        for name, title in self._shown():
            wide = max(map(len, lines)) + 2
            found = [self._scores(group, name) for group in groups]
            scores = ("{} [{},{}] {}".format(*texts) if "nan" not in texts else "-" for texts in found)
            longer = [line.ljust(wide) + text for line, text in zip(lines, [title, *scores], strict=True)]
            lines = longer if max(map(len, longer)) <= 100 else lines
        head = "Evaluation: scores [95 % intervals], scores of other real cells (classifiers: AUC); more in `.frame`"
        below = (fill(f"- {line}", 100, subsequent_indent="  ") for line in self.sentences())
        return "\n".join([head, *lines, *below])

    def _repr_html_(self) -> str:
        """Render one row per group, with verdicts in colours and as sentences."""
        if self.verdict.empty:
            return self.frame.to_html(max_rows=20, float_format="%.3g", na_rep="")
        headers, shown = self.frame.attrs["verdict"], self._shown()[: len(SHOWN)]
        titles = ["cells", *(f"{title}, AUC" if name in CLASSIFIERS else headers[name] for name, title in shown)]
        rows = ["".join(f"<th>{escape(title)}</th>" for title in titles)]
        for group in self.verdict.index:
            scores = self.frame.loc[(group, "generated")]
            rows.append(f"<th>{escape(group)} ({scores['n']})</th>")
            for name, _ in shown:
                text = "<b>{}</b> [{}, {}]<br><small>real {}</small>".format(*self._scores(group, name))
                rows[-1] += f'<td style="{STYLE.format(COLOURS[scores[headers[name]]])}">{text}</td>'
        table = "".join(f"<tr>{row}</tr>" for row in rows)
        legend = " ".join(f'<span style="{STYLE.format(COLOURS[w])}">{w}</span>' for w in (ALIKE, SLIGHTLY, CLEARLY))
        below = "".join(f"<li>{escape(line)}</li>" for line in self.sentences())
        return f"<div><table>{table}</table>{legend}<ul>{below}</ul></div>"


def relative_scores(scores: pd.DataFrame) -> pd.DataFrame:
    """Scale scores between other real cells (0) and the worse negative control (1), groups by metrics."""
    # NaN if the two intervals overlap, for fewer than ten cells, and for metrics of novelty.
    if scores.index.names != ["group", "source"] or not {"ideal", "direction"} <= set(scores.attrs):
        raise ValueError("`scores` lacks the index or `.attrs` of `metrics.evaluate`: pass its result unchanged.")
    sources, controls = scores.index.unique("source"), _controls(scores)
    lacking = [name for name in ("generated", "other_real") if name not in sources] + ["null_poisson"] * (not controls)
    if lacking:
        raise ValueError(f"`scores` lacks the source {lacking[0]!r}; it has {list(sources)}. Compute it as well.")
    lacking = [f"{name}_low" for name in scores.attrs["ideal"] if f"{name}_low" not in scores]
    if lacking:
        raise ValueError(f"`scores` lacks the intervals ({lacking[0]!r}): call `evaluate` with `n_bootstrap` above 1.")
    return pd.DataFrame({name: _relative(scores, name, controls) for name in scores.attrs["ideal"]})


def _relative(scores: pd.DataFrame, name: str, controls: list[str]) -> pd.Series:
    if name in OF_TRAIN:
        return pd.Series(np.nan, index=scores.index.unique("group"))
    distance = _distances(scores, name)
    span = distance[controls].where(_separate(scores, name, controls)).max(axis=1) - distance["other_real"]
    return (distance["generated"] - distance["other_real"]).clip(lower=0) / span.where(span > 0)


def _controls(scores: pd.DataFrame) -> list[str]:
    """List the negative controls among the sources."""
    return [source for source in scores.index.unique("source") if source.startswith("null_")]


def _separate(scores: pd.DataFrame, name: str, controls: list[str]) -> pd.DataFrame:
    """Test which controls the metric distinguishes from other real cells, groups by controls."""
    return _apart(scores, name, controls, "other_real") & (_of_sources(scores, "n")[controls] >= FEWEST_CELLS)


def _distances(scores: pd.DataFrame, name: str, values: pd.DataFrame | None = None) -> pd.DataFrame:
    """Compute distances of values, by default the scores (groups by sources), from the best value."""
    own, ideal = _of_sources(scores, name), scores.attrs["ideal"][name]
    best = own["other_real"] if ideal == "other_real" else pd.Series(float(ideal), index=own.index)
    away, direction = (own if values is None else values).sub(best, axis=0), scores.attrs["direction"][name]
    # for metrics that are to be low or high, values beyond the best one have distance 0
    return away.abs() if direction == "closest to" else (away if direction == "lower" else -away).clip(lower=0)


def _of_sources(scores: pd.DataFrame, column: str) -> pd.DataFrame:
    return scores[column].unstack("source").loc[scores.index.unique("group")]


def _apart(scores: pd.DataFrame, name: str, sources: list[str], other: str) -> pd.DataFrame:
    """Test whether the intervals of sources are disjoint from the interval of another source."""
    low, high = (_of_sources(scores, f"{name}_{end}") for end in ("low", "high"))
    return low[sources].gt(high[other], axis=0) | high[sources].lt(low[other], axis=0)


def _precise(scores: pd.DataFrame, name: str) -> pd.Series:
    """Test whether intervals of generated cells are nearer to other real cells than to the worst possible score."""
    best, metric = _distances(scores, name)["other_real"], METRICS[name]
    ends = scores.xs("generated", level="source")[[f"{name}_low", f"{name}_high"]]
    bounds = pd.DataFrame([(metric.lowest, metric.highest)] * len(ends), ends.index)
    furthest, worst = (_distances(scores, name, values).max(axis=1, skipna=False) for values in (ends, bounds))
    return furthest - best < worst - furthest


def with_verdicts(scores: pd.DataFrame) -> pd.DataFrame:
    """Add a verdict column after each score, named by its best value, if scores of other real cells exist."""
    metrics = list(scores.attrs["ideal"])
    sources = scores.index.unique("source")
    if not {"generated", "other_real"} <= set(sources) or not all(f"{name}_low" in scores for name in metrics):
        return scores
    controls, headers = _controls(scores), {name: f"{name}, {METRICS[name].best}" for name in metrics}
    words = {headers[name]: _verdicts(scores, name, controls) for name in metrics}
    table = scores.join(pd.concat({"generated": pd.DataFrame(words)}, names=["source", "group"]).swaplevel())
    table = table.fillna(dict.fromkeys(words, ""))
    by_metric = [column for name in metrics for column in (name, headers[name])]
    table = table[["n", *by_metric, *(column for column in scores if column not in {"n", *metrics})]]
    table.attrs = scores.attrs | {"verdict": headers}
    return table


def _verdicts(scores: pd.DataFrame, name: str, controls: list[str]) -> pd.Series:
    """Return the verdict on generated cells of each group."""
    distance, enough = _distances(scores, name), _of_sources(scores, "n")[["generated", "other_real"]] >= FEWEST_CELLS
    off = _apart(scores, name, ["generated"], "other_real")["generated"]
    off &= distance["generated"] > distance["other_real"]  # better than other real cells counts as equal
    decided = enough.all(axis=1) & (off | _precise(scores, name))
    words = pd.Series(np.where(off, OTHER, ALIKE), index=distance.index)
    if name in CLASSIFIERS:  # an AUC has its own scale, so no control is needed
        words = words.mask(off, np.where((0.5 + distance["generated"]).round(2) < CLEAR, SLIGHTLY, CLEARLY))
    elif controls and name not in OF_TRAIN:
        place = _relative(scores, name, controls)
        worse = distance[controls].where(_separate(scores, name, controls), -np.inf).to_numpy().argmax(axis=1)
        apart = _apart(scores, name, controls, "generated").to_numpy()[np.arange(len(worse)), worse]
        words = words.mask(~off & place.isna(), POWERLESS)
        decided &= off | place.isna() | apart
    return words.where(decided, TOO_FEW)
