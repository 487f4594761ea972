"""Which tokens attend to which, over the noise level."""

from __future__ import annotations

import numpy as np
import pandas as pd
from matplotlib.axes import Axes

from scdiffgen.pl._figure import Save, figure_of, finish, panels, shortened

INCHES = (2.7, 2.7)
MOST_TICKS = 16


def attention(
    frame: pd.DataFrame,
    layer: int | None = None,
    *,
    ncols: int = 5,
    ax: Axes | None = None,
    show: bool | None = None,
    save: Save = None,
) -> list[Axes]:
    """Draw attention between tokens, a panel a noise level.

    Parameters
    ----------
    frame
        From :meth:`scdiffgen.model.TokenDiffusion.get_token_attention`.
    layer
        Layer to draw, from 1; by default the mean of all.
    ncols
        Panels a row.
    ax
        Where to draw, if there is one level.
    show
        Whether to show the figure; by default ``scanpy.settings.autoshow``.
    save
        ``True`` or text saves to ``scanpy.settings.figdir`` as scanpy does; a :class:`~pathlib.Path` to that file.

    Returns
    -------
    The axes, one a level.

    Raises
    ------
    ValueError
        If there is no such layer.

    Examples
    --------
    >>> axes = attention(model.get_token_attention(adata, levels=[0.1, 1.0]))
    >>> [axis.get_title() for axis in axes]
    ['10% of the molecules', '100% of the molecules']
    """
    layers = frame.index.unique("layer")
    if layer is not None and layer not in layers:
        raise ValueError(f"`layer` is {layer}: choose from {list(layers)}.")
    drawn = frame if layer is None else frame.xs(layer, level="layer", drop_level=False)
    levels, tokens = frame.index.unique("level"), list(frame.columns)
    labels = [shortened(frame.attrs.get("labels", {}).get(token, token)) for token in tokens]
    axes = panels(len(levels), ncols, INCHES, ax)
    shares = drawn.groupby(["level", "token"]).mean().to_numpy()
    ticks = np.arange(0, len(tokens), -(-len(tokens) // MOST_TICKS))
    for axis, level in zip(axes, levels, strict=True):
        mean = drawn.loc[level].groupby("token").mean().loc[tokens]
        image = axis.imshow(mean, cmap="viridis", vmin=shares.min(), vmax=shares.max(), interpolation="nearest")
        axis.set_xticks(ticks, [labels[tick] for tick in ticks], rotation=90, fontsize=7)
        axis.set_yticks(ticks, [labels[tick] for tick in ticks] if axis is axes[0] else [""] * len(ticks), fontsize=7)
        axis.set_title(f"{100 * level:g}% of the molecules", fontsize=9)
        axis.tick_params(length=2)
    axes[0].set_ylabel("attends", fontsize=8)
    axes[0].set_xlabel("to", fontsize=8)
    bar = figure_of(axes).colorbar(image, ax=axes, shrink=0.7, aspect=15)
    bar.set_label("share of attention", fontsize=8)
    bar.ax.tick_params(labelsize=7)
    finish(axes, "attention", show, save)
    return axes
