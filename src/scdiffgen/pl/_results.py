"""Figures of tokens, losses, dose responses, power and ranked experiments, and of membership inference attacks."""

import math
from collections.abc import Mapping, Sequence
from textwrap import fill
from typing import Literal

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from anndata import AnnData
from matplotlib.axes import Axes
from matplotlib.colors import CenteredNorm, Normalize

from scdiffgen._arguments import check_choice, check_whole_number
from scdiffgen._names import as_names, symbols_of
from scdiffgen._shared_docs import shared_docs
from scdiffgen._stored_tokens import chosen_tokens, group_column, stored_about_tokens, token_activation, token_labels
from scdiffgen._stored_tokens import token_loadings as stored_loadings
from scdiffgen.pl._figure import (
    BLUE,
    DIVERGING,
    GREY,
    ORANGE,
    SLANTED,
    VERMILION,
    Ax,
    Names,
    Save,
    Show,
    colour_bar,
    finish,
    panels,
    plain,
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


MOST_GENES = 12  # number of panels unless genes are named
OFFSETS = (-0.25, 0.0, 0.25)  # of the attacks within a row


@shared_docs
def training_history(
    history: Mapping[str, pd.DataFrame], *, ax: Ax = None, show: Show = None, save: Save = None
) -> Axes:
    """Draw training and validation loss over the epochs; a point marks the lowest validation loss.

    The model generates with its last weights, unless training restored the weights of the lowest validation loss.

    Parameters
    ----------
    history
        ``model.history`` of a trained model.

    Raises
    ------
    TypeError
        If ``history`` is not a mapping.
    ValueError
        If ``history`` holds no loss.

    Examples
    --------
    >>> axis = training_history(model.history)
    """
    if not isinstance(history, Mapping):
        raise TypeError(f"`history` is of type {type(history).__name__}: pass `model.history` of a trained model.")
    if "train_loss" not in history:
        raise ValueError(f"`history` holds {list(history)} and no loss: pass `model.history` of a trained model.")
    (axis,) = panels(1, 1, (4.2, 2.8), ax)
    axis.plot(history["train_loss"].iloc[:, 0].dropna(), color="#999999", label="training", linewidth=1.2)
    if "validation_loss" in history:
        validation = history["validation_loss"].iloc[:, 0].astype(float).dropna()
        axis.plot(validation, color=BLUE, marker=".", label="validation", linewidth=1.2)
        axis.plot([validation.idxmin()], [validation.min()], "o", color=BLUE, markersize=7, label="lowest")
    plain(axis, "epoch", "loss (nats per molecule)")
    axis.legend(frameon=False, fontsize=8)
    return finish(axis, "training_history", show, save)


@shared_docs
def dose_response(
    frame: pd.DataFrame,
    genes: Names = None,
    *,
    ncols: int = 4,
    dose_unit: str | None = None,
    ax: Ax = None,
    show: Show = None,
    save: Save = None,
) -> list[Axes]:
    """Draw dose-response curves of mean expression with intervals, one panel per gene.

    The dose axis is logarithmic, with a linear part on the left from dose 0 to the smallest positive dose. Dose 0 is a
    grey point, and a dotted line extends its mean across the panel. Extrapolated doses have a dashed line.

    Parameters
    ----------
    frame
        One row per dose and gene, with the columns ``dose``, ``gene``, ``mean``, ``low``, ``high`` and optionally
        ``extrapolated``, as returned by :meth:`scdiffgen.model.TokenDiffusion.dose_response`.
    genes
        Gene or genes to draw, in this order. ``None`` draws the 12 genes whose mean changes most between two doses, the
        largest change first, or all genes in their order if there are at most 12.
    dose_unit
        Unit of the doses in the axis label; by default ``frame.attrs["dose_unit"]``, the registered unit.

    Returns
    -------
    The axes, one per gene, in units of dose.

    Raises
    ------
    ValueError
        If a column or gene is missing, a dose is negative or occurs twice, ``ncols`` is below 1, or ``ax`` is given for
        several genes.

    Examples
    --------
    >>> import pandas as pd
    >>> curve = pd.DataFrame({"dose": [0, 1, 10], "gene": "IFIT1", "mean": [0.1, 0.9, 2.0]})
    >>> (axis,) = dose_response(curve.assign(low=curve["mean"] - 0.1, high=curve["mean"] + 0.1))
    """
    chosen = _checked(frame, genes)
    axes = panels(len(chosen), ncols, (3.0, 2.4), ax)
    for axis, gene in zip(axes, chosen, strict=True):
        _draw(axis, frame[frame["gene"] == gene].sort_values("dose"))
        axis.set_title(gene)
    if axes[0].get_legend_handles_labels()[0]:
        axes[0].legend(fontsize=8, handlelength=3)
    unit = frame.attrs.get("dose_unit") if dose_unit is None else dose_unit
    for axis in axes[::ncols]:
        axis.set_ylabel("mean log expression")
    for axis in axes[-ncols:]:
        axis.set_xlabel(f"dose ({unit})" if unit else "dose")
    return finish(axes, "dose_response", show, save)


def _checked(frame: pd.DataFrame, genes: Sequence[str] | None) -> list[str]:
    """Return the genes to draw; raise if the table cannot be drawn."""
    absent = [name for name in ("dose", "gene", "mean", "low", "high") if name not in frame]
    if absent:
        raise ValueError(f"`frame` lacks the columns {absent}: pass what `TokenDiffusion.dose_response` returns.")
    known = list(frame["gene"].unique())
    chosen = known if genes is None else as_names(genes)
    if genes is None and len(known) > MOST_GENES:
        means = frame.groupby("gene", observed=True, sort=False)["mean"]
        chosen = (means.max() - means.min()).nlargest(MOST_GENES).index.tolist()
    unknown = [gene for gene in chosen if gene not in known]
    if unknown or not chosen:
        raise ValueError(f"`genes` is {unknown or chosen}: choose from the genes of `frame`, {known[:5]} and so on.")
    if (frame["dose"] < 0).any():
        raise ValueError(f"`frame` holds the dose {frame['dose'].min():g}: pass doses of at least 0.")
    for row in frame[frame["gene"].isin(chosen) & frame.duplicated(["gene", "dose"])].itertuples():
        raise ValueError(f"`frame` holds gene {row.gene!r} at dose {row.dose:g} twice: pass the rows of one group.")
    return chosen


def _draw(axis: Axes, curve: pd.DataFrame) -> None:
    """Draw one gene: untreated cells as a point, positive doses as a curve with a band, dashed where extrapolated."""
    untreated, treated = curve[curve["dose"] == 0], curve[curve["dose"] > 0]
    axis.fill_between(treated["dose"], treated["low"], treated["high"], color=BLUE, alpha=0.25, linewidth=0)
    beyond = treated.get("extrapolated", pd.Series(False, treated.index)).astype(bool)
    axis.plot(treated["dose"][~beyond], treated["mean"][~beyond], "o-", color=BLUE, markersize=4)
    if beyond.any():
        dashed = pd.concat([treated[~beyond].tail(1), treated[beyond]])
        axis.plot(dashed["dose"], dashed["mean"], "o--", color=BLUE, markersize=4, label="beyond measured doses")
    for row in untreated.itertuples():
        axis.axhline(row.mean, color=GREY, linewidth=1, linestyle=":")
        axis.vlines(0, row.low, row.high, color=GREY, linewidth=1.5)
        axis.plot([0], [row.mean], color=GREY, marker="o", markersize=4)
    if len(treated):
        _scale(axis, treated["dose"].to_numpy(), with_zero=len(untreated) > 0)
    axis.spines[["top", "right"]].set_visible(False)


def _scale(axis: Axes, doses: np.ndarray, *, with_zero: bool) -> None:
    """Set a logarithmic dose axis with ticks at powers of ten, and at 0 if drawn."""
    lowest, highest = doses.min(), doses.max()
    margin = (highest / lowest) ** 0.05 * 1.1
    exponents = np.arange(math.floor(math.log10(lowest)), math.ceil(math.log10(highest)) + 1)
    ticks = 10.0 ** exponents[:: math.ceil(len(exponents) / 6)]
    ticks = ticks[(ticks >= lowest / margin) & (ticks <= highest * margin)]
    if len(ticks) < 2:
        ticks = doses
    if with_zero:
        decades = max(math.log10(highest / lowest), 1.0)
        axis.set_xscale("symlog", linthresh=lowest, linscale=0.25 * decades)  # a fifth of the axis is linear
        axis.set_xlim(-0.2 * lowest, highest * margin)
        ticks = np.append(0.0, ticks)
    else:
        axis.set_xscale("log")
        axis.set_xlim(lowest / margin, highest * margin)
    axis.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
    axis.set_xticks([], minor=True)


@shared_docs
def power_curves(
    table: pd.DataFrame,
    x: Literal["n_donors", "n_cells"] = "n_donors",
    *,
    stratum: str = "all",
    ncols: int = 3,
    ax: Ax = None,
    show: Show = None,
    save: Save = None,
) -> list[Axes]:
    """Draw power against donors or cells, one line per fold change (decreases dashed) with its interval.

    Parameters
    ----------
    table
        Result of :func:`scdiffgen.tl.power_analysis`.
    x
        Column on the axis; each value of the other column has a panel. The dotted line is a power of 0.8.
    stratum
        Stratum of expression: ``"all"``, ``"low"``, ``"middle"`` or ``"high"``.

    Raises
    ------
    ValueError
        If ``x`` or ``stratum`` is unknown, or ``ax`` is given for several panels.

    Examples
    --------
    >>> from scdiffgen import tl
    >>> table = tl.power_analysis(model, [1.0], n_donors=[2, 3], n_cells=[9], n_replicates=1, experiment={"n_steps": 4})
    >>> axes = power_curves(table)
    """
    check_choice("x", x, ("n_donors", "n_cells"))
    check_choice("stratum", stratum, table["stratum"].unique().tolist())
    other, names = {"n_donors": ("n_cells", "cells"), "n_cells": ("n_donors", "donors")}[x]
    by_panel = list(table[table["stratum"] == stratum].groupby(other))
    axes = panels(len(by_panel), ncols, (3.2, 2.6), ax)
    colours, sizes = plt.get_cmap("viridis"), pd.Index(np.unique(table["effect"].abs()))
    for axis, (number, rows) in zip(axes, by_panel, strict=True):
        for effect, line in rows.sort_values(x).groupby("effect"):
            colour, style = colours(sizes.get_loc(abs(effect)) / len(sizes)), "o-" if effect > 0 else "o--"
            axis.plot(line[x], line["power"], style, color=colour, markersize=3, label=f"{2**effect:.2g}-fold")
            axis.fill_between(line[x], line["low"], line["high"], color=colour, alpha=0.2, linewidth=0)
        axis.axhline(0.8, color=GREY, linestyle=":", linewidth=1)
        axis.set(ylim=(-0.02, 1.02), xticks=sorted(rows[x].unique()))
        axis.set_title(f"{number} {names} per {'donor' if x == 'n_donors' else 'arm'}", fontsize=9)
        plain(axis, {"n_donors": "donors per arm", "n_cells": "cells per donor"}[x], "power")
    axes[-1].legend(frameon=False, fontsize=8, loc="upper left", bbox_to_anchor=(1, 1))
    return finish(axes, "power_curves", show, save)


@shared_docs
def ranked_experiments(
    table: pd.DataFrame, n_experiments: int = 20, *, ax: Ax = None, show: Show = None, save: Save = None
) -> Axes:
    """Draw the expected error that each experiment removes, the best experiment first, beside the cumulative cost.

    Parameters
    ----------
    table
        Result of :func:`scdiffgen.tl.rank_experiments`.
    n_experiments
        Largest number of experiments to draw.

    Examples
    --------
    >>> import pandas as pd
    >>> table = pd.DataFrame({"perturbation": ["A", "B"], "n_cells": 100, "cost": [1.0, 2.0], "gain": [0.6, 0.3]})
    >>> axis = ranked_experiments(table.assign(error_left=[0.4, 0.1]))
    """
    check_whole_number("n_experiments", n_experiments)
    rows = table.head(n_experiments)
    (axis,) = panels(1, 1, (5.0, 0.9 + 0.22 * len(rows)), ax)
    axis.barh(range(len(rows)), rows["gain"], left=rows["error_left"], color=BLUE, height=0.7)
    names = rows.loc[:, :"n_cells"].drop(columns="n_cells").astype(str).agg(", ".join, axis=1)
    for position, (left, cost) in enumerate(zip(rows["error_left"], rows["cost"].cumsum(), strict=True)):
        axis.text(left - 0.01, position, f"{cost:,.6g}", ha="right", va="center", fontsize=7, color=GREY)
    axis.set(xlim=(-0.15, 1.02), ylim=(len(rows) - 0.5, -0.5), xticks=np.linspace(0, 1, 6))
    plain(axis, "expected error, relative to now (numbers: cumulative cost)", "")
    axis.set_yticks(range(len(rows)), names.map(shortened), fontsize=8)
    return finish(axis, "ranked_experiments", show, save)


@shared_docs
def membership_inference(
    attacks: pd.DataFrame | Mapping[str, pd.DataFrame],
    level: Literal["cell", "donor"] = "cell",
    *,
    ax: Ax = None,
    show: Show = None,
    save: Save = None,
) -> Axes:
    """Draw the success of membership inference attacks on training cells: AUC with 95 % intervals.

    Grey intervals are controls, with real cells in place of generated ones. An interval above 0.5 (dotted), beside a
    control at 0.5, shows that the generated cells disclose training cells.

    Parameters
    ----------
    attacks
        Result of :func:`scdiffgen.metrics.membership_inference`, or several results by name, one a row.
    level
        Whether single cells or whole donors are attacked.

    Raises
    ------
    ValueError
        If a table lacks the level.

    Examples
    --------
    >>> from scdiffgen.metrics import membership_inference as attack
    >>> axis = membership_inference(attack(adata[:300], adata[300:], adata[:300], layer="counts"))
    """
    tables = dict(attacks) if isinstance(attacks, Mapping) else {"generated cells": attacks}
    for table in tables.values():
        check_choice("level", level, table.index.unique("level").tolist())
    (axis,) = panels(1, 1, (4.6, 0.9 + 0.6 * len(tables)), ax)
    for position, table in enumerate(tables.values()):
        rows = table.loc[level]
        for offset, colour, (attack, row) in zip(OFFSETS, (BLUE, ORANGE, VERMILION), rows.iterrows(), strict=True):
            for name, shade, below in (("auc", colour, 0.0), ("control", "0.75", 0.08)):
                y = position + offset + below
                axis.hlines(y, row[f"{name}_low"], row[f"{name}_high"], color=shade, linewidth=1.5)
                label = None if position else attack if name == "auc" else "control" if offset > 0 else None
                axis.plot(row[name], y, "o", color=shade, markersize=4, label=label)
    axis.axvline(0.5, color=GREY, linestyle=":", linewidth=1)
    axis.set(xlim=(min(0.4, axis.get_xlim()[0]), 1.02), ylim=(len(tables) - 0.5, -0.5))
    plain(axis, f"AUC of attacks on {level}s", "")
    axis.set_yticks(range(len(tables)), [*tables], fontsize=8)
    axis.legend(frameon=False, fontsize=8, loc="upper left", bbox_to_anchor=(1, 1))
    return finish(axis, "membership_inference", show, save)
