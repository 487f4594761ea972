"""Data sets: bundled real counts, and simulated counts with known truth in closed form."""

import warnings
from collections.abc import Sequence

import numpy as np
import pandas as pd
from anndata import AnnData
from mudata import MuData
from numpy.random import Generator
from numpy.typing import NDArray
from scipy import sparse
from scipy.special import softmax

from scdiffgen._log_normalise import log_normalise

__all__ = ["pbmc68k", "simulate", "simulate_cite", "true_expression"]

PERTURBATIONS = ("A", "B")
LIBRARY_SIZE_SD = 0.3


def pbmc68k() -> AnnData:
    r"""Load counts of 700 human blood cells of 10 cell types and 765 genes, without a download.

    The cells are :func:`scanpy.datasets.pbmc68k_reduced`, a selection from the 68,000 of
    :cite:p:`zheng2017massively`. It holds normalised expression, :math:`r = \log(1 + 10^4 \, k / n)` rounded to three
    decimals, and the number of molecules :math:`n` of each cell over all genes; the counts :math:`k` are the whole
    numbers nearest to :math:`n (e^r - 1) / 10^4`. The rounding of :math:`r` moves none of them by more than 0.09, so
    they are exact.

    The 765 genes hold 11 to 28 % of the molecules of a cell; other genes are not in the data set.

    Returns
    -------
    Cells by genes, with

    - ``X``: expression per 10,000 molecules of all genes, ``log1p``; CSR
    - ``layers["counts"]``: molecules, whole numbers as float32; CSR
    - ``obs["cell_type"]``: the cell type of the purified sample nearest to the cell
    - ``obs``: ``n_counts`` and ``n_genes`` (over all genes), ``percent_mito``, ``phase``, ``S_score``, ``G2M_score``
      (cell cycle), ``louvain`` (clusters)
    - ``obsm["X_pca"]``, ``obsm["X_umap"]``: as scanpy computed them
    - ``uns["cell_type_colors"]``: scanpy's colours

    Examples
    --------
    >>> import scdiffgen
    >>> adata = scdiffgen.datasets.pbmc68k()
    >>> adata.shape
    (700, 765)
    >>> int(adata.layers["counts"].sum())
    486651
    """
    import scanpy as sc

    reduced = sc.datasets.pbmc68k_reduced()
    library = reduced.obs["n_counts"].to_numpy(dtype=np.float64)
    per_10k = sparse.csr_matrix(reduced.raw.X, dtype=np.float64).expm1()
    counts = (sparse.diags(library / 1e4) @ per_10k).rint()

    adata = AnnData(
        X=log_normalise(counts, library=library).astype(np.float32),
        obs=reduced.obs.rename(columns={"bulk_labels": "cell_type"}),
        var=reduced.var[["highly_variable"]],
        obsm={"X_pca": reduced.obsm["X_pca"], "X_umap": reduced.obsm["X_umap"]},
        layers={"counts": sparse.csr_matrix(counts, dtype=np.float32)},
        uns={"cell_type_colors": reduced.uns["bulk_labels_colors"]},
    )
    adata.obs_names.name = adata.var_names.name = None
    return adata


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
    r"""Simulate counts with cell types, batches, time, and two perturbations and their combination at several doses.

    The expected shares :math:`\pi` are those of :func:`true_expression`. The :math:`L` molecules of a cell are
    Dirichlet-multinomial,

    .. math::
        x \sim \mathrm{DirMult}(L, \alpha \pi), \quad
        \mathrm{E}\,x_g = L \pi_g, \quad
        \mathrm{Var}\,x_g = L \pi_g (1 - \pi_g) \frac{L + \alpha}{1 + \alpha},

    so that the best prediction of one more molecule of a thinned cell is Polya's urn,
    :math:`(\alpha \pi + x_t) / (\alpha + n_t)`.

    Parameters
    ----------
    n_cells, n_genes, n_types, n_batches
        Numbers of cells, genes, cell types and batches. Conditions are drawn independently and uniformly per cell.
    doses
        Doses of a perturbation, if present; half-maximal doses of the genes lie between 0.3 and 3.
    library_size
        Median number of molecules per cell; sizes are log-normal with a log standard deviation of 0.3.
    concentration
        :math:`\alpha`, in molecules; smaller values make cells under the same conditions more variable.
    seed
        Random seed: the same seed gives the same cells.

    Returns
    -------
    Cells by genes, with names that start with ``simulated``. Cells:

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
        If a number of cells, genes, types or batches is below 1, or a dose, library size or concentration not positive.

    Examples
    --------
    >>> from scdiffgen.datasets import simulate
    >>> adata = simulate(n_cells=100, n_genes=20, seed=1)
    >>> sorted(adata.obs["perturbation"].cat.categories)
    ['A', 'A+B', 'B', 'control']
    """
    check_numbers(n_cells=n_cells, n_genes=n_genes, n_types=n_types, n_batches=n_batches)
    for name, numbers in (("doses", doses), ("library_size", [library_size]), ("concentration", [concentration])):
        if len(numbers) == 0 or min(numbers) <= 0:
            raise ValueError(f"`{name}` is {numbers}: pass positive numbers.")
    rng = np.random.default_rng(seed)
    genes = _genes(n_genes, n_types, n_batches, rng)
    genes.uns["simulation"] = {"concentration": float(concentration), "hill": 2.0, "seed": seed}
    obs = _conditions(n_cells, n_types, n_batches, np.asarray(doses, dtype=float), rng)

    rates = rng.standard_gamma(concentration * true_expression(genes, obs))
    library = np.maximum(np.rint(rng.lognormal(np.log(library_size), LIBRARY_SIZE_SD, n_cells)), 1).astype(np.int64)
    counts = drawn_molecules(rates, library, rng)
    return AnnData(
        X=log_normalise(counts).astype(np.float32),
        obs=obs,
        var=genes.var,
        varm=dict(genes.varm),
        uns=dict(genes.uns),
        layers={"counts": counts},
    )


