"""Simulated RNA and protein of the same cells."""

import warnings

import numpy as np
import pandas as pd
from anndata import AnnData
from mudata import MuData

from ._simulate import LIBRARY_SIZE_SD, check_numbers, drawn_molecules


def simulate_cite(
    n_cells: int = 500,
    n_genes: int = 100,
    n_proteins: int = 10,
    n_types: int = 3,
    library_sizes: tuple[float, float] = (500.0, 2000.0),
    seed: int = 0,
) -> MuData:
    r"""Simulate RNA and protein counts that depend on the cell type and on an activity that varies within types.

    The activity :math:`z` of a cell is standard normal. The expected share of a gene or protein is
    :math:`\exp(b + t_{\text{type}} + z \, w)`, normalised over genes or proteins, so :math:`z` correlates protein and
    RNA within cell types. The molecules of each modality are Dirichlet-multinomial with concentration 300. Library
    sizes are log-normal; those of protein increase with :math:`z`.

    Parameters
    ----------
    n_cells, n_genes, n_proteins, n_types
        Numbers of cells, genes, proteins and cell types.
    library_sizes
        Median numbers of molecules per cell, of RNA and of protein.
    seed
        Random seed: the same seed gives the same cells.

    Returns
    -------
    Modalities ``"rna"`` and ``"protein"``, counts in ``.X`` (CSR, float32); the truth in ``.obs["cell_type"]`` and
    ``.obs["activity"]`` of the whole, and in ``.layers["share"]``, the expected shares, of each modality.

    Raises
    ------
    ValueError
        If a number of cells, genes, proteins or types is below 1, or a library size is not positive.

    Examples
    --------
    >>> from scdiffgen.datasets import simulate_cite
    >>> mdata = simulate_cite(n_cells=50)
    >>> {name: modality.shape for name, modality in mdata.mod.items()}
    {'rna': (50, 100), 'protein': (50, 10)}
    """
    check_numbers(n_cells=n_cells, n_genes=n_genes, n_proteins=n_proteins, n_types=n_types)
    if len(library_sizes) != 2 or min(library_sizes) <= 0:
        raise ValueError(f"`library_sizes` is {library_sizes}: pass two positive numbers.")
    rng = np.random.default_rng(seed)
    of_cells, activity = rng.integers(n_types, size=n_cells), rng.standard_normal(n_cells)
    obs = pd.DataFrame(
        {"cell_type": pd.Categorical([f"type_{i}" for i in of_cells]), "activity": activity},
        index=[f"simulated_cell_{i}" for i in range(n_cells)],
    )
    parts = {}
    slopes = {"rna": 0.0, "protein": 0.3}
    for (name, slope), n_vars, median in zip(slopes.items(), (n_genes, n_proteins), library_sizes, strict=True):
        of_type = rng.normal(0, 1, (n_types, n_vars)) * (rng.random((n_types, n_vars)) < 0.4)
        weights = rng.normal(0, 1, n_vars) * (rng.random(n_vars) < 0.5)
        logits = rng.normal(0, 1, n_vars) + of_type[of_cells] + activity[:, None] * weights
        shares = np.exp(logits) / np.exp(logits).sum(1, keepdims=True)
        library = np.maximum(np.exp(np.log(median) + slope * activity + rng.normal(0, LIBRARY_SIZE_SD, n_cells)), 1)
        rates = rng.standard_gamma(300.0 * shares)
        parts[name] = AnnData(
            drawn_molecules(rates, np.rint(library).astype(int), rng),
            obs=pd.DataFrame(index=obs.index),
            var=pd.DataFrame(index=[f"simulated_{name}_{i}" for i in range(n_vars)]),
            layers={"share": shares.astype(np.float32)},
        )
    with warnings.catch_warnings(action="ignore", category=FutureWarning):  # of mudata 0.3
        mdata = MuData(parts)
    for column, values in obs.items():
        mdata.obs[column] = values
    return mdata
