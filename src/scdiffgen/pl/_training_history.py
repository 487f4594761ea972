"""The course of training."""

from __future__ import annotations

from collections.abc import Mapping

import pandas as pd
from matplotlib.axes import Axes

from scdiffgen._shared_docs import shared_docs
from scdiffgen.pl._figure import BLUE, Ax, Save, Show, finish, panels, plain


@shared_docs
def training_history(
    history: Mapping[str, pd.DataFrame], *, ax: Ax = None, show: Show = None, save: Save = None
) -> Axes:
    """Draw training and validation loss over the epochs; a point marks the lowest validation loss.

    The weights that generate are those at the end, see the user guide: generated cells improve past the lowest loss.

    Parameters
    ----------
    history
        The model's ``history``.
    {drawn}

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
        axis.plot(validation.index, validation, color=BLUE, marker=".", label="validation", linewidth=1.2)
        axis.plot([validation.idxmin()], [validation.min()], "o", color=BLUE, markersize=7, label="lowest")
    plain(axis, "epoch", "loss (nats per molecule)")
    axis.legend(frameon=False, fontsize=8)
    return finish(axis, "training_history", show, save)


def _curve(table: pd.DataFrame) -> pd.Series:
    """Values over the epochs in which there is one."""
    return table.iloc[:, 0].astype(float).dropna()
