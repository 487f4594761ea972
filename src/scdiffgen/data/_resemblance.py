"""What new perturbations resemble: a few known ones whose feature vectors add up to theirs."""

from __future__ import annotations

import warnings

import numpy as np
from sklearn.linear_model import orthogonal_mp

N_ATOMS = 5
"""Known perturbations that a new one is made of, at most."""

NEGLIGIBLE = 1e-6
"""Cosine, or coefficient of a vector of length 1, that is rounding: feature vectors are float32."""


def sparse_combinations(new: np.ndarray, known: np.ndarray) -> np.ndarray:
    """Coefficients of few known vectors whose sum comes near each new one, by orthogonal matching pursuit.

    Parameters
    ----------
    new
        (new, features) vectors.
    known
        (known, features) vectors.

    Returns
    -------
    (new, known) float64, at most ``N_ATOMS`` of a row not zero; all zero for a vector that no known one resembles.

    References
    ----------
    Pati, Rezaiifar & Krishnaprasad 1993, "Orthogonal matching pursuit: recursive function approximation with
    applications to wavelet decomposition".

    Examples
    --------
    >>> known = np.array([[2.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0]])
    >>> sparse_combinations(np.array([[1.0, 3.0, 0.0]]), known).round(3)
    array([[0.5, 3. , 0. ]])
    """
    new, known = np.asarray(new, dtype=np.float64), np.asarray(known, dtype=np.float64)
    lengths = np.linalg.norm(known, axis=1)
    usable = np.flatnonzero(lengths)
    coefficients = np.zeros((len(new), len(known)))
    if not len(usable):
        return coefficients
    atoms = (known[usable] / lengths[usable, None]).T
    for row, vector in enumerate(new):
        length = np.linalg.norm(vector)
        if not np.abs(atoms.T @ vector).max() > NEGLIGIBLE * length:
            continue
        with warnings.catch_warnings():
            # Given as soon as the sum is exact.
            warnings.filterwarnings("ignore", "Orthogonal matching pursuit ended prematurely", RuntimeWarning)
            found = orthogonal_mp(atoms, vector / length, n_nonzero_coefs=min(N_ATOMS, *atoms.shape))
        found[np.abs(found) < NEGLIGIBLE] = 0.0
        coefficients[row, usable] = found * length / lengths[usable]
    return coefficients
