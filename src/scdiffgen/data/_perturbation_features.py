"""Feature vectors of perturbations (gene embeddings, drug fingerprints), by which also unseen ones are known."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from scdiffgen._messages import and_others, did_you_mean, listed, unknown_name

if TYPE_CHECKING:
    from collections.abc import Sequence

    from scdiffgen.conditions import PerturbationSyntax

_ARGUMENT = "perturbation_features_key"


def read_features(uns: Mapping[str, Any], key: str, syntax: PerturbationSyntax) -> pd.DataFrame:
    """Read the feature vectors that the user stored.

    Parameters
    ----------
    uns
        ``adata.uns``.
    key
        Where in it: a mapping from names to vectors, or a DataFrame with names as index.
    syntax
        How perturbations are written; vectors of controls are left out.

    Returns
    -------
    (perturbations, features) float32, indexed by name.

    Raises
    ------
    KeyError
        If there is no such key.
    ValueError
        If it holds no vectors, vectors of several lengths, values that are not finite, or a vector of a combination.

    Examples
    --------
    >>> from scdiffgen.conditions import PerturbationSyntax
    >>> read_features({"genes": {"A": [1, 2], "B": [3, 4]}}, "genes", PerturbationSyntax()).shape
    (2, 2)
    """
    if key not in uns:
        raise KeyError(f"`{_ARGUMENT}`: {unknown_name('key of `adata.uns`', key, list(uns))}")
    return feature_table(uns[key], f"`{_ARGUMENT}={key!r}`", syntax)


def feature_table(stored: Any, place: str, syntax: PerturbationSyntax) -> pd.DataFrame:
    """Bring feature vectors that a user gives in the form of a table.

    Parameters
    ----------
    stored
        A mapping from names to vectors, or a DataFrame with names as index.
    place
        Where the user gave them; named in messages.
    syntax
        How perturbations are written; vectors of controls are left out.

    Returns
    -------
    (perturbations, features) float32, indexed by name.

    Raises
    ------
    ValueError
        As :func:`read_features`.

    Examples
    --------
    >>> from scdiffgen.conditions import PerturbationSyntax
    >>> feature_table({"A": [1, 2], "control": [0, 0]}, "`vectors`", PerturbationSyntax()).index.tolist()
    ['A']
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
    """The vectors of given perturbations.

    Parameters
    ----------
    names
        Perturbations.
    features
        (perturbations, features) as read.
    key
        Where they were read; named in messages.

    Returns
    -------
    (names, features) float32.

    Raises
    ------
    ValueError
        If one of them has no vector.

    Examples
    --------
    >>> features_of(["B"], pd.DataFrame([[1.0], [3.0]], index=["A", "B"]), "genes")
    array([[3.]], dtype=float32)
    """
    missing = [name for name in names if name not in features.index]
    if missing:
        raise ValueError(
            f"`{_ARGUMENT}={key!r}` has no vector of {missing[0]!r}{and_others(len(missing) - 1, 'perturbation')} "
            f"({listed(missing)}).{did_you_mean(missing[0], features.index)} Every perturbation in the data needs one."
        )
    return features.loc[list(names)].to_numpy(dtype=np.float32, copy=True)


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
