"""Scores of every group and source: who is compared with whom, in what numbers."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from scdiffgen.metrics._input import FewCellsWarning
from scdiffgen.metrics._manifold import compare_novelty
from scdiffgen.metrics._prepare import OVERALL, SOURCES, Source
from scdiffgen.metrics._resampling import bootstrap_weights, subsample
from scdiffgen.metrics._scores import Cells, Pair, score_pair

OF_TRAIN = {"novelty", "too_close"}  # metrics that need training cells

Shortages: TypeAlias = dict[tuple[str, ...], dict[str, dict[Source, int]]]
"""Cells of each source, by metrics that need more and by group."""


@dataclass(frozen=True)
class Comparison:
    """Cells of the reference and of every source, their groups, and how they are compared."""

    reference: Cells
    sources: Mapping[Source, Cells]
    reference_labels: NDArray
    source_labels: Mapping[Source, NDArray]
    genes: NDArray[np.intp]
    max_cells: int
    n_bootstrap: int
    n_trees: int
    n_jobs: int
    seed: int

    def score(self, wanted: tuple[str, ...]) -> pd.DataFrame:
        """Score all groups and sources; warns once of what lacks cells."""
        if OF_TRAIN & set(wanted) and "generated" in self.sources:
            found, expected = self.sources["generated"].to_train, self.reference.to_train
            if len(found) and len(expected):
                compare_novelty(found, expected)
        labels = np.unique(np.concatenate([self.reference_labels, *self.source_labels.values()]).astype(str))
        groups = [OVERALL, *(label for label in labels if label != OVERALL)]
        rows: list[dict[str, float]] = []
        short: Shortages = {}
        for g, group in enumerate(groups):
            for source, pair in self._pairs(group, g).items():
                scores, missing = score_pair(pair, wanted)
                rows.append({"n": len(pair.real.pcs), **scores})
                if missing:
                    short.setdefault(tuple(missing), {}).setdefault(group, {})[source] = len(pair.real.pcs)
        if short:
            listed = "; ".join(_in_words(names, groups, len(self.sources)) for names, groups in short.items())
            warnings.warn(f"NaN for want of cells: {listed}.", FewCellsWarning, stacklevel=3)
        bounds = [f"{name}_{end}" for name in wanted for end in ("low", "high")] if self.n_bootstrap else []
        index = pd.MultiIndex.from_product([groups, list(self.sources)], names=["group", "source"])
        return pd.DataFrame(rows, index=index, columns=["n", *wanted, *bounds])

    def _pairs(self, group: str, g: int) -> dict[Source, Pair]:
        """Pair the reference cells of a group with equally many of each source, or with none where there are none."""
        reference = _members(self.reference_labels, group)
        members = {source: _members(labels, group) for source, labels in self.source_labels.items()}
        n = min([self.max_cells, len(reference), *(len(rows) for rows in members.values() if len(rows))])
        pairs = {}
        for source in self.sources:
            rows = members[source]
            s, size = SOURCES.index(source), min(n, len(rows))
            rng = np.random.default_rng([self.seed, g, s])
            pairs[source] = Pair(
                real=self.reference.take(reference[subsample(len(reference), size, [self.seed, g])]),
                generated=self.sources[source].take(rows[subsample(len(rows), size, [self.seed, g, s])]),
                real_weights=bootstrap_weights(size, self.n_bootstrap, rng),
                generated_weights=bootstrap_weights(size, self.n_bootstrap, rng),
                genes=self.genes,
                n_trees=self.n_trees,
                n_jobs=self.n_jobs,
                seed=self.seed,
            )
        return pairs


def _in_words(names: tuple[str, ...], groups: Mapping[str, Mapping[Source, int]], n_sources: int) -> str:
    """Metrics, the groups in which they lack cells, and the sources if it is not all of them."""
    found = []
    for group, cells in groups.items():
        sources = "" if len(cells) == n_sources else f"{' and '.join(cells)}: "
        found.append(f"{group} ({sources}{min(cells.values())} cells)")
    return f"{', '.join(names)} of {', '.join(found)}"


def _members(labels: NDArray, group: str) -> NDArray[np.intp]:
    return np.arange(len(labels)) if group == OVERALL else np.flatnonzero(labels == group)
