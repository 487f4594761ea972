"""Activations of tokens by groups of cells, and on an embedding."""

from __future__ import annotations

from collections.abc import Sequence
from textwrap import fill

import numpy as np
import pandas as pd
import scanpy as sc
from anndata import AnnData
from matplotlib.axes import Axes

from scdiffgen._names import check_column
from scdiffgen._shared_docs import shared_docs
from scdiffgen._stored_tokens import annotation_column, chosen_tokens, token_activation
from scdiffgen.pl._figure import DIVERGING, Ax, Save, Show, colour_bar, finish, panels, unticked

CELL_INCHES, SMALL_CELL_INCHES = 0.22, 0.15
MANY_TOKENS = 32
MOST_NUMBERS = 100  # distinct fractional numbers that are still groups
TITLE_LETTERS = 28
ACTIVE = 1.0  # standard deviations over the mean from which a token counts as active


@shared_docs
def token_heatmap(
    adata: AnnData,
    groupby: str,
    tokens: Sequence[str] | None = None,
    *,
    ax: Ax = None,
    show: Show = None,
    save: Save = None,
) -> Axes:
    """Draw the mean activation of tokens (rows) in groups of cells (columns).

    Parameters
    ----------
    {stored}
    {token_groups}
    {tokens}
    {drawn}

    Returns
    -------
    The axes.

    Raises
    ------
    TypeError
        If ``groupby`` is not the name of one column.
    ValueError
        If there is no such column, it is continuous (more than 100 distinct fractional numbers), or a token is unknown.

    Examples
    --------
    >>> axis = token_heatmap(adata, "cell_type")
    >>> len(axis.get_yticklabels())
    4
    """
    chosen, labels = chosen_tokens(adata, tokens)
    means = token_activation(adata)[chosen].groupby(_groups(adata, groupby), observed=True).mean()
    row = CELL_INCHES if len(chosen) <= MANY_TOKENS else SMALL_CELL_INCHES
    longest = max(len(str(name)) for name in [*labels, *means.index])
    size = (1.6 + CELL_INCHES * len(means) + 0.07 * longest, 0.5 + row * len(chosen) + 0.05 * longest)
    (axis,) = panels(1, 1, size, ax)
    limit = float(np.abs(means.to_numpy()).max())
    image = axis.imshow(means.T, cmap=DIVERGING, vmin=-limit, vmax=limit, aspect="auto", interpolation="nearest")
    axis.set_xticks(range(len(means)), means.index, rotation=90, fontsize=8)
    axis.set_yticks(range(len(chosen)), labels, fontsize=8 if row == CELL_INCHES else 7)
    axis.tick_params(length=0)
    shrink = min(1.0, 2.0 / (row * len(chosen)))
    colour_bar(image, axis, "mean activation (s.d.)", shrink=shrink, aspect=12, labelsize=8)
    return finish(axis, "token_heatmap", show, save)


@shared_docs
def token_dotplot(
    adata: AnnData,
    groupby: str,
    tokens: Sequence[str] | None = None,
    *,
    ax: Ax = None,
    show: Show = None,
    save: Save = None,
) -> Axes:
    """Draw the activation of tokens (rows) in groups of cells (columns) as dots.

    The colour is the mean activation of the group, the size the share of its cells in which the token is active by more
    than one standard deviation.

    Parameters
    ----------
    {stored}
    {token_groups}
    {tokens}
    {drawn}

    Returns
    -------
    The axes of the dots.

    Examples
    --------
    >>> axis = token_dotplot(adata, "cell_type")
    """
    chosen, labels = chosen_tokens(adata, tokens)
    shown = AnnData(token_activation(adata)[chosen].to_numpy(), obs=_groups(adata, groupby).to_frame())
    shown.var_names = _unique(labels)
    plot = sc.pl.DotPlot(
        shown, list(shown.var_names), groupby, expression_cutoff=ACTIVE, vcenter=0, cmap=DIVERGING, ax=ax
    ).legend(colorbar_title="mean activation\n(s.d.)", size_title=f"cells above\n{ACTIVE:g} s.d. (%)", width=1.9)
    plot.style(cmap=DIVERGING)
    plot.swap_axes()
    plot.make_figure()
    return finish(plot.get_axes()["mainplot_ax"], "token_dotplot", show, save)


@shared_docs
def token_embedding(
    adata: AnnData,
    tokens: Sequence[str] | None = None,
    basis: str = "umap",
    *,
    ncols: int = 4,
    ax: Ax = None,
    show: Show = None,
    save: Save = None,
) -> list[Axes]:
    """Draw the activation of tokens on an embedding of the cells, a panel a token.

    Parameters
    ----------
    {stored}
    {tokens}
    basis
        Embedding, as in :func:`scanpy.pl.embedding`: ``"umap"`` is ``adata.obsm["X_umap"]``.
    {ncols}
    {drawn}

    Returns
    -------
    The axes, one a token.

    Raises
    ------
    ValueError
        If there is no such embedding.

    Examples
    --------
    >>> axes = token_embedding(adata, ["token_1"])
    """
    chosen, labels = chosen_tokens(adata, tokens)
    key = basis if basis in adata.obsm else f"X_{basis}"
    if key not in adata.obsm:
        raise ValueError(f"`basis` is {basis!r}: choose from {list(adata.obsm)}, or run `sc.tl.umap`.")
    axes = panels(len(chosen), ncols, (2.7, 2.4), ax)
    activation = token_activation(adata)[chosen].to_numpy()
    limits = np.quantile(np.abs(activation), 0.99, axis=0)
    points = np.asarray(adata.obsm[key])[:, :2]
    name = key.removeprefix("X_").upper() if key in ("X_umap", "X_pca", "X_tsne") else key.removeprefix("X_")
    for axis, values, limit, label in zip(axes, activation.T, limits, labels, strict=True):
        order = np.argsort(np.abs(values))
        drawn = axis.scatter(
            *points[order].T,
            c=values[order],
            s=min(12.0, 12_000 / len(points)),
            cmap=DIVERGING,
            vmin=-limit,
            vmax=limit,
            linewidths=0,
            rasterized=True,
        )
        axis.set_title(fill(label, TITLE_LETTERS), fontsize=10)
        unticked(axis, f"{name}1", f"{name}2")
        colour_bar(drawn, axis, shrink=0.7, aspect=12)
    return finish(axes, "token_embedding", show, save)


def _groups(adata: AnnData, groupby: str) -> pd.Series:
    """Group of every cell, as categories that are text: scanpy loses a group that is called ``False``."""
    check_column(groupby)
    column = annotation_column(adata, groupby)
    if pd.api.types.is_float_dtype(column) and column.nunique() > MOST_NUMBERS:
        raise ValueError(
            f"`groupby` is {groupby!r}, which is continuous: it has {column.nunique()} distinct numbers. Cut it into "
            "groups first, such as with `pandas.cut`."
        )
    return column.astype("category").cat.rename_categories(str)


def _unique(labels: list[str]) -> pd.Index:
    """Labels as names of variables: a second token of the same label says which it is."""
    return pd.Index([f"{label} ({i + 1})" if label in labels[:i] else label for i, label in enumerate(labels)])
