"""What the tokens add to one gene of one cell."""

from __future__ import annotations

import numpy as np
import pandas as pd
from anndata import AnnData
from matplotlib.axes import Axes

from scdiffgen._stored_tokens import token_labels
from scdiffgen.pl._figure import Save, finish, panels
from scdiffgen.pl._token_loadings import DOWN, UP

TOTAL = "#4D4D4D"
ROW_INCHES = 0.24


def token_contributions(
    contributions: AnnData,
    cell: str,
    gene: str,
    n_terms: int = 10,
    *,
    ax: Axes | None = None,
    show: bool | None = None,
    save: Save = None,
) -> Axes:
    """Draw how the tokens take one gene from the average cell to one cell, as a waterfall.

    Parameters
    ----------
    contributions
        From :meth:`scdiffgen.model.TokenDiffusion.get_token_contributions`.
    cell
        Name of the cell.
    gene
        Name of the gene.
    n_terms
        Terms to draw, those that add most; the others are drawn as one.
    ax
        Where to draw.
    show
        Whether to show the figure; by default ``scanpy.settings.autoshow``.
    save
        ``True`` or text saves to ``scanpy.settings.figdir`` as scanpy does; a :class:`~pathlib.Path` to that file.

    Returns
    -------
    The axes.

    Raises
    ------
    ValueError
        If the cell or the gene is not among the contributions.

    Examples
    --------
    >>> contributions = model.get_token_contributions(adata, genes=["LYZ"], indices=[0])
    >>> axis = token_contributions(contributions, contributions.obs_names[0], "LYZ")
    >>> axis.get_yticklabels()[0].get_text()
    'average cell'
    """
    rows = _terms(contributions, cell, gene, n_terms)
    longest = max(map(len, rows.index))
    (axis,) = panels(1, 1, (3.2 + 0.07 * longest, 0.9 + ROW_INCHES * len(rows)), ax)
    ends = rows.cumsum().to_numpy(copy=True)
    starts = np.append(0, ends[:-1])
    starts[0] = starts[-1] = min(0, float(ends.min()))  # first and last row are levels, the others are steps
    ends[-1] = ends[-2]
    colours = [TOTAL, *(UP if added >= 0 else DOWN for added in rows.iloc[1:-1]), TOTAL]
    positions = np.arange(len(rows))
    axis.barh(positions, ends - starts, left=starts, color=colours, height=0.7)
    for position, level in zip(positions[:-1], ends[:-1], strict=True):
        axis.plot([level, level], [position - 0.35, position + 1.35], color="black", linewidth=0.6)
    axis.set_xlim(right=ends.max() + 0.04 * (ends.max() - starts.min()))  # a bar's start keeps no margin by itself
    axis.set_yticks(positions, rows.index, fontsize=8)
    axis.set_ylim(len(rows) - 0.4, -0.6)
    axis.set_xlabel("log-rate, centred over the genes", fontsize=8)
    axis.set_title(f"{gene} in {cell}", fontsize=10)
    axis.tick_params(axis="x", labelsize=8)
    axis.tick_params(axis="y", length=0)
    axis.spines[["top", "right"]].set_visible(False)
    finish([axis], "token_contributions", show, save)
    return axis


def _terms(contributions: AnnData, cell: str, gene: str, n_terms: int) -> pd.Series:
    """Rows of the waterfall: the baseline, what is added, and 0 for the total, which is their sum."""
    if cell not in contributions.obs_names:
        raise ValueError(f"`cell` is {cell!r}, which is not in `contributions.obs_names`.")
    if gene not in contributions.var_names:
        raise ValueError(f"`gene` is {gene!r}, which is not in `contributions.var_names`.")
    place = contributions.obs_names.get_loc(cell), contributions.var_names.get_loc(gene)
    labels = token_labels(contributions)
    terms = list(contributions.uns["terms"])
    names = [labels.get(term, term) for term in terms]
    added = pd.Series([contributions.layers[term][place] for term in terms], index=names)
    order = np.argsort(-added.abs().to_numpy(), kind="stable")
    drawn, rest = added.iloc[order[:n_terms]], added.iloc[order[n_terms:]]
    others = pd.Series({f"{len(rest)} others": rest.sum()} if len(rest) else {}, dtype=float)
    first = pd.Series({"average cell": contributions.var["baseline"].iloc[place[1]]})
    return pd.concat([first, drawn, others, pd.Series({"this cell": 0.0})]).astype(float)
