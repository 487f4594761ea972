"""What pertpy and cell-eval say of predicted responses, beside this package's scores of the same cells.

Run from the repository, in an environment with scdiffgen, pertpy and cell-eval:
``python -m benchmarks.external.judges --task kang --types "B cells" --external NAME=FOLDER``. Of real, predicted and
control cells, at most ``--max-cells`` each are taken; the benchmark halves the real ones, so its numbers are others.
Scores of one definition have to be equal and are checked; of the others, both are shown.
"""

import argparse
import tempfile
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
import pandas as pd
from anndata import AnnData
from numpy.typing import NDArray
from scipy import sparse
from scipy.spatial.distance import cdist

from scdiffgen._log_normalise import log_normalise
from scdiffgen.metrics import ExpressionSpace, energy_distance, mmd, pearson_delta, wasserstein
from scdiffgen.metrics import _response as scores
from scdiffgen.metrics._distances import MMD_SCALES, median_squared_distance
from scdiffgen.metrics._resampling import subsample

Array = NDArray[np.float64]
PERTURBATION, CONTROL = "perturbation", "control"
TOLERANCE = 1e-4  # relative: the judges compute in single precision where cells are
DE = {
    "overlap_at_100": "de_overlap",
    "de_direction_match": "sign_agreement",
    "de_spearman_lfc_sig": "fold_change_spearman",
}
DE |= {"pr_auc": "de_pr_auc"}


class Verdict(NamedTuple):
    """A score by a judge, and ours by the judge's definition; if there is no such, ``same`` is false."""

    judge: str
    score: str
    theirs: float
    ours: float
    same: bool = True


def of_pertpy(real: Array, predicted: Array, control: Array) -> Iterator[Verdict]:
    """Distances by pertpy of cells ``(cells, dimensions)``, and ours.

    pertpy averages over all pairs, also of a cell with itself; ours are unbiased. What the former adds is added here.
    """
    from pertpy.tools import Distance

    sides = real, predicted

    def theirs(name: str, *cells: Array, **options: object) -> float:
        return float(Distance(name)(*(cells or sides), **options))

    equal_cells = sum(cdist(side, side).mean() / (len(side) - 1) for side in sides)
    yield Verdict("pertpy", "edistance", theirs("edistance"), energy_distance(*sides) + equal_cells)
    gammas = [1 / (scale * median_squared_distance(real)) for scale in MMD_SCALES]
    kernels = [[np.exp(-gamma * cdist(side, side, "sqeuclidean")).mean() for gamma in gammas] for side in sides]
    equal_cells = sum((1 - np.mean(of_side)) / (len(side) - 1) for of_side, side in zip(kernels, sides, strict=True))
    of_kernels = [theirs("mmd", kernel="rbf", gamma=gamma) for gamma in gammas]
    yield Verdict("pertpy", "mmd, mean of five rbf", float(np.mean(of_kernels)), mmd(*sides) + equal_cells)
    mean = control.mean(axis=0)
    correlation = pearson_delta(real.mean(0) - mean, predicted.mean(0) - mean)
    yield Verdict(
        "pertpy",
        "pearson_distance of changes",
        theirs("pearson_distance", real - mean, predicted - mean),
        1 - correlation,
    )
    unweighted = scores.weighted_mse(real.mean(0), predicted.mean(0), np.ones(real.shape[1]))
    yield Verdict("pertpy", "mse", theirs("mse"), unweighted)
    yield Verdict("pertpy", "wasserstein, ours squared", theirs("wasserstein"), wasserstein(*sides) ** 2, same=False)


def of_cell_eval(real: AnnData, predicted: AnnData) -> Iterator[Verdict]:
    """Scores by cell-eval of log-normalised cells with the same controls, and ours: means over perturbations."""
    from cell_eval._types import PerturbationAnndataPair
    from cell_eval.metrics import discrimination_score, mse
    from cell_eval.metrics import pearson_delta as their_pearson_delta

    pair = PerturbationAnndataPair(real=real, pred=predicted, pert_col=PERTURBATION, control_pert=CONTROL)
    names = [str(name) for name in pair.perts]
    before = mean_of(real, CONTROL)
    truth, answer = (np.array([mean_of(cells, name) - before for name in names]) for cells in (real, predicted))
    ours = np.mean([pearson_delta(x, y) for x, y in zip(truth, answer, strict=True)])
    yield Verdict("cell-eval", "pearson_delta", float(np.mean([*their_pearson_delta(pair).values()])), float(ours))
    unweighted = [scores.weighted_mse(x, y, np.ones(len(x))) for x, y in zip(truth, answer, strict=True)]
    yield Verdict("cell-eval", "mse", float(np.mean([*mse(pair).values()])), float(np.mean(unweighted)))
    if len(names) > 1:
        theirs = discrimination_score(pair, metric="cosine", exclude_target_gene=False)
        ranks = [scores.discrimination_score(truth, y, own) for own, y in enumerate(answer)]
        of_all = 1 - (1 - np.mean(ranks)) * (len(names) - 1) / len(names)  # ours is a fraction of the others
        yield Verdict("cell-eval", "discrimination_score_cosine", float(np.mean([*theirs.values()])), float(of_all))


