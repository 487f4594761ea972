"""The fields that the arguments of ``setup_anndata`` ask for."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import TYPE_CHECKING

from scdiffgen._messages import counted, listed
from scdiffgen._registry_keys import REGISTRY_KEYS
from scdiffgen.conditions import N_CELLS, PerturbationSyntax
from scdiffgen.data._category_fields import CategoricalCovariatesField, StrictCategoricalObsField
from scdiffgen.data._counts_field import CountsField
from scdiffgen.data._encode_perturbations import DOSE
from scdiffgen.data._hierarchy_field import HierarchyField
from scdiffgen.data._number_field import ContinuousCovariatesField
from scdiffgen.data._perturbation_field import PerturbationField
from scdiffgen.data._text_field import TextField

if TYPE_CHECKING:
    from collections.abc import Sequence

    from scvi.data.fields import BaseAnnDataField


def fields_for(
    *,
    layer: str | None = None,
    labels_key: str | None = None,
    batch_key: str | None = None,
    perturbation_key: str | Sequence[str] | None = None,
    control: str | Sequence[str] = "control",
    perturbation_sep: str = "+",
    dose_key: str | Sequence[str] | None = None,
    dose_unit: str | None = None,
    hierarchy_keys: Sequence[str] | None = None,
    categorical_covariate_keys: Sequence[str] | None = None,
    continuous_covariate_keys: Sequence[str] | None = None,
    text_key: str | None = None,
    perturbation_features_key: str | None = None,
) -> list[BaseAnnDataField]:
    """Make the fields that register a model's counts and conditions.

    Parameters
    ----------
    layer
        Layer of the counts; None for ``adata.X``.
    labels_key, batch_key
        Columns of ``adata.obs`` with categories: what a cell is, and in which batch it was measured.
    perturbation_key
        Column with what was done to a cell, such as ``"A+B"``; or several columns with a part each.
    control
        Name, or names, of cells to which nothing was done.
    perturbation_sep
        What stands between the parts of a combination, and between their doses.
    dose_key
        Column of doses, a number or ``"0.5+1.0"``; or as many columns as ``perturbation_key`` names.
    dose_unit
        What doses are measured in.
    hierarchy_keys
        Columns from the root of a hierarchy to its leaves.
    categorical_covariate_keys, continuous_covariate_keys
        More columns of categories, and columns of numbers.
    text_key
        Column with descriptions in words, which a sentence encoder embeds.
    perturbation_features_key
        Key of ``adata.uns`` with a feature vector of each perturbation.

    Returns
    -------
    The fields; counts, labels and batch always (one category where no column is named), the others if asked for.

    Raises
    ------
    TypeError
        If what should name a column, a layer or a control is no text.
    ValueError
        If a column is named for two conditions, or an argument lacks the one it belongs to.

    Examples
    --------
    >>> [field.registry_key for field in fields_for(labels_key="cell_type", perturbation_key="guide")]
    ['X', 'labels', 'batch', 'perturbation']
    """
    for argument, name in (
        ("layer", layer),
        ("labels_key", labels_key),
        ("batch_key", batch_key),
        ("text_key", text_key),
    ):
        if name is not None and not isinstance(name, str):
            raise TypeError(f"`{argument}` is {name!r}: pass one name, as text.")
    hierarchy = column_list(hierarchy_keys, "hierarchy_keys")
    categorical = column_list(categorical_covariate_keys, "categorical_covariate_keys")
    continuous = column_list(continuous_covariate_keys, "continuous_covariate_keys")
    perturbation = _one_or_more(perturbation_key, "perturbation_key")
    doses = _one_or_more(dose_key, "dose_key")
    _raise_if_incomplete(perturbation, doses, dose_unit, perturbation_features_key)
    single = [key for key in (labels_key, batch_key, text_key) if key is not None]
    _raise_if_repeated(
        [*single, *hierarchy, *categorical, *continuous, *perturbation, *doses],
        reserved=_reserved_names(hierarchy, perturbation, doses),
    )
    fields: list[BaseAnnDataField] = [
        CountsField(REGISTRY_KEYS.X, layer),
        StrictCategoricalObsField(REGISTRY_KEYS.LABELS, labels_key, argument="labels_key"),
        StrictCategoricalObsField(REGISTRY_KEYS.BATCH, batch_key, argument="batch_key"),
    ]
    if hierarchy:
        fields.append(HierarchyField(REGISTRY_KEYS.HIERARCHY, hierarchy))
    if categorical:
        fields.append(CategoricalCovariatesField(REGISTRY_KEYS.CATEGORICAL_COVARIATES, categorical))
    if continuous:
        fields.append(ContinuousCovariatesField(REGISTRY_KEYS.CONTINUOUS_COVARIATES, continuous))
    if text_key is not None:
        fields.append(TextField(REGISTRY_KEYS.TEXT, text_key, argument="text_key"))
    if perturbation:
        field = PerturbationField(
            REGISTRY_KEYS.PERTURBATION,
            perturbation,
            PerturbationSyntax(tuple(_one_or_more(control, "control")), perturbation_sep),
            dose_columns=doses,
            dose_unit=dose_unit,
            features_key=perturbation_features_key,
        )
        fields.append(field)
    return fields


def column_list(keys: Sequence[str] | None, argument: str) -> list[str]:
    """Names of columns, of which there may be none.

    Parameters
    ----------
    keys
        Names, or None.
    argument
        The argument that gave them; named if it is a single string.

    Returns
    -------
    The names.

    Raises
    ------
    TypeError
        If it is a single string, or an entry is none.

    Examples
    --------
    >>> column_list(None, "hierarchy_keys"), column_list(("tissue", "cell_type"), "hierarchy_keys")
    ([], ['tissue', 'cell_type'])
    """
    if isinstance(keys, str):
        raise TypeError(f"`{argument}={keys!r}` must be a list of columns: write `{argument}=[{keys!r}]`.")
    return _names(keys, argument)


def _one_or_more(keys: str | Sequence[str] | None, argument: str) -> list[str]:
    return [keys] if isinstance(keys, str) else _names(keys, argument)


def _names(keys: Sequence[str] | None, argument: str) -> list[str]:
    if keys is None:
        return []
    names = list(keys) if isinstance(keys, Iterable) else [keys]
    for name in names:
        if not isinstance(name, str):
            raise TypeError(f"`{argument}` is {keys!r}: {name!r} is no name. Pass names, as text.")
    return names


def _raise_if_incomplete(
    perturbation: Sequence[str], doses: Sequence[str], dose_unit: str | None, features_key: str | None
) -> None:
    if not perturbation:
        for argument, value in (("dose_key", doses), ("perturbation_features_key", features_key)):
            if value:
                raise ValueError(f"`{argument}={value!r}` needs `perturbation_key`, the column of what was done.")
    if dose_unit is not None and not doses:
        raise ValueError(f"`dose_unit={dose_unit!r}` needs `dose_key`, the column of doses.")
    if doses and len(doses) != len(perturbation):
        raise ValueError(
            f"`dose_key` names {counted(len(doses), 'column')} ({listed(doses)}), `perturbation_key` "
            f"{len(perturbation)} ({listed(perturbation)}). Name a column of doses for each column of perturbations."
        )


def _reserved_names(hierarchy: Sequence[str], perturbation: Sequence[str], doses: Sequence[str]) -> list[str]:
    """What a user's table calls other things than one column of ``adata.obs``."""
    reserved = {
        N_CELLS: True,
        "hierarchy": bool(hierarchy),
        "perturbation": len(perturbation) > 1,
        DOSE: bool(doses) and DOSE not in doses,
    }
    return [name for name, is_reserved in reserved.items() if is_reserved]


def _raise_if_repeated(columns: Sequence[str], reserved: Sequence[str]) -> None:
    repeated = [column for column, n in Counter([*columns, *reserved]).items() if n > 1]
    if repeated:
        raise ValueError(
            f"{listed(repeated)} would stand for more than one condition. Name each column once, and rename columns "
            f"that are called {listed(reserved)}."
        )
