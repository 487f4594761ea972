"""Which experiment to do next: measure one response at a time, and predict all others from those measured so far.

``python -m benchmarks.studies.planner --data kang papalexi zhao --threads 1``

The control cells of all contexts are given. On Kang 2018 a pair is a cell type of a donor, on Zhao 2021 a tumour, and
on Papalexi 2021 a knock-out of a gene with feature vectors. The error of a stage is the squared error of the predicted
changes of all pairs not measured yet, over that of no change for all pairs; the score of an order is the area under
this curve, per experiment or per treated cell. *Planned* orders are those of `scdiffgen.tl.rank_experiments`, per
treated cell or per experiment: ranked once from the control cells, or again after each measured response.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np
import pandas as pd
from anndata import AnnData
from numpy.typing import NDArray
from scipy.spatial.distance import pdist, squareform

from benchmarks._data import FOLDER, variable_genes
from benchmarks._perturbation_data import CONTEXT, CONTROL, PAPALEXI, RESPONSE, ZHAO, gene_loadings, kang_cells, read
from benchmarks._record import start
from scdiffgen.conditions import Code
from scdiffgen.responses import ResponseEstimator, ResponsePredictor
from scdiffgen.responses._predictors import FEW, stack
from scdiffgen.tl import rank_experiments

N_GENES, N_ORDERS = 500, 20
STAGES = (0, 1, 2, 4, 8, 16, 32)  # numbers of measured pairs at which the others are predicted

Order = list[int]


class Replay(NamedTuple):
    """Pairs of contexts and perturbations that may be measured."""

    estimator: ResponseEstimator  # of all cells
    codes: NDArray[np.intp]  # (pairs, 2): of context and perturbation
    profiles: NDArray[np.float64]  # (pairs, features): between which distances are computed
    n_cells: NDArray[np.intp]  # (pairs,): treated
    truth: NDArray[np.float64]  # (pairs, genes): measured changes

    @classmethod
    def of(cls, cells: AnnData, features: pd.DataFrame | None = None) -> Replay:
        """Replay of all pairs with enough treated and control cells."""
        labels = cells.obs[RESPONSE].astype(str)
        vectors = None if features is None else dict(zip(features.index, features.to_numpy(), strict=True))
        estimator = ResponseEstimator.fit(cells.X, cells.obs[CONTEXT].astype(str), None, labels, features=vectors)
        table, codes, truth, profiles, n_cells = estimator.predictor.comparisons, [], [], [], []
        for code in range(len(estimator.names)):
            measured = table.measured(np.array([0]), {code: 1.0})
            for row in range(0 if measured is None else len(measured.change)):
                codes.append((measured.contexts[row, 0], code))
                truth.append(measured.change[row])
                n_cells.append(estimator.predictor.bulks.n_cells[measured.comparisons[row].arms[0] > 0].sum())
                profiles.append(measured.before[row] if vectors is None else vectors[estimator.names[code]])
        return cls(estimator, np.array(codes), np.stack(profiles), np.array(n_cells), np.stack(truth))

    def after(self, measured: Sequence[int]) -> ResponseEstimator:
        """Estimator of all control cells and of the treated cells of measured pairs."""
        whole = self.estimator.predictor
        bulks, known = whole.bulks, {tuple(self.codes[pair]) for pair in measured}
        treated = (bulks.interventions >= 0).any(1)
        pairs = zip(bulks.cell_context[:, 0], bulks.interventions.max(1), strict=True)
        keep = ~treated | np.array([pair in known for pair in pairs])
        fixed = ("state_loadings", "curves")  # control groups, which have the curves, are all kept
        fewer = replace(bulks, **{name: array[keep] for name, array in vars(bulks).items() if name not in fixed})
        predictor = ResponsePredictor(fewer, whole.features, whole.batches, whole.names, whole.labels)
        return replace(self.estimator, predictor=predictor)

    def planned(self, measured: Sequence[int], *, per_cell: bool) -> Order:
        """Ranked pairs that are not measured."""
        names, contexts = self.estimator.names, self.estimator.contexts
        rows = [(contexts[context], names[code]) for context, code in self.codes]
        pairs = pd.DataFrame(rows, columns=["context", "treatment"]).assign(n_cells=self.n_cells)
        left = pairs.drop(index=[*measured])
        return rank_experiments(self.after(measured), left if per_cell else left.assign(cost=1)).index.tolist()

    def planned_again(self, *, per_cell: bool) -> Order:
        """Order of which each pair is the first of a new ranking."""
        order = Order()
        while len(order) < len(self.codes):
            order.append(self.planned(order, per_cell=per_cell)[0])
        return order

    def error(self, measured: Sequence[int]) -> float:
        """Relative squared error of the pairs that are not measured."""
        predictor = self.after(measured).predictor
        left = sorted({*range(len(self.codes))} - {*measured})
        predict = self.across_contexts if predictor.features is None else self.across_perturbations
        return ((self.truth[left] - predict(predictor, left)) ** 2).sum() / (self.truth**2).sum()

    def across_perturbations(self, predictor: ResponsePredictor, pairs: Sequence[int]) -> NDArray[np.float64]:
        """Changes of pairs by the responses to other perturbations."""
        questions = [(np.array([context, Code.MISSING]), {int(code): 1.0}) for context, code in self.codes[pairs]]
        found = [predictor.change(*question) for question in questions]
        return np.array([0 * self.truth[0] if each is None else each.change for each in found])

    def across_contexts(self, predictor: ResponsePredictor, pairs: Sequence[int]) -> NDArray[np.float64]:
        """Changes of contexts, as `MeasuredContexts.predict` predicts them, with one fit of the weights for all."""
        table = predictor.comparisons
        known = table.measured(np.array([0]), {int(self.codes[0, 1]): 1.0})
        if known is None:
            return np.zeros((len(pairs), self.truth.shape[1]))
        targets = [next(table.untreated(np.array([context, Code.MISSING]))) for context in self.codes[pairs, 0]]
        if len(known.change) < FEW:
            return np.array([known.predict(target).change for target in targets])
        left_out = [
            (known.without(row)._predictions(own.before, own.untreated.state, plain=False), own.change)
            for row, own in enumerate(known.comparisons)
        ]
        predictions = [known._predictions(target.log_mean, target.state, plain=False) for target in targets]
        return np.array([stack(own, left_out, "transferred").change for own in predictions])

    def areas(self, order: Order) -> tuple[float, float]:
        """Areas under the error curve, per experiment and per treated cell, as shares of all."""
        stages = [stage for stage in STAGES if stage < len(order)]
        errors = [*(self.error(order[:stage]) for stage in stages), 0.0]
        cost = np.append(0, self.n_cells[order].cumsum()) / self.n_cells.sum()
        places = [*stages, len(order)]
        return np.trapezoid(errors, np.array(places) / len(order)), np.trapezoid(errors, cost[places])


def farthest(replay: Replay) -> Order:
    """Order by the largest distance from the pairs measured so far; the first is the farthest from the mean."""
    distances = squareform(pdist(replay.profiles))
    order = [int(np.argmax(((replay.profiles - replay.profiles.mean(0)) ** 2).sum(1)))]
    while len(order) < len(distances):
        order.append(int(np.argmax(np.where(np.isin(np.arange(len(distances)), order), -1, distances[order].min(0)))))
    return order


def kang() -> Replay:
    """Cell types of donors."""
    cells = kang_cells(FOLDER)
    cells = cells[cells.obs["donor"].astype(str) != "unassigned"].copy()
    cells.obs[CONTEXT] = cells.obs["cell_type"].astype(str) + " of " + cells.obs["donor"].astype(str)
    return Replay.of(cells[:, variable_genes(cells, N_GENES)])


def papalexi() -> Replay:
    """Knock-outs of measured genes, whose feature vectors are loadings of a PCA of all control cells."""
    cells = read(FOLDER, PAPALEXI)
    cells = cells[cells.obs["perturbation"].isin([*cells.var_names, CONTROL])].copy()
    cells.obs[RESPONSE], cells.obs[CONTEXT] = cells.obs["perturbation"].astype(str), "all"
    vectors = gene_loadings(cells[(cells.obs[RESPONSE] == CONTROL).to_numpy()])
    return Replay.of(cells, vectors.loc[sorted({*cells.obs[RESPONSE]} - {CONTROL})])


def zhao() -> Replay:
    """Tumours of donors."""
    cells = read(FOLDER, ZHAO)
    cells.obs[RESPONSE] = cells.obs["condition"].astype(str).replace({"ctrl": CONTROL})
    cells.obs[CONTEXT] = cells.obs["donor"].astype(str)
    return Replay.of(cells)


DATA: dict[str, Callable[[], Replay]] = {"kang": kang, "papalexi": papalexi, "zhao": zhao}


def main(arguments: Sequence[str] | None = None) -> None:
    """Print the areas of all orders."""
    parser = argparse.ArgumentParser("python -m benchmarks.studies.planner", description=__doc__.splitlines()[0])
    parser.add_argument("--data", nargs="+", choices=sorted(DATA), default=[*DATA])
    parser.add_argument("--threads", type=int, default=2, help="threads of everything (2)")
    options = parser.parse_args(arguments)
    start(options.threads)
    for name in options.data:
        replay = DATA[name]()
        orders = {
            "planned per cell": replay.planned([], per_cell=True),
            "planned per experiment": replay.planned([], per_cell=False),
            "planned again per cell": replay.planned_again(per_cell=True),
            "planned again per experiment": replay.planned_again(per_cell=False),
            "most cells first": np.argsort(-replay.n_cells, kind="stable").tolist(),
            "largest distance first": farthest(replay),
        }
        scores = {order: replay.areas(pairs) for order, pairs in orders.items()}
        draws = [
            replay.areas(np.random.default_rng(seed).permutation(len(replay.codes)).tolist())
            for seed in range(N_ORDERS)
        ]
        scores |= {"random, mean": np.mean(draws, axis=0), "random, best tenth": np.quantile(draws, 0.1, axis=0)}
        table = pd.DataFrame(scores, ["per experiment", "per cell"]).T
        print(f"## {name}, {len(replay.codes)} pairs\n\n{table.round(3).to_string()}\n", flush=True)


if __name__ == "__main__":
    main()
