"""Which tokens attend to which, over the noise level."""

from __future__ import annotations

import numpy as np
import pandas as pd
from matplotlib.axes import Axes

from scdiffgen._shared_docs import shared_docs
from scdiffgen.pl._figure import Ax, Save, Show, colour_bar, finish, panels, shortened

INCHES = (2.7, 2.7)
MOST_TICKS = 16


@shared_docs
def attention(
    frame: pd.DataFrame,
    layer: int | None = None,
    *,
    ncols: int = 5,
    ax: Ax = None,
    show: Show = None,
    save: Save = None,
) -> list[Axes]:
    """Draw attention between tokens, a panel a noise level.

    Parameters
    ----------
    frame
        From :meth:`scdiffgen.model.TokenDiffusion.get_token_attention`.
    layer
        Layer to draw, from 1; by default the mean of all.
    {ncols}
    {drawn}

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
    axes = panels(len(levels), ncols, INCHES, ax)
    shares = drawn.groupby(["level", "token"]).mean().to_numpy()
    ticks = np.arange(0, len(tokens), -(-len(tokens) // MOST_TICKS))
    names = frame.attrs.get("labels", {})
    labels = [shortened(names.get(tokens[tick], tokens[tick])) for tick in ticks]
    for axis, level in zip(axes, levels, strict=True):
        mean = drawn.loc[level].groupby("token").mean().loc[tokens]
        image = axis.imshow(mean, cmap="viridis", vmin=shares.min(), vmax=shares.max(), interpolation="nearest")
        axis.set_xticks(ticks, labels, rotation=90, fontsize=7)
        axis.set_yticks(ticks, labels if axis is axes[0] else [""] * len(ticks), fontsize=7)
        axis.set_title(f"{100 * level:g}% of the molecules", fontsize=9)
        axis.tick_params(length=2)
    axes[0].set_ylabel("attends", fontsize=8)
    axes[0].set_xlabel("to", fontsize=8)
    colour_bar(image, axes, "share of attention", shrink=0.7, aspect=15)
    return finish(axes, "attention", show, save)
