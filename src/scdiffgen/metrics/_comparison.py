"""Samples of cells in one expression space, metrics of pairs of samples, and tables of their scores."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from importlib.util import find_spec
from typing import Any, Literal, NamedTuple, TypeAlias

import numpy as np
import pandas as pd
from anndata import AnnData
from numpy.typing import NDArray
from scipy.stats import binomtest

from scdiffgen._log_normalise import library_sizes, log_normalise
from scdiffgen._messages import warn_user
from scdiffgen._names import as_names, symbols_of
from scdiffgen.metrics import _distances as points
from scdiffgen.metrics import _genes as genes
from scdiffgen.metrics.baselines import null_poisson, null_shuffled

from ._classifiers import CLASSIFIERS, N_FOLDS, FoldScores, Judged, auc_resampled, cross_validated_scores
from ._input import FEWEST_CELLS, CountsLike, FewCellsWarning, Matrix, as_counts, labels_of
from ._resampling import Seed, Weights, bootstrap_weights, split_halves, subsample, weighted_mean
from ._response import NO_LABELS, LabelContrasts, contrast_slope, mean_depth, thin
from ._space import ExpressionSpace

CONFIDENCE = 1.96  # standard errors of a 95 % interval
TRANSPORT = "wasserstein"  # needs POT
BALLS = points.N_NEIGHBOURS + 1  # minimum number of cells for nearest-neighbour balls
OF_TRAIN = {"novelty"}  # metrics that need training cells
OF_LABELS = {"label_accuracy", "label_fold_change_slope"}  # metrics that need groups
EMPTY = np.empty(0)
Resamples: TypeAlias = NDArray[np.float64]  # the estimate, then its resamples
Direction: TypeAlias = Literal["lower", "higher", "closest to"]
Key: TypeAlias = dict[str, Any]  # first columns of a row: names of the comparison, and numbers of cells

SampleSource: TypeAlias = Literal["generated", "other_real", "null_poisson", "null_shuffled"]
SOURCES: tuple[SampleSource, ...] = ("generated", "other_real", "null_poisson", "null_shuffled")
CONTROLS = {"null_poisson": null_poisson, "null_shuffled": null_shuffled}
OVERALL, WITHIN = "overall", "within"  # rows over all cells: as they are, and as deviations from label means


class Sample(NamedTuple):
    """A sample of cells in all forms that the requested metrics need; other fields are empty."""

    pcs: NDArray[np.float64]  # (cells, components)
    counts: Matrix = EMPTY  # (cells, genes)
    normalised: Matrix = EMPTY  # log-normalised expression (cells, genes) of cells without counts
    labels: NDArray = EMPTY  # groups, (cells,)
    hits: NDArray[np.float64] = EMPTY  # classified as its label, (cells,)
    to_train: NDArray[np.float64] = EMPTY  # distance to the nearest training cell, (cells,)

    @property
    def expression(self) -> Matrix:
        """Return log-normalised expression (cells, genes)."""
        return self.normalised if self.counts is EMPTY else log_normalise(self.counts, dtype=np.float32)

    @classmethod
    def of(cls, space: ExpressionSpace, cells: CountsLike, name: str, labels: NDArray = EMPTY) -> Sample:
        """Check counts (``name`` in messages) and keep cells as counts and components."""
        counts = space.counts(cells, name=name)
        n_cells = 5000  # with expression in memory at a time
        starts = range(0, max(counts.shape[0], 1), n_cells)
        blocks = (log_normalise(counts[start : start + n_cells], dtype=np.float32) for start in starts)
        return cls(np.concatenate([space.project(block) for block in blocks]), counts, labels=labels)

    @classmethod
    def of_log_normalised(cls, space: ExpressionSpace, cells: AnnData, name: str) -> Sample:
        """Map log-normalised expression (``name`` in messages) into the space."""
        expression = space.of_log_normalised(cells, name=name)
        return cls(space.project(expression), normalised=expression)

    def take(self, rows: NDArray[np.intp]) -> Sample:
        return Sample(*(form if form is EMPTY else form[rows] for form in self))

    @property
    def depth(self) -> float:
        """Return the mean library size; infinite without counts or cells."""
        return np.inf if self.counts is EMPTY else mean_depth(self.counts)

    def thinned(self, space: ExpressionSpace, depth: float, seed: Sequence[int]) -> Sample:
        if self.counts is EMPTY or (counts := thin(self.counts, depth, seed)) is self.counts:
            return self
        return Sample.of(space, counts, "thinned cells")


class Settings(NamedTuple):
    """Settings for the preparation and comparison of samples."""

    layer: str | None = None
    n_pcs: int = 30
    max_cells: int = 2000
    n_bootstrap: int = 0
    n_trees: int = 100
    n_jobs: int = 1
    seed: int = 0
    genes: NDArray[np.intp] = np.arange(0)  # genes of the correlation matrix
    contrasts: LabelContrasts = NO_LABELS  # label contrasts of the cells on which the space is fitted
    gene_symbols: str | None = None  # column of `.var` with displayed names

    def space(self, cells: CountsLike, name: str) -> ExpressionSpace:
        as_counts(cells, layer=self.layer, name=name)
        return ExpressionSpace.fit(cells, n_pcs=self.n_pcs, layer=self.layer, seed=self.seed)

    def pair(self, real: Sample, generated: Sample, n: int, seeds: tuple[Seed, Seed], response: Any = None) -> Pair:
        """Draw n cells per side, at most ``max_cells``, and their bootstrap weights."""
        n, rng = min(n, self.max_cells), np.random.default_rng(seeds[1])
        x = real.take(subsample(len(real.pcs), n, seeds[0]))
        y = generated.take(subsample(len(generated.pcs), n, seeds[1]))
        weights = [bootstrap_weights(n, self.n_bootstrap, rng) for _ in range(2)]
        return Pair(x, y, weights[0], weights[1], self, response)


@dataclass(frozen=True)
class Pair:
    """Two samples of equal size, their bootstrap weights, and the response of a perturbation."""

    real: Sample
    generated: Sample
    real_weights: Weights
    generated_weights: Weights
    settings: Settings
    response: Any = None

    @property
    def pcs(self) -> tuple[NDArray, NDArray, Weights, Weights]:
        """Return components and weights of both sides, as arguments of distances."""
        return self.real.pcs, self.generated.pcs, self.real_weights, self.generated_weights

    @cached_property
    def in_balls(self) -> dict[str, Resamples]:
        return points.overlap_resampled(*self.pcs)

    @cached_property
    def labels(self) -> tuple[NDArray, NDArray]:
        return self.real.labels, self.generated.labels

    @cached_property
    def fitted(self) -> dict[str, list[FoldScores]]:
        """Cache scores of fitted classifiers by the name of the metric."""
        return {}

    def folds(self, name: str) -> list[FoldScores]:
        """Return scores of the classifier of a metric, which is fitted once."""
        if name not in self.fitted:
            classifier, features, _ = CLASSIFIERS[name]
            options = {"n_trees": self.settings.n_trees, "n_jobs": self.settings.n_jobs, "seed": self.settings.seed}
            x, y = (getattr(side, features) for side in (self.real, self.generated))
            labels = self.labels if all(len(side) for side in self.labels) else None
            self.fitted[name] = cross_validated_scores(x, y, classifier, labels, **options)
        return self.fitted[name]


class Metric(NamedTuple):
    """A metric: best value, function, minimum number of cells per side, and range."""

    direction: Direction
    ideal: float | str  # a number, or the name of the source with the best value
    compute: Callable[[Pair], Resamples]
    n_cells: int = 2
    lowest: float = 0.0
    highest: float = np.inf

    @property
    def best(self) -> str:
        if self.direction != "closest to":
            return f"{self.direction} is better"
        return "best at that of other real cells" if isinstance(self.ideal, str) else f"best at {self.ideal:g}"


def _library_size_ks(pair: Pair) -> Resamples:
    x, y = (library_sizes(cells.counts) for cells in (pair.real, pair.generated))
    return genes.ks_resampled(x, y, pair.real_weights, pair.generated_weights)


def _gene_correlation(pair: Pair) -> Resamples:
    x, y = (cells.expression[:, pair.settings.genes] for cells in (pair.real, pair.generated))
    return genes.correlation_error_resampled(x, y, pair.real_weights, pair.generated_weights)


def _mean_distance(pair: Pair) -> Resamples:
    return genes.mean_distance_resampled(pair.real.expression, pair.generated.expression, *pair.pcs[2:])


def _label_accuracy(pair: Pair) -> Resamples:
    return weighted_mean(pair.generated.hits, pair.generated_weights)


def _label_fold_change_slope(pair: Pair) -> Resamples:
    x, y = (cells.expression for cells in (pair.real, pair.generated))
    return contrast_slope(pair.settings.contrasts, x, y, *pair.pcs[2:], pair.labels)


def _novelty(pair: Pair) -> Resamples:
    ratios = [
        np.median(np.repeat(pair.generated.to_train, b.astype(int)))
        / max(np.median(np.repeat(pair.real.to_train, a.astype(int))), 1e-12)
        for a, b in zip(pair.real_weights, pair.generated_weights, strict=True)
    ]
    return np.array(ratios)


def _c2st(name: str) -> Metric:
    def auc(pair: Pair) -> Resamples:
        return auc_resampled(pair.folds(name), pair.real_weights, pair.generated_weights)

    return Metric("closest to", 0.5, auc, n_cells=N_FOLDS, highest=1.0)


METRICS: dict[str, Metric] = {
    "mmd": Metric("lower", 0.0, lambda pair: points.mmd_resampled(*pair.pcs, seed=pair.settings.seed), lowest=-np.inf),
    "wasserstein": Metric("lower", "other_real", lambda pair: points.wasserstein_resampled(*pair.pcs), n_cells=1),
    "energy_distance": Metric("lower", 0.0, lambda pair: points.energy_resampled(*pair.pcs), lowest=-np.inf),
    **{name: _c2st(name) for name in CLASSIFIERS},
    "precision": Metric("closest to", "other_real", lambda pair: pair.in_balls["precision"], BALLS, highest=1.0),
    "recall": Metric("higher", "other_real", lambda pair: pair.in_balls["recall"], BALLS, highest=1.0),
    "coverage": Metric("higher", "other_real", lambda pair: pair.in_balls["coverage"], BALLS, highest=1.0),
    "library_size_ks": Metric("lower", "other_real", _library_size_ks, n_cells=1, highest=1.0),
    "mean_distance": Metric("lower", 0.0, _mean_distance, FEWEST_CELLS, lowest=-np.inf),
    "gene_correlation": Metric("lower", "other_real", _gene_correlation, n_cells=3, highest=2.0),
    "label_fold_change_slope": Metric("closest to", 1.0, _label_fold_change_slope, lowest=-np.inf),
    "label_accuracy": Metric("closest to", "other_real", _label_accuracy, n_cells=1, highest=1.0),
    "novelty": Metric("closest to", 1.0, _novelty, n_cells=1),
}
# defaults of `evaluate`
HEADLINES = (*CLASSIFIERS, "mmd", "recall", "mean_distance", "gene_correlation", "label_accuracy", "novelty")
ALL = "all"


def choose(
    asked: Sequence[str], metrics: Mapping[str, Metric], others: Sequence[str], known: Sequence[str], noun: str
) -> dict[str, Metric]:
    """Select metrics by name; ``"all"`` skips transport without POT. ``others`` are names of sources or baselines."""
    everything = isinstance(asked, str) and asked == ALL
    names = [*metrics] if everything else as_names(asked)
    if not everything and TRANSPORT in names:
        points.pot()
    if everything and find_spec("ot") is None:
        warn_user(f"`{TRANSPORT}` is left out, because POT is not installed. Install it with: {points.INSTALL}")
        names.remove(TRANSPORT)
    unknown = sorted(set(names) - set(metrics)) + sorted(set(others) - set(known))
    if unknown:
        raise ValueError(f"Unknown metrics or {noun} {unknown}: choose {[ALL, *metrics]}; {noun}: {[*known]}.")
    return {name: metric for name, metric in metrics.items() if name in names}


def compare(
    pairs: Iterable[tuple[Key, Pair]],
    metrics: Mapping[str, Metric],
    columns: Sequence[str],
    space: ExpressionSpace,
    settings: Settings,
    in_words: Callable[[Key], tuple[str, str]],
) -> pd.DataFrame:
    """Score all pairs, one row each; ``in_words`` names a sample and its condition in warnings of few cells."""
    rows: list[Key] = []
    short: dict[tuple[str, str], list[str]] = {}
    for key, pair in pairs:
        n = len(pair.real.pcs)
        defined = {name: metric for name, metric in metrics.items() if n >= metric.n_cells}
        rows.append(key | _scores(pair, defined))
        lacking = ", ".join(name for name in metrics if name not in defined)
        if lacking:
            sample, condition = in_words(key)
            short.setdefault((lacking, condition), []).append(sample)
    if short:
        listed = "; ".join(f"{names} of {', '.join(samples)} ({of})" for (names, of), samples in short.items())
        warn_user(f"NaN because of too few cells: {listed}.", FewCellsWarning)
    bounds = [f"{name}_{end}" for name in metrics for end in ("low", "high")] if settings.n_bootstrap > 0 else []
    table = pd.DataFrame(rows, columns=[*columns, *metrics, *bounds])
    sizes = {"n_genes": space.n_genes, "n_pcs": len(space.components)}
    table.attrs = {
        "direction": {name: metric.direction for name, metric in metrics.items()},
        "ideal": {name: metric.ideal for name, metric in metrics.items()},
        "settings": sizes | {name: getattr(settings, name) for name in ("max_cells", "n_trees", "seed")},
    }
    return table


def _scores(pair: Pair, metrics: Mapping[str, Metric]) -> dict[str, float]:
    """Compute the metrics, with 95 % intervals ``_low``, ``_high`` if the pair has resamples."""
    scores: dict[str, float] = {}
    for name, metric in metrics.items():
        scores |= with_interval(name, metric.compute(pair), metric.lowest, metric.highest)
    return scores


def with_interval(name: str, rows: Resamples, lowest: float = 0.0, highest: float = 1.0) -> dict[str, float]:
    """Return the first row, and the 95 % interval ``_low``, ``_high`` of its resamples if there are any."""
    scores = {name: float(rows[0])}
    if len(rows) > 1:
        resamples = rows[1:][np.isfinite(rows[1:])]
        # normal intervals instead of percentiles, because the bootstrap biases plug-in statistics upwards
        margin = CONFIDENCE * float(resamples.std(ddof=1)) if len(resamples) > 1 else float("nan")
        scores[f"{name}_low"] = float(np.maximum(rows[0] - margin, lowest))
        scores[f"{name}_high"] = float(np.minimum(rows[0] + margin, highest))
    return scores


@dataclass(frozen=True)
class Comparison:
    """Cells of all sources and of the ``"reference"``, embedded once in one space and split by groups."""

    space: ExpressionSpace
    fitted: Sample  # cells on which the space is fitted
    fitted_on: str
    cells: Mapping[str, Sample]
    settings: Settings
    groupby: str | None = None
    names: pd.Index | None = None  # displayed names of the genes of the space

    @classmethod
    def of(
        cls,
        real: CountsLike,
        generated: CountsLike,
        train: CountsLike | None,
        groupby: str | None,
        settings: Settings,
        *,
        other_real: CountsLike | None = None,
        sources: Sequence[SampleSource] = (),
    ) -> Comparison:
        """Fit the space on training cells or half of the real cells, split the rest unless given, and add sources."""
        seed, labels = settings.seed, _groups(real, groupby, "real")
        half, rest = (np.arange(0), np.arange(len(labels))) if train is not None else split_halves(labels, seed=seed)
        fitted_on, source = ("real", real) if train is None else ("train", train)
        names = _shown_names(source, settings.gene_symbols, fitted_on)
        space = settings.space(real[half] if train is None else train, fitted_on)

        def sample(counts: CountsLike, name: str) -> Sample:
            return Sample.of(space, counts, name, _groups(counts, groupby, name))

        whole = sample(real, "real")
        fitted = whole.take(half) if train is None else sample(train, "train")
        if train is not None:
            _warn_of_training_cells(whole.counts, fitted.counts)
        if other_real is None:
            first, second = split_halves(labels[rest], seed=seed + 1)
            cells = {"reference": whole.take(rest[first]), "other_real": whole.take(rest[second])}
        else:
            cells = {"reference": whole.take(rest), "other_real": sample(other_real, "other_real")}
        cells["generated"], other = sample(generated, "generated"), cells["other_real"]
        drawn = cells["reference"].labels[np.isin(cells["reference"].labels, other.labels)]
        for name in (name for name in sources if name in CONTROLS):
            cells[name] = Sample.of(space, CONTROLS[name](other.counts, other.labels, drawn, seed=seed), name, drawn)
        return cls(space, fitted, fitted_on, cells, settings, groupby, names)

    @property
    def groups(self) -> list[str]:
        """List the group of all cells, then each label."""
        known = np.unique(np.concatenate([side.labels for side in self.cells.values()]).astype(str))
        return [OVERALL, *(label for label in known if label != OVERALL)]

    def pairs(self, sources: Sequence[str]) -> Iterator[tuple[Key, Pair]]:
        """Pair the reference cells of each group with equally many cells of each source, or with none."""
        settings = self.settings
        for g, group in enumerate(self.groups):
            members = {
                source: np.flatnonzero((group == OVERALL) | (side.labels == group))
                for source, side in self.cells.items()
            }
            reference = members.pop("reference")
            n = min([settings.max_cells, len(reference), *(len(rows) for rows in members.values() if len(rows))])
            for source in sources:
                rows, seeds = members[source], ([settings.seed, g], [settings.seed, g, SOURCES.index(source)])
                n_drawn = min(n, len(rows))
                x = self.cells["reference"].take(reference[subsample(len(reference), n_drawn, seeds[0])])
                y = self.cells[source].take(rows[subsample(len(rows), n_drawn, seeds[1])])
                pair = settings.pair(x, y, n_drawn, seeds)
                yield {"group": group, "source": source, "n": len(pair.real.pcs)}, pair

    def grouped_pairs(self, sources: Sequence[str]) -> dict[str, dict[str, Pair]]:
        """Return pairs by group and source: all cells, all cells for statistics within labels, and each label."""
        if any(WITHIN in side.labels for side in self.cells.values()):
            raise ValueError(
                f"obs[{self.groupby!r}] has a group {WITHIN!r}, the name of the rows within labels. Rename it."
            )
        parts: dict[str, dict[str, Pair]] = {}
        for key, pair in self.pairs(sources):
            is_all = self.groupby is not None and key["group"] == OVERALL
            for group in [OVERALL, WITHIN] if is_all else [key["group"]]:
                parts.setdefault(group, {})[key["source"]] = pair
        return parts


def _warn_of_training_cells(real: Matrix, train: Matrix) -> None:
    """Warn if more than half of the distinct rows of counts are also rows of the training cells."""
    weights = np.random.default_rng(0).integers(1 << 30, size=real.shape[1])  # equal rows have equal, exact sums
    hashes, known = (counts.astype(np.float64) @ weights for counts in (real, train))
    if np.isin(distinct := np.unique(hashes), known).sum() > len(distinct) / 2:
        copied = f"{np.isin(hashes, known).sum():,} of {len(hashes):,} real cells are also training cells"
        warn_user(f"{copied}: scores of training cells show no generalisation. Pass held-out cells.")


def _shown_names(cells: CountsLike, gene_symbols: str | None, name: str) -> pd.Index | None:
    """Return gene names for messages and figures; ``None`` for a matrix."""
    if isinstance(cells, AnnData):
        return symbols_of(cells, gene_symbols, name)
    if gene_symbols is not None:
        raise TypeError(f"`gene_symbols` is {gene_symbols!r}, but `{name}` is a matrix: pass an AnnData with `.var`.")
    return None


def _groups(cells: CountsLike, groupby: str | None, name: str) -> NDArray:
    """Return the group of each cell; one group for all by default."""
    if groupby is None:
        return np.full(cells.shape[0], OVERALL, dtype=object)
    labels = labels_of(cells, groupby, name)
    if OVERALL in labels:
        raise ValueError(f"obs[{groupby!r}] of `{name}` has a group {OVERALL!r}, the name of the row over all cells.")
    return labels


def wrong_by_label(generated: Judged, real: Judged) -> pd.DataFrame:
    """Tabulate wrong cells by label, see `Evaluation`; an exact test compares two Poisson rates, given their sum."""
    tolerated, fewest = 1.5, 20  # ratio of the shares of wrong cells, and cells of a label that is tested
    sides, rows = [pd.Series(wrong, labels.astype(str)).dropna() for labels, wrong in (generated, real)], {}
    for label in [OVERALL, *np.unique(np.concatenate([side.index for side in sides]))]:
        chosen = [side if label == OVERALL else side[side.index == label] for side in sides]
        (n, n_real), (k, k_real) = (len(side) for side in chosen), (int(side.sum()) for side in chosen)
        expected = tolerated * n / (tolerated * n + n_real)
        p_value = binomtest(k, k + k_real, expected, "greater").pvalue if k else 1.0
        apart = p_value < 0.05 and min(n, n_real) >= fewest
        rows[label] = [*(side.mean() for side in chosen), n, n_real, p_value, apart]
    columns = "share real n n_real p_value apart".split()
    return pd.DataFrame.from_dict(rows, orient="index", columns=columns).rename_axis("group")
