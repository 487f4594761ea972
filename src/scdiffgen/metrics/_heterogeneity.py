"""How differently cells respond: scores of single cells along the real response, their spread, and cells without."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from scdiffgen._log_normalise import library_sizes, log_normalise
from scdiffgen._shared_docs import shared_docs

from ._input import FEWEST_CELLS, CountsLike, as_count_pair, enough_cells
from ._response import Called, Vector, mean_expression, rank_genes

UNTREATED = 0.95  # quantile of the scores of untreated cells below which a treated one counts as not responding


class ResponseHeterogeneity(NamedTuple):
    """How differently predicted cells respond, beside real ones; see `response_heterogeneity`."""

    strength: float
    spread: float
    non_responders: float
    non_responders_real: float

    @property
    def non_responders_error(self) -> float:
        """How far the fraction of predicted cells without a response is from the real one."""
        return abs(self.non_responders - self.non_responders_real)


UNDEFINED = ResponseHeterogeneity(*[float("nan")] * 4)


@shared_docs
def response_heterogeneity(
    real: CountsLike, predicted: CountsLike, control: CountsLike, *, layer: str | None = None, seed: int = 0
) -> ResponseHeterogeneity:
    r"""Compare how differently predicted and real treated cells respond, which no mean shows.

    The response of a cell x of log(1 + counts per 10,000) is its projection on the mean change :math:`\Delta` from
    untreated (mean :math:`\mu`) to real treated cells, over the genes that respond (the Wilcoxon test of
    `perturbation_report`): :math:`s = (x - \mu) \cdot \Delta / |\Delta|^2`. It is 0 of the mean untreated and 1 of the
    mean real treated cell.

    The spread of the scores leaves out sampling noise: the molecules of each cell are divided at random into two
    halves, and the covariance of their scores over the cells is the variance that is not noise. A parabola in the
    logarithm of the library size is subtracted first. What remains is how differently cells respond, and what they
    expressed of these genes before. It is about 10 % too large for cells with a tenth of the molecules of the others.

    Parameters
    ----------
    real, predicted
        Counts of real and of predicted treated cells of one type; genes are aligned by name.
    control
        Counts of untreated cells of that type.
    {draws}

    Returns
    -------
    strength
        Mean score of the predicted cells, best 1.
    spread
        Standard deviation of the scores of predicted over that of real treated cells, without sampling noise, best 1;
        NaN if real cells do not vary.
    non_responders, non_responders_real
        Fractions of predicted and of real treated cells with a score below that of 95 % of the untreated ones.
        Sampling noise is in these.

    All are NaN if no gene responds, or with a warning for fewer than ten cells of a sample.

    Examples
    --------
    >>> import numpy as np
    >>> rng, rates = np.random.default_rng(0), np.full(30, 10.0)
    >>> induced = np.where(np.arange(30) < 5, 4.0, 1.0)
    >>> control, predicted = rng.poisson(rates, (200, 30)), rng.poisson(rates * induced, (200, 30))
    >>> real = np.vstack([rng.poisson(rates * induced, (140, 30)), rng.poisson(rates, (60, 30))])
    >>> found = response_heterogeneity(real, predicted, control)
    >>> bool(found.spread < 0.2), found.non_responders, round(found.non_responders_real, 1)
    (True, 0.0, 0.3)
    """
    first, second = as_count_pair(real, predicted, layer=layer, names=("real", "predicted"))
    _, untreated = as_count_pair(real, control, layer=layer, names=("real", "control"))
    n_cells = {"real": first.shape[0], "predicted": second.shape[0], "control": untreated.shape[0]}
    if not enough_cells("response_heterogeneity", FEWEST_CELLS, **n_cells):
        return UNDEFINED
    responding = rank_genes(_expression(first), _expression(untreated)).significant
    return RealResponse(first, untreated, responding, seed).compare(second)


@dataclass(frozen=True)
class RealResponse:
    """Real treated and untreated cells, counts ``(cells, genes)``, along whose response others are scored."""

    treated: sparse.csr_matrix
    control: sparse.csr_matrix
    responding: Called
    seed: int

    def compare(self, counts: sparse.csr_matrix | None, shift: Vector | None = None) -> ResponseHeterogeneity:
        """Of predicted cells, or of cells to whose log expression a ``shift`` is added; NaN without counts."""
        if counts is None or not self.responding.any():
            return UNDEFINED
        scores = self._scores(counts) + (0.0 if shift is None else shift @ self._direction)
        low, real = self._threshold, self._variance
        spread = np.sqrt(max(self.noiseless_variance(counts), 0.0) / real) if real > 0 else float("nan")
        missing = (self._scores(self.treated) < low).mean()
        return ResponseHeterogeneity(*map(float, (scores.mean(), spread, (scores < low).mean(), missing)))

    @cached_property
    def _direction(self) -> Vector:
        after, before = (mean_expression(_expression(cells)) for cells in (self.treated, self.control))
        change = np.where(self.responding, after - before, 0.0)
        return change / (change @ change)

    @cached_property
    def _origin(self) -> float:
        return float(mean_expression(_expression(self.control)) @ self._direction)

    @cached_property
    def _threshold(self) -> float:
        return float(np.quantile(self._scores(self.control), UNTREATED))

    @cached_property
    def _variance(self) -> float:
        return self.noiseless_variance(self.treated)

    def _scores(self, counts: sparse.csr_matrix) -> NDArray[np.float64]:
        return np.asarray(_expression(counts) @ self._direction, dtype=np.float64).ravel() - self._origin

    def noiseless_variance(self, counts: sparse.csr_matrix) -> float:
        """Covariance of the scores of two halves of the molecules, at a given library size; mean of five splits."""
        size = np.log(np.maximum(library_sizes(counts), 1))
        of_size = np.linalg.svd(np.vander(size - size.mean(), 3), full_matrices=False)
        curves = of_size.U[:, of_size.S > 1e-8 * of_size.S.max()]
        rng, found = np.random.default_rng(self.seed), []
        for _ in range(5):
            first = counts.copy()
            first.data = rng.binomial(counts.data.astype(np.int64), 0.5).astype(counts.dtype)
            one, other = (score - curves @ (curves.T @ score) for score in map(self._scores, (first, counts - first)))
            found.append(one @ other / max(len(size) - curves.shape[1], 1))
        return float(np.mean(found))


def _expression(counts: sparse.csr_matrix) -> sparse.csr_matrix:
    return log_normalise(counts, dtype=np.float32)
