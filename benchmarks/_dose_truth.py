r"""Mean log expression of simulated cells, exactly.

Of the :math:`L` molecules of a simulated cell, those of gene :math:`g` are beta-binomial with parameters
:math:`a = \alpha \pi_g` and :math:`b = \alpha (1 - \pi_g)`, so

.. math::
    \mathrm{E} \log(1 + 10^4 x_g / L) = \sum_{k=0}^{L} p_k \log(1 + 10^4 k / L), \quad
    \frac{p_{k+1}}{p_k} = \frac{(L - k)(k + a)}{(k + 1)(b + L - k - 1)}.
"""

import numpy as np
from anndata import AnnData
from numpy.typing import NDArray
from scipy.special import betaln

from scdiffgen.datasets import true_expression

REST = 1e-9  # probability of larger counts that may be left out


def true_mean(simulated: AnnData, controls: AnnData, perturbation: str, dose: float) -> NDArray[np.float64]:
    """Mean log expression that given control cells have at a dose ``(genes,)``."""
    conditions = controls.obs.assign(dose_A=0.0, dose_B=0.0).assign(**{f"dose_{perturbation}": dose})
    shares = true_expression(simulated, conditions)
    library = np.asarray(controls.layers["counts"].sum(1)).ravel()
    return expected_log_expression(shares, library, simulated.uns["simulation"]["concentration"]).mean(0)


def expected_log_expression(
    shares: NDArray[np.float64], library: NDArray[np.float64], concentration: float
) -> NDArray[np.float64]:
    """Expected log(1 + counts per 10,000) of Dirichlet-multinomial cells ``(cells, genes)``."""
    total = library[:, None]
    alpha, beta = concentration * shares, concentration * (1 - shares)
    probability = np.exp(betaln(alpha, beta + total) - betaln(alpha, beta))
    expected, covered = np.zeros_like(shares), np.zeros_like(shares)
    for k in range(int(library.max()) + 1):
        expected += probability * np.log1p(1e4 * k / total)
        covered += probability
        if covered.min() > 1 - REST:
            break
        probability = probability * (total - k).clip(0) * (k + alpha) / ((k + 1) * (beta + total - k - 1).clip(1e-300))
    return expected
