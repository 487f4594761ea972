"""What is not told of cells to generate: it is that of training cells which are like them in all that is told."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from scdiffgen._conditions import Parts


def tell_from(
    conditions: Mapping[str, Parts[np.ndarray]],
    which: Mapping[str, np.ndarray],
    training: Mapping[str, Parts[np.ndarray]],
    rows: np.ndarray,
) -> dict[str, Parts[np.ndarray]]:
    """Take what is not told of some conditions from training cells.

    Parameters
    ----------
    conditions
        Conditions of the cells, by name.
    which
        Cells to complete, of each condition ``(cells,)`` bool.
    training
        Conditions of the training cells.
    rows
        A training cell for each cell ``(cells,)``.

    Returns
    -------
    Conditions of the cells, in which these are told.

    Examples
    --------
    >>> none = Parts(np.zeros((1, 2), int), np.zeros((1, 2)), np.zeros((1, 2), bool), np.zeros(1, bool))
    >>> known = Parts(np.array([[0], [4]]), np.ones((2, 1)), np.ones((2, 1), bool), np.ones(2, bool))
    >>> told = tell_from({"guide": none}, {"guide": np.array([True])}, {"guide": known}, np.array([1]))["guide"]
    >>> told.ids.tolist(), told.mask.tolist(), told.told.tolist()
    ([[4, 0]], [[True, False]], [True])
    """
    completed = dict(conditions)
    for name, chosen in which.items():
        here, there = conditions[name], training[name]
        n_slots = max(here.ids.shape[1], there.ids.shape[1])
        own, taken = _padded(here, n_slots), _padded(Parts(*(array[rows] for array in there)), n_slots)
        stays = (here.told | ~chosen)[:, None]
        completed[name] = Parts(
            np.where(stays, own.ids, taken.ids),
            np.where(stays, own.values, taken.values),
            np.where(stays, own.mask, taken.mask),
            here.told | (chosen & taken.told),
        )
    return completed


def _padded(parts: Parts[np.ndarray], n_slots: int) -> Parts[np.ndarray]:
    missing = ((0, 0), (0, n_slots - parts.ids.shape[1]))
    return Parts(np.pad(parts.ids, missing), np.pad(parts.values, missing), np.pad(parts.mask, missing), parts.told)
