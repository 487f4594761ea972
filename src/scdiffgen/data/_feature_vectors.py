"""Feature vectors of perturbations (gene embeddings, drug fingerprints), by which also unseen ones are known."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
from sklearn.linear_model import orthogonal_mp

from scdiffgen._messages import and_others, did_you_mean, listed, unknown_name
from scdiffgen.conditions import PerturbationSyntax

_ARGUMENT = "perturbation_features_key"

N_ATOMS = 5  # known perturbations that a new one is made of, at most
NEGLIGIBLE = 1e-6  # cosine, or coefficient of a vector of length 1, that is rounding: feature vectors are float32


def read_features(uns: Mapping[str, Any], key: str, syntax: PerturbationSyntax) -> pd.DataFrame:
    """The feature vectors in ``adata.uns``, as :func:`feature_table`."""
    if key not in uns:
        raise KeyError(f"`{_ARGUMENT}`: {unknown_name('key of `adata.uns`', key, list(uns))}")
    return feature_table(uns[key], f"`{_ARGUMENT}={key!r}`", syntax)


def feature_table(stored: Any, place: str, syntax: PerturbationSyntax) -> pd.DataFrame:
    """A user's vectors ``(perturbations, features)`` float32 by name, those of controls left out.

    They are given as a mapping from names to vectors or as a data frame; ``place`` says where, in messages.
    """
    vectors = _vectors(stored, place)
    vectors = {name: vector for name, vector in vectors.items() if name not in syntax.control}
    if not vectors:
        raise ValueError(f"{place} holds no vector of a perturbation.")
    combined = [name for name in vectors if syntax.separator in name]
    if combined:
        raise ValueError(
            f"{place} holds vectors of combinations ({listed(combined)}). Give one for each part; "
            "combinations are made of them."
        )
    lengths = {name: len(vector) for name, vector in vectors.items()}
    first = next(iter(lengths))
    for name, length in lengths.items():
        if length != lengths[first] or not length:
            raise ValueError(
                f"{place}: the vector of {name!r} has length {length}, that of {first!r} has "
                f"{lengths[first]}. All must have the same length, of at least 1."
            )
        if not np.isfinite(vectors[name]).all():
            raise ValueError(f"{place}: the vector of {name!r} holds values that are not finite.")
    return pd.DataFrame(np.stack(list(vectors.values())), index=list(vectors))


def features_of(names: Sequence[str], features: pd.DataFrame, key: str) -> np.ndarray:
    """The vectors ``(names, features)`` float32 of some perturbations, each of which must have one."""
    missing = [name for name in names if name not in features.index]
    if missing:
        raise ValueError(
            f"`{_ARGUMENT}={key!r}` has no vector of {missing[0]!r}{and_others(len(missing) - 1, 'perturbation')} "
            f"({listed(missing)}).{did_you_mean(missing[0], features.index)} Every perturbation in the data needs one."
        )
    return features.loc[list(names)].to_numpy(dtype=np.float32, copy=True)


def sparse_combinations(new: np.ndarray, known: np.ndarray) -> np.ndarray:
    """Coefficients ``(new, known)`` of few known vectors whose sum comes near each new one; all zero if none does.

    Orthogonal matching pursuit: Pati, Rezaiifar & Krishnaprasad 1993, Asilomar Conference on Signals.
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
        with warnings.catch_warnings():  # of which one is given as soon as the sum is exact
            warnings.filterwarnings("ignore", "Orthogonal matching pursuit ended prematurely", RuntimeWarning)
            found = orthogonal_mp(atoms, vector / length, n_nonzero_coefs=min(N_ATOMS, *atoms.shape))
        found[np.abs(found) < NEGLIGIBLE] = 0.0
        coefficients[row, usable] = found * length / lengths[usable]
    return coefficients


def _vectors(stored: Any, place: str) -> dict[str, np.ndarray]:
    if isinstance(stored, pd.DataFrame):
        if not stored.index.is_unique:
            raise ValueError(
                f"{place}: {listed(stored.index[stored.index.duplicated()].unique())} occur twice as index."
            )
        stored = dict(zip(stored.index, stored.to_numpy(), strict=True))
    if not isinstance(stored, Mapping):
        raise ValueError(
            f"{place} must be a mapping from names to vectors or a DataFrame, and is of type {type(stored).__name__}."
        )
    vectors = {}
    for name, vector in stored.items():
        try:
            values = np.asarray(vector, dtype=np.float32)
        except (TypeError, ValueError):
            raise ValueError(f"{place}: the vector of {name!r} is not numeric.") from None
        if values.ndim != 1:
            raise ValueError(f"{place}: the vector of {name!r} must have one dimension, got shape {values.shape}.")
        stripped = str(name).strip()
        if stripped in vectors:
            raise ValueError(f"{place} holds two vectors of {stripped!r}.")
        vectors[stripped] = values
    return vectors
