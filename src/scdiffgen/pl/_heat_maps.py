"""Heat maps: activations of tokens by group, scores by group, correlations of genes."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
from anndata import AnnData
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.colors import CenteredNorm
from matplotlib.patches import Patch
from scipy.spatial.distance import squareform

from scdiffgen._names import symbols_of
from scdiffgen._shared_docs import shared_docs
from scdiffgen._stored_tokens import chosen_tokens, group_column, token_activation
from scdiffgen.metrics._evaluation import Evaluation
from scdiffgen.metrics._score_verdicts import relative_scores
from scdiffgen.metrics._summaries import gene_correlations
from scdiffgen.pl._figure import DIVERGING, Ax, Names, Save, Show, colour_bar, finish, panels

SCORE_INCHES, LETTER_INCHES = (0.5, 0.24), 0.07
SLANTED: dict[str, Any] = {"rotation": 45, "ha": "right", "rotation_mode": "anchor", "fontsize": 8}  # names of columns
NO_PLACE = "#E8E8E8"
GREY_MEANS = "not scored: the metric\ndoes not distinguish\ncontrol and real cells,\nor too few cells"


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
def evaluation_scores(
    scores: Evaluation | pd.DataFrame, *, ax: Ax = None, show: Show = None, save: Save = None
) -> Axes:
    """Draw scores of generated cells as a heat map of groups (rows) and metrics (columns).

    Numbers are scores. Colours place them between other real cells (the ceiling, light) and the worse negative control
    (dark). A score is grey if the metric does not distinguish the negative control from real cells, often because there
    are too few cells. Arrows show where a metric is best, and brackets the number of compared cells.

    Parameters
    ----------
    scores
        Result of :func:`scdiffgen.metrics.evaluate`, or its ``.frame``.

    Raises
    ------
    ValueError
        If ``scores`` lacks the real-versus-real ceiling, a negative control or intervals.

    Examples
    --------
    >>> from scdiffgen.metrics import evaluate
    >>> scores = evaluate(adata[::2], adata[1::2], layer="counts", metrics=["mmd", "gene_correlation"])
    >>> axis = evaluation_scores(scores)
    """
    scores = scores.frame if isinstance(scores, Evaluation) else scores
    relative = relative_scores(scores)
    values = scores.xs("generated", level="source")[list(relative)]
    (axis,) = panels(1, 1, scores_inches(scores), ax)
    palette = colormaps["Oranges"].with_extremes(bad=NO_PLACE)
    image = axis.imshow(relative, cmap=palette, vmin=0, vmax=1, aspect="auto", interpolation="nearest")
    for row, column in np.ndindex(values.shape):
        score, colour = values.iloc[row, column], "white" if relative.iloc[row, column] > 0.75 else "black"
        text = "–" if np.isnan(score) else f"{score:.{3 if abs(score) < 0.1 else 2}f}"
        axis.text(column, row, text, color=colour, fontsize=6.5, ha="center", va="center")
    axis.set_xticks(range(len(values.columns)), _metric_labels(scores), **SLANTED)
    axis.set_yticks(range(len(values)), _group_labels(scores), fontsize=8)
    axis.set_title("scores of generated cells", fontsize=10)
    axis.set_xlabel("↓ lower, ↑ higher, → this value is best", fontsize=7)
    axis.tick_params(length=0)
    axis.spines[:].set_visible(False)
    bar = colour_bar(image, axis, extend="max", aspect=12, shrink=min(1.0, 8 / len(values)))
    bar.set_ticks([0, 1], labels=["other real\ncells", "negative\ncontrol"])
    grey = Patch(color=NO_PLACE, label=GREY_MEANS)
    bar.ax.legend(handles=[grey], loc="upper left", bbox_to_anchor=(-1, -0.15), fontsize=7, frameon=False)
    return finish(axis, "evaluation_scores", show, save)


def scores_inches(scores: pd.DataFrame) -> tuple[float, float]:
    """Compute the size of the heat map with its labels."""
    groups, names = _group_labels(scores), _metric_labels(scores)
    width = 1.2 + SCORE_INCHES[0] * len(names) + LETTER_INCHES * max(map(len, groups))
    return width, 1.0 + SCORE_INCHES[1] * len(groups) + LETTER_INCHES * max(map(len, names))


def _group_labels(scores: pd.DataFrame) -> list[str]:
    """Label groups with the number of compared cells."""
    return [f"{group} ({n:.0f})" for group, n in scores["n"].xs("generated", level="source").items()]


def _metric_labels(scores: pd.DataFrame) -> list[str]:
    """Label metrics with the direction in which they are best."""
    best = {name: "real" if isinstance(ideal, str) else f"{ideal:g}" for name, ideal in scores.attrs["ideal"].items()}
    arrows = [{"lower": "↓", "higher": "↑"}.get(scores.attrs["direction"][name], f"→ {best[name]}") for name in best]
    return [f"{name} {arrow}" for name, arrow in zip(best, arrows, strict=True)]


@shared_docs
def evaluation_gene_correlation(
    real: AnnData,
    generated: AnnData,
    n_genes: int = 40,
    *,
    gene_symbols: str | None = None,
    layer: str | None = None,
    show: Show = None,
    save: Save = None,
) -> list[Axes]:
    """Draw gene-gene correlations in real cells beside those in generated cells.

    Genes are those with the largest variance of log-normalised expression in real cells, ordered by hierarchical
    clustering of their correlations in real cells. Blocks on the left that are absent on the right are gene programs
    that were not learned.

    Parameters
    ----------
    n_genes
        Number of genes; at most 40 are named.
    gene_symbols
        Column of ``real.var`` with gene symbols, as in scanpy; by default ``.var_names``.

    Returns
    -------
    The axes of the real and of the generated cells.

    Examples
    --------
    >>> axes = evaluation_gene_correlation(adata[::2], adata[1::2], layer="counts")
    """
    correlations = gene_correlations(real, generated, n_genes, layer=layer)
    axes = panels(2, 2, (5.1, 5.1))
    symbols = pd.Series(symbols_of(real, gene_symbols, "real"), index=real.var_names)
    names = symbols[correlations[0].index].tolist() if len(correlations[0]) <= 40 else None
    draw_correlations(axes, correlations, names)
    return finish(axes, "evaluation_gene_correlation", show, save)


def draw_correlations(axes: Sequence[Axes], correlations: Sequence[pd.DataFrame], names: Names = None) -> None:
    """Draw both matrices in the order of the real one, on one scale up to the 98 % quantile of correlations."""
    order = _leaf_order(correlations[0].to_numpy())
    strengths = np.abs([matrix.to_numpy()[~np.eye(len(order), dtype=bool)] for matrix in correlations])
    limit = float(np.quantile(strengths, 0.98)) or 1.0
    for axis, title, matrix in zip(axes, ("real", "generated"), correlations, strict=True):
        drawn = matrix.to_numpy()[np.ix_(order, order)]
        image = axis.imshow(drawn, cmap=DIVERGING, vmin=-limit, vmax=limit, interpolation="nearest")
        axis.set_title(title, fontsize=10)
        axis.set(xticks=[], yticks=[])
    if names is not None:
        ordered = [names[i] for i in order]
        axes[0].set_yticks(range(len(order)), ordered, fontsize=6.5)
        for axis in axes:
            axis.set_xticks(range(len(order)), ordered, fontsize=6.5, rotation=90)
            axis.tick_params(length=0)
    colour_bar(image, list(axes), "correlation", shrink=0.7, aspect=15, extend="both")


def _leaf_order(correlations: np.ndarray) -> np.ndarray:
    """Order genes by the leaves of average-linkage clustering."""
    from scipy.cluster.hierarchy import leaves_list, linkage

    if len(correlations) < 3:
        return np.arange(len(correlations))
    distance = squareform(np.clip(1 - correlations, 0, None), checks=False)
    return leaves_list(linkage(distance, "average", optimal_ordering=True))
