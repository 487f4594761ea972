"""Categories of a column and their codes: missing values and unseen categories are errors that name them."""

from __future__ import annotations

import warnings

import numpy as np
import pandas as pd
from scvi import settings

from scdiffgen._messages import counted, did_you_mean, listed
from scdiffgen.data._columns import raise_if_missing

LABEL_TYPES = (str, bytes, bool, int, float, np.generic)


def categories_of(column: pd.Series, argument: str) -> np.ndarray:
    """The categories that occur in a column, in the column's own order if it is categorical and sorted otherwise.

    Parameters
    ----------
    column
        Values, indexed by the names of the cells.
    argument
        The argument named in messages.

    Returns
    -------
    (categories,) the categories; those without a cell are left out.

    Raises
    ------
    ValueError
        If an entry is missing, or is no text, number or truth value.

    Warns
    -----
    UserWarning
        If a category has a single cell.

    Examples
    --------
    >>> categories_of(pd.Series(["T", "B", "T", "B"]), "labels_key").tolist()
    ['B', 'T']
    """
    _raise_if_unlabelled(column, argument)
    _raise_if_no_labels(column, argument)
    values = _as_categorical(column)
    categories = values.cat.categories.to_numpy(copy=True)
    lonely = categories[np.bincount(values.cat.codes, minlength=len(categories)) == 1]
    if len(lonely) and len(column) > 1:
        warnings.warn(
            f"`{argument}={column.name!r}`: {counted(len(lonely), 'category', 'categories')} with a single "
            f"cell ({listed(lonely)}): hardly anything can be learned about a category from one cell.",
            UserWarning,
            stacklevel=settings.warnings_stacklevel,
        )
    return categories


def encode(
    column: pd.Series, categories: np.ndarray, argument: str, extend: bool = False
) -> tuple[np.ndarray, np.ndarray]:
    """Code each entry by its position among known categories.

    Parameters
    ----------
    column
        Values, indexed by the names of the cells.
    categories
        (categories,) the known categories.
    argument
        The argument named in messages.
    extend
        Whether unseen categories are appended; they raise otherwise. Codes of known categories never change.

    Returns
    -------
    (cells,) int64 codes, and (categories,) the categories with those appended.

    Raises
    ------
    ValueError
        If an entry is missing, or is of an unseen category and ``extend`` is False.

    Examples
    --------
    >>> encode(pd.Series(["B", "T", "NK"]), np.array(["B", "T"], dtype=object), "labels_key", extend=True)[0]
    array([0, 1, 2])
    """
    _raise_if_unlabelled(column, argument)
    _raise_if_no_labels(column, argument)
    codes, unseen = look_up(column, categories)
    if len(unseen) and not extend:
        raise ValueError(
            f"`{argument}={column.name!r}`: {counted(len(unseen), 'unseen category', 'unseen categories')} "
            f"({listed(unseen)}); the registered ones are {listed(categories)}.{did_you_mean(unseen[0], categories)} "
            "Leave these cells out, rename the category, or teach it to a trained model (`load_query_data`)."
        )
    return codes, _appended(categories, unseen)


def look_up(column: pd.Series, categories: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Position of each entry among known categories, the unseen ones counted on.

    Parameters
    ----------
    column
        Values, none missing.
    categories
        (categories,) the known categories.

    Returns
    -------
    (cells,) int64 positions, and (unseen,) the unseen categories, whose positions follow those of the known ones.

    Examples
    --------
    >>> look_up(pd.Series([0, 7]), np.array([7, 8]))
    (array([2, 0]), array([0]))
    """
    values = _as_categorical(column)
    own = values.cat.categories
    positions = pd.Index(categories).get_indexer(own)
    unseen = own[positions < 0].to_numpy()
    positions[positions < 0] = len(categories) + np.arange(len(unseen))
    return positions[values.cat.codes.to_numpy()].astype(np.int64), unseen


def _appended(categories: np.ndarray, unseen: np.ndarray) -> np.ndarray:
    if not len(unseen):
        return categories
    dtype = categories.dtype if categories.dtype == unseen.dtype else np.dtype(object)  # never numbers turned to text
    return np.concatenate([categories.astype(dtype), unseen.astype(dtype)])


def _raise_if_unlabelled(column: pd.Series, argument: str) -> None:
    way_out = "Give these cells a category of their own (for example 'unknown'), or leave them out."
    raise_if_missing(column.isna().to_numpy(dtype=bool), column.index, f"`{argument}={column.name!r}`", way_out)


def _raise_if_no_labels(column: pd.Series, argument: str) -> None:
    """Raise if entries are containers, dates or intervals, which could not be asked for afterwards."""
    categorical = isinstance(column.dtype, pd.CategoricalDtype)
    entries = pd.Series(column.cat.categories) if categorical else column
    dates = entries.dtype.kind in "mM"
    plain = entries.dtype.kind in "biuf"
    odd = [] if plain else [entry for entry in entries if not isinstance(entry, LABEL_TYPES)]
    if dates or odd:
        first = entries.iloc[0] if dates else odd[0]
        raise ValueError(
            f"`{argument}={column.name!r}`: {first!r} is a {type(first).__name__}, and categories are text, numbers or "
            f"truth values. Write them as text: `adata.obs[{column.name!r}] = adata.obs[{column.name!r}].astype(str)`."
        )


def _as_categorical(column: pd.Series) -> pd.Series:
    return column.astype("category").cat.remove_unused_categories()
