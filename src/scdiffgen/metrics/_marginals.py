"""One gene at a time, one cell at a time: what the genes and the library sizes of two samples of cells look like."""

from __future__ import annotations

import numpy as np
import pandas as pd

from scdiffgen.metrics._genes import gene_moments, library_sizes
from scdiffgen.metrics._input import CountsLike, as_count_pair, gene_names
from scdiffgen.metrics._resampling import unit_weights
from scdiffgen.metrics._scores import CONFIDENCE


def gene_summary(real: CountsLike, generated: CountsLike, *, layer: str | None = None) -> pd.DataFrame:
    """Mean, variance and fraction of zeros of the counts of every gene.

    Poisson counts have a variance equal to the mean ``m`` and a fraction ``exp(-m)`` of zeros; real genes have more of
    both, and generated ones should as well.

    Parameters
    ----------
    real
        Real counts, (cells, genes).
    generated
        Generated counts over the same genes; AnnData objects are aligned by name.
    layer
        Layer of AnnData objects that holds the counts.

    Returns
    -------
    A row a gene; columns ``(source, statistic)``, the sources being ``"real"`` and ``"generated"``, the statistics
    ``"mean"``, ``"variance"`` and ``"zero_fraction"``.

    Raises
    ------
    ValueError
        If a side has no cells.

    Examples
    --------
    >>> import numpy as np
    >>> gene_summary(np.array([[0, 2], [4, 2]]), np.array([[1, 1]]))["real"]
    statistic  mean  variance  zero_fraction
    0           2.0       4.0            0.5
    1           2.0       0.0            0.0
    """
    sides = dict(zip(("real", "generated"), as_count_pair(real, generated, layer=layer), strict=True))
    _refuse_empty({name: counts.shape[0] for name, counts in sides.items()})
    columns = {
        (name, statistic): values[0]
        for name, counts in sides.items()
        for statistic, values in gene_moments(counts, unit_weights(counts.shape[0])).items()
    }
    table = pd.DataFrame(columns, index=gene_names(real))
    table.columns = table.columns.set_names(["source", "statistic"])
    return table


def library_size_quantiles(
    real: CountsLike, generated: CountsLike, *, n_quantiles: int = 100, layer: str | None = None
) -> pd.DataFrame:
    """Quantiles of molecules per cell, with where those of as many other real cells would fall.

    Parameters
    ----------
    real
        Real counts, (cells, genes).
    generated
        Generated counts over the same genes; AnnData objects are aligned by name.
    n_quantiles
        Number of quantiles, evenly spaced: the shares 0.5 / n, 1.5 / n and so on.
    layer
        Layer of AnnData objects that holds the counts.

    Returns
    -------
    A row a quantile: ``share`` of the cells below it; ``real``, ``generated``; and ``low`` and ``high``, between which
    95 of 100 samples of the real population of the size of the generated one have it. The interval is asymptotic, and
    holds for each quantile by itself.

    Raises
    ------
    ValueError
        If a side has no cells, or ``n_quantiles`` is below 1.

    Examples
    --------
    >>> import numpy as np
    >>> counts = np.arange(1, 101)[:, None]
    >>> library_size_quantiles(counts, 2 * counts, n_quantiles=2)[["real", "generated"]].to_numpy()
    array([[ 25.75,  51.5 ],
           [ 75.25, 150.5 ]])
    """
    if n_quantiles < 1:
        raise ValueError(f"`n_quantiles` is {n_quantiles}: pass at least 1.")
    x, y = (library_sizes(counts) for counts in as_count_pair(real, generated, layer=layer))
    _refuse_empty({"real": len(x), "generated": len(y)})
    share = (np.arange(n_quantiles) + 0.5) / n_quantiles
    margin = CONFIDENCE * np.sqrt(share * (1 - share) * (1 / len(x) + 1 / len(y)))
    return pd.DataFrame(
        {
            "share": share,
            "real": np.quantile(x, share),
            "generated": np.quantile(y, share),
            "low": np.quantile(x, np.clip(share - margin, 0, 1)),
            "high": np.quantile(x, np.clip(share + margin, 0, 1)),
        }
    )


def _refuse_empty(n_cells: dict[str, int]) -> None:
    empty = [name for name, n in n_cells.items() if n == 0]
    if empty:
        raise ValueError(f"`{empty[0]}` has no cells.")
