"""Figures of tokens: genes, contributions to one gene of one cell, groups of cells, and an embedding."""

from collections.abc import Mapping
from textwrap import fill

import numpy as np
import pandas as pd
from anndata import AnnData
from matplotlib.axes import Axes
from matplotlib.colors import CenteredNorm, Normalize

from scdiffgen._names import symbols_of
from scdiffgen._shared_docs import shared_docs
from scdiffgen._stored_tokens import chosen_tokens, group_column, stored_about_tokens, token_activation, token_labels
from scdiffgen._stored_tokens import token_loadings as stored_loadings
from scdiffgen.pl._figure import (
    BLUE,
    DIVERGING,
    GREY,
    SLANTED,
    VERMILION,
    Ax,
    Names,
    Save,
    Show,
    colour_bar,
    finish,
    panels,
    shortened,
    unticked,
)

UP, DOWN, TOTAL = VERMILION, BLUE, GREY


@shared_docs
def token_loadings(
    adata: AnnData,
    tokens: Names = None,
    n_genes: int = 10,
    *,
    gene_symbols: str | None = None,
    ncols: int = 4,
    ax: Ax = None,
    show: Show = None,
    save: Save = None,
) -> list[Axes]:
    """Draw the genes with the largest loadings of each token, one panel per token.

    Bars are loadings. The axis label shows the stability of the token: its reproducibility in half of the training
    cells (:meth:`scdiffgen.model.TokenDiffusion.get_token_loadings`). If a token shares at least half of these genes
    with another token, the label names the other token.

    Parameters
    ----------
    {stored}
    n_genes
        Number of genes per token. Genes with the largest absolute loadings are drawn, the most positive first. Names
        longer than 30 letters are shortened in the middle.

    Examples
    --------
    >>> axes = token_loadings(adata, ["token_2", "token_1"], n_genes=5)
    """
    chosen, labels = chosen_tokens(adata, tokens)
    loadings = stored_loadings(adata, gene_symbols=gene_symbols)
    stability = dict(zip(loadings, stored_about_tokens(adata).get("stability", []), strict=False))
    orders = {name: np.argsort(-loadings[name].abs().to_numpy(), kind="stable")[:n_genes] for name in loadings}
    largest = [loadings[token].iloc[orders[token]] for token in chosen]
    longest = max(len(shortened(gene)) for drawn in largest for gene in drawn.index)
    axes = panels(len(chosen), ncols, (1.7 + 0.075 * longest, 0.55 + 0.17 * n_genes), ax)
    for axis, genes, label, token in zip(axes, largest, labels, chosen, strict=True):
        drawn = genes.sort_values()
        axis.barh(range(len(drawn)), drawn, color=[UP if value >= 0 else DOWN for value in drawn], height=0.75)
        axis.set_yticks(range(len(drawn)), map(shortened, drawn.index), fontsize=8)
        axis.axvline(0, color="black", linewidth=0.6)
        axis.set_title(fill(label, 26), fontsize=10)
        axis.spines["left"].set_visible(False)
        stable = stability.get(token, np.nan)
        note = f"loading (stability {stable:.2f})" if np.isfinite(stable) else "loading"
        axis.set_xlabel(note + _overlap(token, orders), fontsize=8)
        _bare(axis)
    return finish(axes, "token_loadings", show, save)


def _overlap(token: str, genes: Mapping[str, np.ndarray]) -> str:
    """Name the token that shares most genes, if it shares at least half; empty otherwise."""
    shared = [(len(np.intersect1d(genes[token], genes[name])), name) for name in genes if name != token]
    n_shared, other = max(shared, key=lambda count: count[0], default=(0, token))
    n_genes = len(genes[token])
    return f"\nshares {n_shared} of {n_genes} genes with {other}" if 2 * n_shared >= n_genes else ""


def _bare(axis: Axes) -> None:
    axis.tick_params(axis="x", labelsize=8)
    axis.tick_params(axis="y", length=0)
    axis.spines[["top", "right"]].set_visible(False)


@shared_docs
def token_contributions(
    contributions: AnnData,
    cell: str,
    gene: str,
    n_terms: int = 10,
    *,
    gene_symbols: str | None = None,
    ax: Ax = None,
    show: Show = None,
    save: Save = None,
) -> Axes:
    """Draw token contributions to one gene of one cell as a waterfall, from the average cell to this cell.

    Parameters
    ----------
    contributions
        Result of :meth:`scdiffgen.model.TokenDiffusion.get_token_contributions`.
    cell
        Name of the cell.
    gene
        Name of the gene, as in ``gene_symbols`` if given.
    n_terms
        Number of terms to draw, those with the largest contributions; the sum of other terms is drawn as one.

    Raises
    ------
    ValueError
        If the cell or the gene is not among the contributions.

    Examples
    --------
    >>> contributions = model.get_token_contributions(adata, gene_list=["LYZ"], indices=[0])
    >>> axis = token_contributions(contributions, contributions.obs_names[0], "LYZ")
    """
    rows = _terms(contributions, cell, gene, symbols_of(contributions, gene_symbols, "contributions"), n_terms)
    (axis,) = panels(1, 1, (3.2 + 0.07 * max(map(len, rows.index)), 0.9 + 0.24 * len(rows)), ax)
    ends = rows.cumsum().to_numpy(copy=True)
    starts = np.append(0, ends[:-1])
    starts[0] = starts[-1] = min(0, float(ends.min()))  # first and last row are levels, all other rows are steps
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
    _bare(axis)
    return finish(axis, "token_contributions", show, save)