def check_numbers(**numbers: int) -> None:
    """Raise unless all numbers are at least 1."""
    for name, number in numbers.items():
        if number < 1:
            raise ValueError(f"`{name}` is {number}: pass at least 1.")


def drawn_molecules(rates: NDArray[np.float64], library: NDArray[np.int64], rng: Generator) -> sparse.csr_matrix:
    """Draw counts ``(cells, genes)`` with ``library`` ``(cells,)`` molecules, by ``rates`` of any sum."""
    return sparse.csr_matrix(rng.multinomial(library, rates / rates.sum(axis=1, keepdims=True)), dtype=np.float32)


def _genes(n_genes: int, n_types: int, n_batches: int, rng: Generator) -> AnnData:
    """Create an AnnData without cells that holds the true gene effects."""
    names = pd.Index([f"simulated_gene_{i}" for i in range(n_genes)])

    def effects(columns: Sequence[str], share: float, sd: float) -> pd.DataFrame:
        """Draw normal effects on a share of the genes, and 0 for all other genes."""
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
    """Draw conditions, one row per cell."""
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


def true_expression(adata: AnnData, conditions: pd.DataFrame) -> NDArray[np.float64]:
    r"""Compute the expected share of each gene under any conditions of a simulation.

    Effects add up in the logarithm, :math:`\pi_g = \mathrm{softmax}_g(\eta)`:

    .. math::
        \eta_g = \mu_g + \tau_{g, \text{type}} + \beta_{g, \text{batch}} + \theta_g \, \text{time}
                 + \sum_p \delta_{gp} \, \frac{d_p^h}{d_p^h + k_{gp}^h}.

    At the half-maximal dose :math:`k_{gp}` (Hill's curve), a perturbation :math:`p` has half of its effect on a gene.
    Held-out combinations have a truth, too.

    Parameters
    ----------
    adata
        Simulated cells, from :func:`simulate`.
    conditions
        One row per group of cells, with the columns ``cell_type``, ``batch``, ``time``, ``dose_A`` and ``dose_B``
        (0 if a perturbation is absent), such as ``adata.obs``.

    Returns
    -------
    Shares (rows, genes), which sum to 1 over genes.

    Raises
    ------
    KeyError
        If a column is missing.
    ValueError
        If a cell type or batch is not one of the simulation, or a dose is negative.

    Examples
    --------
    >>> import pandas as pd
    >>> from scdiffgen.datasets import simulate, true_expression
    >>> adata = simulate(n_cells=10, n_genes=5)
    >>> kind = pd.DataFrame({"cell_type": ["type_0"], "batch": "batch_1", "time": 0.5, "dose_A": 3.0, "dose_B": 0.0})
    >>> true_expression(adata, kind).shape
    (1, 5)
    """
    absent = [name for name in ("cell_type", "batch", "time", "dose_A", "dose_B") if name not in conditions]
    if absent:
        raise KeyError(f"`conditions` lacks the columns {absent}: pass all of them, as in `adata.obs`.")
    logits = adata.var["baseline"].to_numpy() + np.outer(conditions["time"], adata.var["time_effect"])
    logits += _effects_of(adata, "cell_type", conditions) + _effects_of(adata, "batch", conditions)
    hill = adata.uns["simulation"]["hill"]
    for name in PERTURBATIONS:
        dose = conditions[f"dose_{name}"].to_numpy(dtype=float)
        if (dose < 0).any():
            raise ValueError(
                f"`conditions` holds {(dose < 0).sum()} negative doses: pass 0 for an absent perturbation."
            )
        effective = dose[:, None] ** hill
        response = effective / (effective + adata.varm["half_dose"][name].to_numpy() ** hill)
        logits += response * adata.varm["perturbation_effect"][name].to_numpy()
    return softmax(logits, axis=1)


def _effects_of(adata: AnnData, key: str, conditions: pd.DataFrame) -> NDArray[np.float64]:
    """Return effects ``(cells, genes)`` of cell types or batches."""
    effects = adata.varm[f"{key}_effect"]
    columns = effects.columns.get_indexer(conditions[key].astype(str))
    if (columns < 0).any():
        unknown = sorted(set(conditions[key].astype(str)) - set(effects.columns))
        raise ValueError(f"`conditions` has {key} {unknown}: the simulation has {list(effects.columns)}.")
    return effects.to_numpy()[:, columns].T


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
