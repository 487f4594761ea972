"""Variance ratios of generated to real cells along principal components."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pandas as pd

from scdiffgen._messages import warn_user
from scdiffgen._shared_docs import shared_docs

from ._comparison import Pair, Settings
from ._input import FEWEST_CELLS, CountsLike, FewCellsWarning
from ._resampling import unit_weights
from ._samples import Prepared, prepare
from ._spread import WITHIN, grouped_pairs, interval_table, log_variance_ratios, variances

COLUMNS = {"generated": ("ratio", "low", "high"), "other_real": ("other_real", "other_real_low", "other_real_high")}


@shared_docs
def dispersion(
    real: CountsLike,
    generated: CountsLike,
    train: CountsLike | None = None,
    groupby: str | None = None,
    *,
    other_real: CountsLike | None = None,
    layer: str | None = None,
    gene_symbols: str | None = None,
    n_pcs: int = 30,
    max_cells: int = 2000,
    n_bootstrap: int = 200,
    seed: int = 0,
) -> pd.DataFrame:
    """Compare the variance of generated and held-out real cells along principal components.

    Cells are compared as in `evaluate`: equally many generated and real cells, beside other real cells (the
    real-versus-real ceiling), along principal components of log expression fitted on ``train``. Within labels, the
    variance is the pooled variance of deviations from the label means, such as the variation by cell cycle.

    Parameters
    ----------
    {within}
    {draws}

    Returns
    -------
    One row per group and component, with index ``(group, component)``: groups ``"overall"``, ``"within"`` and each
    label, components ``"PC1"`` and so on. Columns: ``ratio``, the variance of generated over that of real cells, and
    its 95 % interval ``low``, ``high``; ``other_real``, ``other_real_low``, ``other_real_high``, the ratio and interval
    of other real cells; ``apart``, whether the interval of generated cells lies on one side of 1 and of the interval of
    other real cells; ``share`` of the variance of all genes on the component, in real cells of the group; ``genes``,
    the three genes with the largest weights; ``n``, the number of compared cells per side.

    Raises
    ------
    ValueError
        If a label is called ``"overall"`` or ``"within"``.

    Warns
    -----
    FewCellsWarning
        If a group has fewer than ten cells on a side; its ratios are NaN.

    Examples
    --------
    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> programme = np.exp(rng.normal(size=(400, 1)) * (np.arange(20) < 5))
    >>> table = dispersion(rng.poisson(3 * programme), rng.poisson(3.0, size=(400, 20)), n_pcs=2)
    >>> table["apart"].tolist()
    [True, False]
    """
    settings = Settings(layer, n_pcs, max_cells, n_bootstrap, seed=seed, gene_symbols=gene_symbols)
    table = disperse(prepare(real, generated, train, groupby, settings, other_real=other_real), groupby, settings)
    few = table.index.unique("group")[(table["n"] < FEWEST_CELLS).groupby("group", sort=False).any()]
    if len(few):
        warn_user(f"NaN because of fewer than {FEWEST_CELLS} cells: {', '.join(few)}.", FewCellsWarning)
    return table


def disperse(prepared: Prepared, groupby: str | None, settings: Settings) -> pd.DataFrame:
    """Compute the table of `dispersion`."""
    genes = _leading_genes(prepared)
    parts = grouped_pairs(prepared.cells, groupby, list(COLUMNS), settings)
    tables = {group: _table(sides, genes, within=group == WITHIN) for group, sides in parts.items()}
    return pd.concat(tables, names=["group", "component"])


def _table(sides: Mapping[str, Pair], genes: list[str], *, within: bool) -> pd.DataFrame:
    """Tabulate one group."""
    rows, share = {}, np.full(len(genes), np.nan)
    for source, pair in sides.items():
        if len(pair.real.pcs) < FEWEST_CELLS:
            continue
        labels = pair.labels if within else (None, None)
        rows[source] = log_variance_ratios(*pair.pcs, labels)
        pc_variances, gene_variances = (
            variances(form, unit_weights(form.shape[0]), labels[0])[0] for form in (pair.real.pcs, pair.real.expression)
        )
        share = pc_variances / max(gene_variances.sum(), 1e-12)
    index = [f"PC{i + 1}" for i in range(len(genes))]
    table = interval_table(rows, COLUMNS, np.ones(len(genes), dtype=bool), index)
    return table.assign(share=share, genes=genes, n=min(len(pair.real.pcs) for pair in sides.values()))


def _leading_genes(prepared: Prepared) -> list[str]:
    """Name the three genes with the largest weights on each component; positions if genes have no names."""
    space, names = prepared.space, prepared.names
    names = np.arange(space.n_genes) if names is None else np.asarray(names)
    order = np.argsort(-np.abs(space.components), axis=1, kind="stable")[:, :3]
    return [", ".join(str(name) for name in names[top]) for top in order]
