"""Simulated counts whose truth is known."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd
from anndata import AnnData
from numpy.random import Generator
from numpy.typing import NDArray
from scipy import sparse

from ._normalise import log_per_10k
from ._truth import PERTURBATIONS, true_expression

HILL = 2.0
LIBRARY_SIZE_SD = 0.3


def simulate(
    n_cells: int = 1000,
    n_genes: int = 200,
    n_types: int = 4,
    n_batches: int = 2,
    doses: Sequence[float] = (0.1, 0.3, 1.0, 3.0, 10.0),
    library_size: float = 1000.0,
    concentration: float = 500.0,
    seed: int = 0,
) -> AnnData:
    r"""Simulate counts with cell types, batches, time, and two perturbations, alone and together, at several doses.

    The expected share of each gene is :func:`true_expression`: effects of cell type, batch, time and perturbations add
    up in the logarithm, and the response to a dose is a sigmoid for each gene. Around it the :math:`L` molecules of a
    cell are Dirichlet-multinomial,

    .. math::
        x \sim \mathrm{DirMult}(L, \alpha \pi), \quad
        \mathrm{E}\,x_g = L \pi_g, \quad
        \mathrm{Var}\,x_g = L \pi_g (1 - \pi_g) \frac{L + \alpha}{1 + \alpha},

    so that the best prediction of one more molecule of a thinned cell is known as well: Polya's urn,
    :math:`(\alpha \pi + x_t) / (\alpha + n_t)`.

    Parameters
    ----------
    n_cells, n_genes, n_types, n_batches
        How many of each. Conditions are drawn for each cell, independently and uniformly.
    doses
        Doses of a perturbation where it is present; half doses of the genes lie between 0.3 and 3.
    library_size
        Median molecules a cell; log-normal, with a standard deviation of 0.3 in the logarithm.
    concentration
        :math:`\alpha`, in molecules: the smaller, the more cells under the same conditions differ.
    seed
        The same seed gives the same cells.

    Returns
    -------
    Cells by genes; all names say that they are simulated. Cells:

    - ``X``: counts per 10,000 molecules, ``log1p``; ``layers["counts"]``: molecules; CSR, float32
    - ``obs``: ``cell_type``; ``batch``; ``time``, between 0 and 1; ``perturbation``, one of ``"control"``, ``"A"``,
      ``"B"``, ``"A+B"``; ``dose``, as text in the same order (``"0.3+10"``); ``dose_A`` and ``dose_B``, as numbers

    Truth, in the logarithm of the expected share up to a constant of each cell:

    - ``var``: ``baseline``; ``time_effect``, from time 0 to 1
    - ``varm``: ``cell_type_effect``, ``batch_effect``; ``perturbation_effect``, at saturation; ``half_dose``
    - ``uns["simulation"]``: ``concentration``, ``hill``, ``seed``

    Raises
    ------
    ValueError
        If a number of things is below 1, or a dose, library size or concentration is not positive.

    Examples
    --------
    >>> from scdiffgen.datasets import simulate
    >>> adata = simulate(n_cells=100, n_genes=20, seed=1)
    >>> sorted(adata.obs["perturbation"].cat.categories)
    ['A', 'A+B', 'B', 'control']
    """
    for name, number in (("n_cells", n_cells), ("n_genes", n_genes), ("n_types", n_types), ("n_batches", n_batches)):
        if number < 1:
            raise ValueError(f"`{name}` is {number}: pass at least 1.")
    for name, numbers in (("doses", doses), ("library_size", [library_size]), ("concentration", [concentration])):
        if len(numbers) == 0 or min(numbers) <= 0:
            raise ValueError(f"`{name}` is {numbers}: pass positive numbers.")
    rng = np.random.default_rng(seed)
    genes = _genes(n_genes, n_types, n_batches, rng)
    genes.uns["simulation"] = {"concentration": float(concentration), "hill": HILL, "seed": seed}
    obs = _conditions(n_cells, n_types, n_batches, np.asarray(doses, dtype=float), rng)

    rates = rng.standard_gamma(concentration * true_expression(genes, obs))
    library = np.maximum(np.rint(rng.lognormal(np.log(library_size), LIBRARY_SIZE_SD, n_cells)), 1).astype(np.int64)
    counts = sparse.csr_matrix(rng.multinomial(library, rates / rates.sum(axis=1, keepdims=True)), dtype=np.float32)
    return AnnData(
        X=log_per_10k(counts, library.astype(float)),
        obs=obs,
        var=genes.var,
        varm=dict(genes.varm),
        uns=dict(genes.uns),
        layers={"counts": counts},
    )


def _genes(n_genes: int, n_types: int, n_batches: int, rng: Generator) -> AnnData:
    """An AnnData of no cells that holds the truth about the genes."""
    names = pd.Index([f"simulated_gene_{i}" for i in range(n_genes)])

    def effects(columns: Sequence[str], share: float, sd: float) -> pd.DataFrame:
        """Normal effects on a share of the genes, none on the others."""
        shape = (n_genes, len(columns))
        return pd.DataFrame(rng.normal(0, sd, shape) * (rng.random(shape) < share), index=names, columns=list(columns))

    baseline = rng.normal(0, 1, n_genes)
    batch_effect = effects([f"batch_{i}" for i in range(n_batches)], share=1.0, sd=0.2)
    batch_effect["batch_0"] = 0.0
    half_dose = np.exp(rng.uniform(np.log(0.3), np.log(3.0), (n_genes, len(PERTURBATIONS))))
    time_effect = effects(["time"], share=0.2, sd=1.0)["time"].to_numpy()
    return AnnData(
        var=pd.DataFrame({"baseline": baseline, "time_effect": time_effect}, index=names),
        varm={
            "cell_type_effect": effects([f"type_{i}" for i in range(n_types)], share=0.3, sd=1.0),
            "batch_effect": batch_effect,
            "perturbation_effect": effects(PERTURBATIONS, share=0.3, sd=1.5),
            "half_dose": pd.DataFrame(half_dose, index=names, columns=list(PERTURBATIONS)),
        },
    )


def _conditions(n_cells: int, n_types: int, n_batches: int, doses: NDArray[np.float64], rng: Generator) -> pd.DataFrame:
    """One row a cell."""
    dose = rng.choice(doses, (n_cells, len(PERTURBATIONS))) * rng.integers(2, size=(n_cells, len(PERTURBATIONS)))
    given = [[(name, value) for name, value in zip(PERTURBATIONS, row, strict=True) if value] for row in dose]
    obs = pd.DataFrame(
        {
            "cell_type": [f"type_{i}" for i in rng.integers(n_types, size=n_cells)],
            "batch": [f"batch_{i}" for i in rng.integers(n_batches, size=n_cells)],
            "perturbation": ["+".join(name for name, _ in parts) or "control" for parts in given],
            "dose": ["+".join(f"{value:g}" for _, value in parts) or "0" for parts in given],
            "time": rng.random(n_cells),
            **{f"dose_{name}": dose[:, i] for i, name in enumerate(PERTURBATIONS)},
        },
        index=[f"simulated_cell_{i}" for i in range(n_cells)],
    )
    return obs.astype({"cell_type": "category", "batch": "category", "perturbation": "category"})
