"""The epochs of a model that is trained again go on where those of the first training ended."""

from __future__ import annotations

from collections.abc import Mapping

import pandas as pd


def continued(
    before: Mapping[str, pd.DataFrame], joined: Mapping[str, pd.DataFrame], logged: Mapping[str, pd.DataFrame]
) -> dict[str, pd.DataFrame]:
    """Number the epochs of a joined history.

    scvi-tools numbers what is appended by counting rows, which is wrong for what is not logged in every epoch, as the
    validation loss.

    Parameters
    ----------
    before
        History of the earlier trainings.
    joined
        The same, with that of the last training appended.
    logged
        History of the last training alone, whose epochs begin at 0.

    Returns
    -------
    The joined history with the epochs of all trainings in a row.

    Examples
    --------
    >>> first, second = (pd.DataFrame({"validation_loss": [5.0]}, index=[i]).rename_axis("epoch") for i in (9, 3))
    >>> history = {"train_loss": pd.DataFrame({"train_loss": range(10)}).rename_axis("epoch"), "validation_loss": first}
    >>> joined = {"validation_loss": pd.concat([first, second])}
    >>> continued(history, joined, {"validation_loss": second})["validation_loss"].index.tolist()
    [9, 13]
    """
    n_before = max((int(frame.index[-1]) + 1 for frame in before.values() if _of_epochs(frame)), default=0)
    numbered = dict(joined)
    for name, frame in joined.items():
        if name in before and name in logged and _of_epochs(before[name]):
            epochs = [*before[name].index, *(logged[name].index + n_before)]
            numbered[name] = frame.set_axis(pd.Index(epochs, name=before[name].index.name))
    return numbered


def _of_epochs(frame: pd.DataFrame) -> bool:
    return frame.index.name == "epoch" and len(frame) > 0
