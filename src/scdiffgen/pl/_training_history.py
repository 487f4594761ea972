"""The course of training."""

from __future__ import annotations

from collections.abc import Mapping

import pandas as pd
from matplotlib.axes import Axes

from scdiffgen.pl._figure import Save, finish, panels

LINE = "#0072B2"  # blue of Okabe and Ito


def training_history(
    history: Mapping[str, pd.DataFrame],
    *,
    ax: Axes | None = None,
    show: bool | None = None,
    save: Save = None,
) -> Axes:
    """Draw training and validation loss over the epochs; a point marks the lowest validation loss.

    The weights that generate are those at the end, see the user guide: generated cells improve past the lowest loss.

    Parameters
    ----------
    history
        The model's ``history``.
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
    TypeError
        If this is no mapping, such as the model itself.
    ValueError
        If the history holds no loss.

    Examples
    --------
    >>> axis = training_history(model.history)
    >>> axis.get_ylabel()
    'loss (nats per molecule)'
    """
    if not isinstance(history, Mapping):
        raise TypeError(f"`history` is of type {type(history).__name__}: pass `model.history` of a trained model.")
    if "train_loss" not in history:
        raise ValueError(f"`history` holds {list(history)} and no loss: pass `model.history` of a trained model.")
    training = _curve(history["train_loss"])
    (axis,) = panels(1, 1, (4.2, 2.8), ax)
    axis.plot(training.index, training, color="#999999", label="training", linewidth=1.2)
    if "validation_loss" in history:
        validation = _curve(history["validation_loss"])
        axis.plot(validation.index, validation, color=LINE, marker=".", label="validation", linewidth=1.2)
        axis.plot([validation.idxmin()], [validation.min()], "o", color=LINE, markersize=7, label="lowest")
    axis.set_xlabel("epoch", fontsize=9)
    axis.set_ylabel("loss (nats per molecule)", fontsize=9)
    axis.tick_params(labelsize=8)
    axis.legend(frameon=False, fontsize=8)
    axis.spines[["top", "right"]].set_visible(False)
    finish([axis], "training_history", show, save)
    return axis


def _curve(table: pd.DataFrame) -> pd.Series:
    """Values over the epochs in which there is one."""
    return table.iloc[:, 0].astype(float).dropna()
