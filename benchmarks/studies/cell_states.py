"""What the states of cells tell of the response of an identity, on the cells of the published benchmark.

``python -m benchmarks.studies.cell_states --task types``

Mean log expression alone: no counts are drawn and no network is trained. A type, or a donor, is left out in turn, and
its mean change is predicted from the others by

- the mean change of similar ones, as differences of logarithms or of fourth roots, with falls as differences or in the
  same ratio; similar in all genes alike, or in those that respond above all;
- the same, and what slopes on states say of how it is unlike them, with all genes or those that hardly respond in the
  states, and 10, 20 or 40 of these;
- a ridge regression of single cells on states, treated and untreated, in place of means;
- the linear combination of the mean changes of the others that is nearest to the *true* change: what no weights of
  pseudobulks can do better than.

``--inner`` leaves out one more type or donor, and scores that: for choices.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from sklearn.decomposition import PCA

from benchmarks._data import FOLDER
from benchmarks._published_cells import CONDITION, CONTEXT, PREPARE, STIMULATED, Prepared
from benchmarks._record import start
from scdiffgen.conditions import Code
from scdiffgen.responses import Pseudobulks
from scdiffgen.responses._candidates import from_contexts, kernel_weights
from scdiffgen.responses._cell_states import StateSlopes, hardly_respond, state_slopes
from scdiffgen.responses._library_sizes import N_SIZES, of_genes

N_STATES, N_RESPONDING, PENALTY = (10, 20, 40), 100, 10.0
Floats = NDArray[np.float64]


class Cells(NamedTuple):
    """Log expression, the identity of each cell, and whether it was treated."""

    expression: NDArray[np.float32]
    context: NDArray[np.str_]
    treated: NDArray[np.bool_]

    @classmethod
    def of(cls, prepared: Prepared) -> Cells:
        """Those of the benchmark, the genes that it scores."""
        obs = prepared.counts.obs
        expression = prepared.expression(prepared.counts).astype(np.float32)
        return cls(expression, obs[CONTEXT].to_numpy().astype(str), (obs[CONDITION] == STIMULATED).to_numpy())

    def rows(self, context: str, *, treated: bool) -> NDArray[np.intp]:
        """Positions of the cells of an identity."""
        return np.flatnonzero((self.context == context) & (self.treated == treated))

    def without(self, context: str) -> Cells:
        """All but one identity."""
        kept = self.context != context
        return Cells(*(array[kept] for array in self))


def pseudobulks(cells: Cells, contexts: Sequence[str], loadings: NDArray[np.float32]) -> Pseudobulks:
    """Treated and untreated cells of each identity, by turns; counts and curves are not needed here."""
    groups = [cells.expression[cells.rows(name, treated=treated)] for name in contexts for treated in (True, False)]
    means = np.stack([group.mean(0) for group in groups]).astype(np.float64)
    apart = [group - group.mean(0) for group in groups]
    covariance = np.stack([(each @ loadings).T @ each / len(each) for each in apart])
    variances = np.stack([(each**2).mean(0) for each in apart])
    interventions = np.tile([[0], [Code.ABSENT]], (len(contexts), 1))
    n_cells, none = np.array([len(group) for group in groups]), np.zeros(len(groups))
    identity = np.repeat(np.arange(len(contexts)), 2)[:, None]
    of_groups = (identity, interventions, (interventions >= 0).astype(float), n_cells, means, means, means, variances)
    return Pseudobulks(*of_groups, none, none, covariance, loadings, none, none)


def components(untreated: NDArray[np.float32], genes: NDArray[np.bool_], n_states: int) -> NDArray[np.float32]:
    """Leading principal components, of some genes ``(genes, states)``."""
    loadings = np.zeros((len(genes), n_states), dtype=np.float32)
    pca = PCA(n_states, svd_solver="randomized", random_state=0).fit(untreated[:, genes])
    loadings[genes] = pca.components_.T
    return loadings


def predictions(cells: Cells, left_out: str) -> Iterator[tuple[str, Floats]]:
    """Changes of mean log expression of an identity whose treated cells are not looked at, by name."""
    others = sorted(set(cells.context) - {left_out})
    untreated = cells.expression[~cells.treated]
    none = np.zeros((untreated.shape[1], 0), dtype=np.float32)
    bulks = pseudobulks(cells, others, none)
    change, before = bulks.log_mean[::2] - bulks.log_mean[1::2], bulks.log_mean[1::2]
    here = cells.expression[cells.rows(left_out, treated=False)].mean(0).astype(np.float64)
    roots, levels = (np.expm1(array.clip(0)) ** 0.25 for array in (before + change, before))
    of_genes_that = {"similar": np.ones(len(here)), "similar where genes respond": np.abs(change.mean(0))}
    for name, gene_weights in of_genes_that.items():
        weights = kernel_weights(_uncorrelated(before, here, gene_weights))
        moved = np.log1p(np.maximum(np.expm1(here) ** 0.25 + weights @ (roots - levels), 0) ** 4) - here
        yield name, weights @ change
        yield f"{name}, roots", moved
    of_means = [_with_sizes(means) for means in (before, change, here)]
    for name, made in from_contexts(*of_means, StateSlopes(none, np.zeros((0, len(here))))).items():
        if name.startswith("similar"):
            yield f"{name}, falls in a ratio", of_genes(made)
    numbers = np.zeros((len(others), 2, len(bulks.n_cells)))
    for i in range(len(others)):
        numbers[i, [0, 1], [2 * i, 2 * i + 1]] = bulks.n_cells[2 * i : 2 * i + 2]
    for genes, which in (("all genes", np.ones(len(here), dtype=bool)), ("stable genes", hardly_respond(bulks))):
        every = components(untreated, which, max(N_STATES))
        for n_states in N_STATES:
            loadings = every[:, :n_states].copy()
            with_states = pseudobulks(cells, others, loadings)
            slopes = state_slopes(with_states, np.arange(len(bulks.n_cells)), numbers, before, change)
            made = of_genes(from_contexts(*of_means, slopes)["similar contexts, by state"])
            yield f"by state, {n_states} of {genes}", made
            if n_states == N_STATES[0]:
                yield f"ridge of cells on {n_states} states of {genes}", _of_cells(cells, left_out, loadings)


def _uncorrelated(before: Floats, here: Floats, gene_weights: Floats) -> Floats:
    """One minus the correlation over weighted genes ``(contexts,)``."""
    covariance = np.cov(np.vstack([before, here]), aweights=gene_weights)
    sizes = np.sqrt(np.diag(covariance))
    return np.asarray(1 - covariance[-1, :-1] / (sizes[-1] * sizes[:-1]))


def _with_sizes(means: Floats) -> Floats:
    """Means of genes, and numbers of library sizes that stay as they are."""
    return np.pad(means, [*[(0, 0)] * (means.ndim - 1), (0, N_SIZES)])


def _of_cells(cells: Cells, left_out: str, loadings: NDArray[np.float32]) -> Floats:
    """Difference of two ridge regressions of single cells on their states, at the mean untreated state."""
    at = np.append(cells.expression[cells.rows(left_out, treated=False)].mean(0) @ loadings, 1.0)
    fitted = []
    for treated in (True, False):
        expression = cells.expression[(cells.treated == treated) & ((cells.context != left_out) | ~cells.treated)]
        states = np.column_stack([expression @ loadings, np.ones(len(expression))])
        gram = states.T @ states + PENALTY * np.eye(states.shape[1])
        fitted.append(at @ np.linalg.solve(gram, states.T @ expression))
    return np.asarray(fitted[0] - fitted[1], dtype=np.float64)


def scores(cells: Cells, left_out: str) -> pd.DataFrame:
    """Pearson and squared error of every prediction, in all genes and in those that respond most."""
    real, control = (cells.expression[cells.rows(left_out, treated=treated)] for treated in (True, False))
    truth = real.mean(0, dtype=np.float64) - control.mean(0, dtype=np.float64)
    chance = np.sqrt(real.var(0) / len(real) + control.var(0) / len(control)) + 1e-9
    most = np.argsort(-np.abs(truth) / chance)[:N_RESPONDING]
    known = sorted(set(cells.context) - {left_out})
    bulks = pseudobulks(cells, known, np.zeros((len(truth), 0), dtype=np.float32))
    changes = bulks.log_mean[::2] - bulks.log_mean[1::2]
    best = np.linalg.lstsq(changes.T, truth, rcond=None)[0] @ changes
    rows = []
    for name, made in [*predictions(cells, left_out), ("nearest combination to the truth", best)]:
        row = {"prediction": name, "left_out": left_out}
        for which, genes in (("all", np.arange(len(truth))), (f"top {N_RESPONDING}", most)):
            row[f"Pearson, {which}"] = np.corrcoef(made[genes], truth[genes])[0, 1]
            row[f"MSE, {which}"] = ((made[genes] - truth[genes]) ** 2).mean()
        rows.append(row)
    return pd.DataFrame(rows)


def task_scores(cells: Cells, *, inner: bool) -> pd.DataFrame:
    """Scores of everything that is left out in turn; inner ones without the next identity."""
    contexts = sorted(set(cells.context))
    if not inner:
        return pd.concat([scores(cells, name) for name in contexts])
    outer = [*contexts[1:], contexts[0]]
    return pd.concat([scores(cells.without(out), name) for name, out in zip(contexts, outer, strict=True)])


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser("python -m benchmarks.studies.cell_states", description=__doc__.splitlines()[0])
    parser.add_argument("--task", choices=list(PREPARE), default="types")
    parser.add_argument("--inner", action="store_true", help="leave out one more")
    parser.add_argument("--threads", type=int, default=2, help="threads of everything (2)")
    options = parser.parse_args(arguments)
    start(options.threads)
    rows = task_scores(Cells.of(PREPARE[options.task](FOLDER)), inner=options.inner)
    print(rows.groupby("prediction", sort=False).mean(numeric_only=True).round(4).to_string())


if __name__ == "__main__":
    main()
