r"""Where simulated counts come from, in closed form.

A cell's molecules are of gene :math:`g` with probability :math:`\pi_g = \mathrm{softmax}_g(\eta)`,

.. math::
    \eta_g = \mu_g + \tau_{g, \text{type}} + \beta_{g, \text{batch}} + \theta_g \, \text{time}
             + \sum_p \delta_{gp} \, \frac{d_p^h}{d_p^h + k_{gp}^h},

so effects add up in the logarithm, and a perturbation :math:`p` at dose :math:`d_p` has half of its effect
:math:`\delta_{gp}` on a gene at that gene's half dose :math:`k_{gp}` (Hill's curve, a sigmoid of the log dose).
"""

from __future__ import annotations

import numpy as np
import pandas as pd
from anndata import AnnData
from numpy.typing import NDArray
from scipy.special import softmax

PERTURBATIONS = ("A", "B")
_COLUMNS = ("cell_type", "batch", "time", "dose_A", "dose_B")


def true_expression(adata: AnnData, conditions: pd.DataFrame) -> NDArray[np.float64]:
    """Expected share of each gene in the molecules of a cell, under any conditions of a simulation.

    The conditions need not occur among the simulated cells, so that held-out combinations can be judged.

    Parameters
    ----------
    adata
        Simulated cells, from :func:`simulate`.
    conditions
        A row for each kind of cell, with the columns ``cell_type``, ``batch``, ``time``, ``dose_A`` and ``dose_B``
        (0 where a perturbation is absent), such as ``adata.obs``.

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
    absent = [name for name in _COLUMNS if name not in conditions]
    if absent:
        raise KeyError(f"`conditions` lacks the columns {absent}: give one of each, as in `adata.obs`.")
    logits = adata.var["baseline"].to_numpy() + np.outer(conditions["time"], adata.var["time_effect"])
    logits += _effects_of(adata, "cell_type", conditions) + _effects_of(adata, "batch", conditions)
    for name in PERTURBATIONS:
        response = _hill(
            conditions[f"dose_{name}"].to_numpy(dtype=float),
            adata.varm["half_dose"][name].to_numpy(),
            adata.uns["simulation"]["hill"],
        )
        logits += response * adata.varm["perturbation_effect"][name].to_numpy()
    return softmax(logits, axis=1)


def _effects_of(adata: AnnData, key: str, conditions: pd.DataFrame) -> NDArray[np.float64]:
    effects = adata.varm[f"{key}_effect"]
    columns = effects.columns.get_indexer(conditions[key].astype(str))
    if (columns < 0).any():
        unknown = sorted(set(conditions[key].astype(str)) - set(effects.columns))
        raise ValueError(f"`conditions` has {key} {unknown}: the simulation has {list(effects.columns)}.")
    return effects.to_numpy()[:, columns].T


def _hill(dose: NDArray[np.float64], half_dose: NDArray[np.float64], hill: float) -> NDArray[np.float64]:
    """Share of the effect (cells, genes)."""
    if (dose < 0).any():
        raise ValueError(
            f"`conditions` holds {int((dose < 0).sum())} negative doses: give 0 for an absent perturbation."
        )
    effective = dose[:, None] ** hill
    return effective / (effective + half_dose**hill)
