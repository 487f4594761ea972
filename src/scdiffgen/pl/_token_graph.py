"""Which tokens say alike."""

from __future__ import annotations

import numpy as np
from anndata import AnnData
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.colors import Normalize
from matplotlib.patches import PathPatch
from matplotlib.path import Path as Curve
from scipy.cluster.hierarchy import leaves_list, linkage
from scipy.spatial.distance import squareform

from scdiffgen._stored_tokens import stored_about_tokens, token_labels, token_loadings
from scdiffgen.pl._figure import Save, finish, panels

INCHES = 5.5


def token_graph(
    adata: AnnData,
    threshold: float = 0.4,
    *,
    ax: Axes | None = None,
    show: bool | None = None,
    save: Save = None,
) -> Axes:
    """Draw the similarity of tokens as a graph.

    Tokens stand on a circle, similar ones side by side. A curve joins tokens whose loadings correlate: red for like,
    blue for opposite genes, the stronger the wider. A node is the larger, the more variance its token explains.

    Parameters
    ----------
    adata
        Cells with stored tokens.
    threshold
        Smallest absolute correlation for which a curve is drawn.
    ax
        Where to draw.
    show
        Whether to show the figure; by default ``scanpy.settings.autoshow``.
    save
        ``True`` or text saves to ``scanpy.settings.figdir`` as scanpy does; a :class:`~pathlib.Path` to that file.

    Returns
    -------
    The axes.

    Examples
    --------
    >>> axis = token_graph(adata, threshold=0.1)
    >>> len(axis.texts)
    4
    """
    loadings, labels = token_loadings(adata), list(token_labels(adata).values())
    correlations = loadings.astype(float).corr().fillna(0).to_numpy()
    angles = np.empty(len(labels))
    angles[_order(correlations)] = 2 * np.pi * np.arange(len(labels)) / len(labels)
    places = np.stack([np.cos(angles), np.sin(angles)], axis=1)
    (axis,) = panels(1, 1, (INCHES, INCHES), ax)
    _draw_edges(axis, places, correlations, threshold)
    share = np.asarray(stored_about_tokens(adata)["explained"])
    axis.scatter(places[:, 0], places[:, 1], s=20 + 500 * share, color="#4D4D4D", zorder=3)
    for place, angle, label in zip(places, np.degrees(angles), labels, strict=True):
        left = 90 < angle < 270
        axis.text(
            1.06 * place[0],
            1.06 * place[1],
            label,
            rotation=angle + 180 if left else angle,
            rotation_mode="anchor",
            ha="right" if left else "left",
            va="center",
            fontsize=8,
        )
    axis.set(xlim=(-1.1, 1.1), ylim=(-1.1, 1.1), aspect="equal")
    axis.set_axis_off()
    finish([axis], "token_graph", show, save)
    return axis


def _order(correlations: np.ndarray) -> np.ndarray:
    """Tokens in an order that puts similar ones side by side: leaves of average linkage."""
    if len(correlations) < 3:
        return np.arange(len(correlations))
    distance = np.clip(1 - np.abs(correlations), 0, None)
    np.fill_diagonal(distance, 0)
    return leaves_list(linkage(squareform(distance, checks=False), "average", optimal_ordering=True))


def _draw_edges(axis: Axes, places: np.ndarray, correlations: np.ndarray, threshold: float) -> None:
    """Curves through the middle of the circle."""
    palette, norm = colormaps["RdBu_r"], Normalize(-1, 1)
    for one, other in zip(*np.triu_indices(len(places), 1), strict=True):
        strength = correlations[one, other]
        if abs(strength) >= threshold:
            curve = Curve([places[one], (0, 0), places[other]], [Curve.MOVETO, Curve.CURVE3, Curve.CURVE3])
            axis.add_patch(
                PathPatch(curve, fill=False, edgecolor=palette(norm(strength)), linewidth=4 * abs(strength), alpha=0.8)
            )