def _terms(contributions: AnnData, cell: str, gene: str, genes: pd.Index, n_terms: int) -> pd.Series:
    """Return the rows of the waterfall: the baseline, the contributions, and 0 for the total."""
    if cell not in contributions.obs_names:
        raise ValueError(f"`cell` is {cell!r}, which is not in `contributions.obs_names`: choose from them.")
    if gene not in genes:
        raise ValueError(f"`gene` is {gene!r}, which is not among the genes of `contributions` ({genes[0]!r}, ...).")
    place = contributions.obs_names.get_loc(cell), int(np.argmax(genes == gene))
    labels = token_labels(contributions)
    terms = list(contributions.uns["terms"])
    names = [labels.get(term, term) for term in terms]
    added = pd.Series([contributions.layers[term][place] for term in terms], index=names)
    order = np.argsort(-added.abs().to_numpy(), kind="stable")
    drawn, rest = added.iloc[order[:n_terms]], added.iloc[order[n_terms:]]
    others = pd.Series({f"{len(rest)} others": rest.sum()} if len(rest) else {}, dtype=float)
    first = pd.Series({"average cell": contributions.var["baseline"].iloc[place[1]]})
    return pd.concat([first, drawn, others, pd.Series({"this cell": 0.0})]).astype(float)


@shared_docs
def token_heatmap(
    adata: AnnData, groupby: str, tokens: Names = None, *, ax: Ax = None, show: Show = None, save: Save = None
) -> Axes:
    """Draw the mean activation of tokens (rows) in groups of cells (columns).

    Parameters
    ----------
    {stored}
    {token_groups}

    Raises
    ------
    TypeError
        If ``groupby`` is not the name of one column.
    ValueError
        If there is no such column, it is continuous (more than 100 distinct fractional numbers), or a token is unknown.

    Examples
    --------
    >>> axis = token_heatmap(adata, "cell_type")
    """
    chosen, labels = chosen_tokens(adata, tokens)
    means = token_activation(adata)[chosen].groupby(group_column(adata, groupby), observed=True).mean()
    row = 0.22 if len(chosen) <= 32 else 0.15
    longest = max(len(str(name)) for name in [*labels, *means.index])
    size = (1.6 + 0.22 * len(means) + 0.07 * longest, 0.5 + row * len(chosen) + 0.05 * longest)
    (axis,) = panels(1, 1, size, ax)
    image = axis.imshow(means.T, cmap=DIVERGING, norm=CenteredNorm(), aspect="auto", interpolation="nearest")
    axis.set_xticks(range(len(means)), means.index, **SLANTED)
    axis.set_yticks(range(len(chosen)), labels, fontsize=8 if len(chosen) <= 32 else 7)
    axis.tick_params(length=0)
    shrink = min(1.0, 2.0 / (row * len(chosen)))
    colour_bar(image, axis, "mean activation (s.d.)", shrink=shrink, aspect=12, labelsize=8)
    return finish(axis, "token_heatmap", show, save)


@shared_docs
def token_embedding(
    adata: AnnData,
    tokens: Names = None,
    basis: str = "umap",
    *,
    ncols: int = 4,
    ax: Ax = None,
    show: Show = None,
    save: Save = None,
) -> list[Axes]:
    """Draw token activations on an embedding of the cells, one panel per token.

    Parameters
    ----------
    {stored}
    basis
        Embedding, as in :func:`scanpy.pl.embedding`: ``"umap"`` is ``adata.obsm["X_umap"]``.

    Raises
    ------
    ValueError
        If ``adata.obsm`` has no such embedding, or a token is unknown.

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
    size = min(12.0, 12_000 / len(points))
    name = key.removeprefix("X_").upper() if key in ("X_umap", "X_pca", "X_tsne") else key.removeprefix("X_")
    for axis, values, limit, label in zip(axes, activation.T, limits, labels, strict=True):
        order = np.argsort(np.abs(values))
        x, y = points[order].T
        colours, norm = values[order], Normalize(-limit, limit)
        drawn = axis.scatter(x, y, s=size, c=colours, norm=norm, cmap=DIVERGING, linewidths=0, rasterized=True)
        axis.set_title(fill(label, 28), fontsize=10)
        unticked(axis, f"{name}1", f"{name}2")
        colour_bar(drawn, axis, shrink=0.7, aspect=12)
    return finish(axes, "token_embedding", show, save)