def of_cell_eval_genes(real: AnnData, predicted: AnnData) -> Iterator[Verdict]:
    """Scores of responding genes: cell-eval tests predicted cells too and takes linear fold changes, ours do not."""
    from cell_eval import MetricsEvaluator

    with tempfile.TemporaryDirectory() as folder:
        options = {"control_pert": CONTROL, "pert_col": PERTURBATION, "num_threads": 1, "outdir": folder}
        results, _ = MetricsEvaluator(predicted, real, **options).compute(profile="de", write_csv=False)
    theirs = results.to_pandas().set_index("perturbation")
    for name in theirs.index:
        before = mean_of(real, CONTROL)
        truth, answer = (mean_of(cells, name) - before for cells in (real, predicted))
        treated, control = (real.X[(real.obs[PERTURBATION] == group).to_numpy()] for group in (name, CONTROL))
        called = scores.rank_genes(treated, control).significant
        ours = {
            "de_overlap": scores.de_overlap(truth, answer),
            "sign_agreement": scores.sign_agreement(truth, answer, called),
            "fold_change_spearman": scores.fold_change_spearman(truth, answer, called),
            "de_pr_auc": scores.de_pr_auc(called, answer),
        }
        for judged, own in DE.items():
            yield Verdict("cell-eval", f"{judged}, ours {own}", float(theirs.at[name, judged]), ours[own], same=False)


def mean_of(cells: AnnData, name: str) -> Array:
    """Mean expression of the cells of a perturbation."""
    return scores.mean_expression(sparse.csr_matrix(cells.X[(cells.obs[PERTURBATION] == name).to_numpy()]))


def with_controls(cells: sparse.csr_matrix, control: sparse.csr_matrix, genes: pd.Index, name: str) -> AnnData:
    """Log-normalised cells of a perturbation and controls, as cell-eval takes them."""
    obs = pd.DataFrame({PERTURBATION: np.repeat([name, CONTROL], [cells.shape[0], control.shape[0]])}).astype(
        "category"
    )
    obs.index = obs.index.astype(str)
    return AnnData(sparse.vstack([cells, control], format="csr", dtype=np.float32), obs, pd.DataFrame(index=genes))


def main(arguments: Sequence[str] | None = None) -> None:
    from benchmarks._data import FOLDER
    from benchmarks._external import LOGGED, add_external_argument
    from benchmarks._perturbation_data import CONTEXT, RESPONSE
    from benchmarks._perturbation_tasks import TASKS
    from benchmarks.perturbation import external_predictions

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--task", choices=TASKS, default="kang")
    parser.add_argument("--types", nargs="+", help="what was held out (all)")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--max-cells", type=int, default=500)
    add_external_argument(parser)
    options = parser.parse_args(arguments)
    rows = []
    for fold in TASKS[options.task].folds(FOLDER, options.types):
        space = ExpressionSpace.fit(fold.train)
        for name, cells in external_predictions(dict(options.external), options.task, fold, options.seed).items():
            for target in fold.targets:
                sides = []
                for side, response in ((fold.real, target.response), (cells, target.response), (fold.train, CONTROL)):
                    own = (side.obs[RESPONSE] == response) & (side.obs[CONTEXT] == target.context)
                    values = side.X[own.to_numpy()]
                    values = values if LOGGED in side.uns else log_normalise(values)
                    sides.append(sparse.csr_matrix(values[subsample(values.shape[0], options.max_cells, options.seed)]))
                named = [with_controls(side, sides[2], space.genes, target.response) for side in sides[:2]]
                expression = [side.toarray().astype(np.float64) for side in sides]
                in_components = of_pertpy(*map(space.project, expression))
                verdicts = [*in_components, *of_cell_eval(*named), *of_cell_eval_genes(*named)]
                rows += [{"prediction": name, "context": target.context, **verdict._asdict()} for verdict in verdicts]
    table = pd.DataFrame(rows)
    print(table.drop(columns="same").to_string(index=False, float_format=lambda value: f"{value:.4g}"))
    wrong = table[table["same"] & ~np.isclose(table["theirs"], table["ours"], rtol=TOLERANCE, atol=1e-6)]
    if len(wrong):
        raise SystemExit(f"{len(wrong)} scores of one definition differ:\n{wrong.to_string(index=False)}")


if __name__ == "__main__":
    main()
