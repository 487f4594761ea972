"""The arguments of ``setup_anndata`` and ``setup_mudata``, and the fields that they stand for."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from scvi.data.fields import BaseAnnDataField

from scdiffgen._messages import counted, listed
from scdiffgen._registry_keys import REGISTRY_KEYS
from scdiffgen.conditions import N_CELLS, PerturbationSyntax
from scdiffgen.data._category_fields import CategoricalCovariatesField, StrictCategoricalObsField, TextField
from scdiffgen.data._cell_treatments import DOSE
from scdiffgen.data._counts_field import CountsField
from scdiffgen.data._hierarchy_field import HierarchyField
from scdiffgen.data._number_field import ContinuousCovariatesField
from scdiffgen.data._perturbation_field import PerturbationField


@dataclass(frozen=True)
class SetupArguments:
    """What is registered of the cells, in the words of ``setup_anndata``, where each argument is described."""

    layer: str | None = None
    labels_key: str | None = None
    batch_key: str | None = None
    perturbation_key: str | Sequence[str] | None = None
    control: str | Sequence[str] = "control"
    perturbation_sep: str = "+"
    dose_key: str | Sequence[str] | None = None
    dose_unit: str | None = None
    hierarchy_keys: Sequence[str] | None = None
    categorical_covariate_keys: Sequence[str] | None = None
    continuous_covariate_keys: Sequence[str] | None = None
    text_key: str | None = None
    perturbation_features_key: str | None = None

    def fields(self) -> list[BaseAnnDataField]:
        """The fields of the counts and of the conditions."""
        _check_name(self.layer, "layer")
        return [CountsField(REGISTRY_KEYS.X, self.layer), *self.condition_fields()]

    def condition_fields(self) -> list[BaseAnnDataField]:
        """The fields of the conditions: labels and batch always (one category where no column is named)."""
        labels, batch, text = self.labels_key, self.batch_key, self.text_key
        for argument, name in (("labels_key", labels), ("batch_key", batch), ("text_key", text)):
            _check_name(name, argument)
        hierarchy = _column_list(self.hierarchy_keys, "hierarchy_keys")
        categorical = _column_list(self.categorical_covariate_keys, "categorical_covariate_keys")
        continuous = _column_list(self.continuous_covariate_keys, "continuous_covariate_keys")
        perturbation = _one_or_more(self.perturbation_key, "perturbation_key")
        doses = _one_or_more(self.dose_key, "dose_key")
        self._raise_if_incomplete(perturbation, doses)
        single = [key for key in (labels, batch, text) if key is not None]
        _raise_if_repeated(
            [*single, *hierarchy, *categorical, *continuous, *perturbation, *doses],
            reserved=_reserved_names(hierarchy, perturbation, doses),
        )
        fields: list[BaseAnnDataField] = [
            StrictCategoricalObsField(REGISTRY_KEYS.LABELS, labels, argument="labels_key"),
            StrictCategoricalObsField(REGISTRY_KEYS.BATCH, batch, argument="batch_key"),
        ]
        if hierarchy:
            fields.append(HierarchyField(REGISTRY_KEYS.HIERARCHY, hierarchy))
        if categorical:
            fields.append(CategoricalCovariatesField(REGISTRY_KEYS.CATEGORICAL_COVARIATES, categorical))
        if continuous:
            fields.append(ContinuousCovariatesField(REGISTRY_KEYS.CONTINUOUS_COVARIATES, continuous))
        if text is not None:
            fields.append(TextField(REGISTRY_KEYS.TEXT, text, argument="text_key"))
        if perturbation:
            fields.append(self._perturbation_field(perturbation, doses))
        return fields

    def _perturbation_field(self, columns: list[str], dose_columns: list[str]) -> PerturbationField:
        return PerturbationField(
            REGISTRY_KEYS.PERTURBATION,
            columns,
            PerturbationSyntax(tuple(_one_or_more(self.control, "control")), self.perturbation_sep),
            dose_columns=dose_columns,
            dose_unit=self.dose_unit,
            features_key=self.perturbation_features_key,
        )

    def _raise_if_incomplete(self, perturbation: list[str], doses: list[str]) -> None:
        if not perturbation:
            for argument, value in (
                ("dose_key", doses),
                ("perturbation_features_key", self.perturbation_features_key),
            ):
                if value:
                    raise ValueError(f"`{argument}={value!r}` needs `perturbation_key`, the column of what was done.")
        if self.dose_unit is not None and not doses:
            raise ValueError(f"`dose_unit={self.dose_unit!r}` needs `dose_key`, the column of doses.")
        if doses and len(doses) != len(perturbation):
            raise ValueError(
                f"`dose_key` names {counted(len(doses), 'column')} ({listed(doses)}), `perturbation_key` "
                f"{len(perturbation)} ({listed(perturbation)}). Name a column of doses for each column of "
                "perturbations."
            )


def _check_name(name: str | None, argument: str) -> None:
    if name is not None and not isinstance(name, str):
        raise TypeError(f"`{argument}` is {name!r}: pass one name, as text.")


def _column_list(keys: Sequence[str] | None, argument: str) -> list[str]:
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


def _reserved_names(hierarchy: list[str], perturbation: list[str], doses: list[str]) -> list[str]:
    """What a user's table calls other things than one column of ``.obs``."""
    reserved = {
        N_CELLS: True,
        "hierarchy": bool(hierarchy),
        "perturbation": len(perturbation) > 1,
        DOSE: bool(doses) and DOSE not in doses,
    }
    return [name for name, is_reserved in reserved.items() if is_reserved]


def _raise_if_repeated(columns: list[str], reserved: list[str]) -> None:
    repeated = [column for column, n in Counter([*columns, *reserved]).items() if n > 1]
    if repeated:
        raise ValueError(
            f"{listed(repeated)} would stand for more than one condition. Name each column once, and rename columns "
            f"that are called {listed(reserved)}."
        )
